"""The demo's script, its progress, and the plot of its figures."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.lab.watchdog import Watchdog

SLOW_S: Final = 60.0  # overtime of a stage after which the watchdog reports its tasks
LIMIT_S: Final = 300.0  # overtime of a stage after which the watchdog ends the demo


@dataclass(frozen=True, slots=True)
class Script:
    """The size of the demo and the length of its phases."""

    clients: int = 240
    reports_per_s: float = 12.0
    warm_s: float = 15.0  # counted from the first result of the last channel
    skewed_s: float = 15.0
    trimmed_s: float = 35.0
    rush_s: float = 35.0
    dead_s: float = 20.0
    back_s: float = 25.0
    periods: tuple[str, ...] = ("8s", "14s", "20s")  # periods of channels, in place of the example's
    channels: tuple[str, ...] = ()  # channels of the application that are used; empty: all


FULL: Final = Script()
FAST: Final = Script(
    clients=120, warm_s=1.0, skewed_s=5.0, trimmed_s=11.0, rush_s=8.0, dead_s=6.0, back_s=10.0,
    periods=("3s", "5s", "6s"), channels=("reports_of_kind", "kind_near_place", "counts_around", "worst_three"),
)  # fmt: skip


@dataclass(slots=True)
class Sample:
    """The state of the fleet at one moment."""

    at_s: float
    phase: str
    spread: float
    max_load: float
    brokers: dict[str, float]  # broker -> load, bytes/s
    homes: dict[str, int]  # broker -> number of clients
    status: str  # of the controller, in words
    delivered: int


@dataclass(slots=True)
class Progress:
    """The phase and the figures of a demo; while it runs, the figures so far."""

    script: Script
    phase: str = "starting"
    began: float = field(default_factory=time.monotonic)
    samples: list[Sample] = field(default_factory=list)
    delivered: int = 0
    lost: int = 0
    doubled: int = 0
    late: int = 0
    migrations: int = 0
    served_again_s: float | None = None  # time until the last client of the killed broker had another broker
    marks: list[tuple[float, str]] = field(default_factory=list)  # start and name of each phase
    watchdog: Watchdog | None = None

    def enter(self, phase: str, lasts_s: float = 0.0) -> None:
        """Begin a phase that should take ``lasts_s``, or a few seconds."""
        self.phase = phase
        if self.watchdog is not None:
            self.watchdog.stage(phase, SLOW_S + lasts_s, LIMIT_S + lasts_s)

    def leave(self) -> None:
        self.phase = "stopping the fleet"
        if self.watchdog is not None:
            self.watchdog.clean_up(self.phase, SLOW_S)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    def level(self, phase: str) -> dict[str, float]:
        """The loads at the end of a phase: medians of its last samples."""
        samples = [sample for sample in self.samples if sample.phase == phase][-8:]
        if not samples:
            return {"max_load": float("nan"), "spread": float("nan")}
        return {
            "max_load": float(np.median([sample.max_load for sample in samples])),
            "spread": float(np.median([sample.spread for sample in samples])),
        }

    def as_json(self) -> dict[str, Any]:
        return {
            "before": self.level("skewed"), "after": self.level("trimmed"), "migrations": self.migrations,
            "notifications": {
                "delivered": self.delivered, "lost": self.lost, "doubled": self.doubled, "late": self.late,
            },
            "phases": {name: self.level(name) for name in dict.fromkeys(sample.phase for sample in self.samples)},
            "served_again_s": self.served_again_s, "clients": self.script.clients,
        }  # fmt: skip


def draw(progress: Progress, path: Path) -> None:
    """Loads of brokers, their spread, and notifications, over time."""
    from trimtab.lab import plots

    sheet, panels = plots.figure(3, 1, width=9.0, height=2.2)
    loads, spread, notifications = panels[:, 0]
    at = [sample.at_s for sample in progress.samples]
    names = sorted({name for sample in progress.samples for name in sample.brokers})
    for name in names:
        loads.plot(at, [sample.brokers.get(name, np.nan) / 1000 for sample in progress.samples], label=name, lw=1.4)
    loads.set_ylabel("load, kB/s")
    loads.legend(ncol=len(names), fontsize=8, loc="upper right")
    spread.plot(at, [sample.spread for sample in progress.samples], color="#d1495b", lw=1.6)
    spread.set_ylabel("spread of loads")
    spread.set_ylim(bottom=0.0)
    if len(at) > 1:
        rate = np.diff([sample.delivered for sample in progress.samples]) / np.maximum(np.diff(at), 1e-9)
        notifications.fill_between(at[1:], rate, step="pre", color="#30638e", alpha=0.6, linewidth=0)
    notifications.set_ylabel("notifications/s")
    notifications.set_xlabel("seconds")
    for panel in (loads, spread, notifications):
        for when, _ in progress.marks:
            panel.axvline(when, color="black", lw=0.8, ls=":")
        panel.set_xlim(min([when for when, _ in progress.marks], default=0.0), max(at, default=1.0))
    for when, name in progress.marks:
        loads.text(when, loads.get_ylim()[1], f" {name}", fontsize=7, va="bottom", rotation=20)
    plots.save(sheet, path)
