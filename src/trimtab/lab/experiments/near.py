"""Broker selection by latency: the policies that the experiments ``mmog`` and ``uav`` compare."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.lab.answer import ask
from trimtab.lab.embedding import Sites
from trimtab.lab.experiment import grouped, markdown_table, mean, select
from trimtab.model.problem import ROUND_TRIP, Problem
from trimtab.place.judge import judge
from trimtab.place.topic.probe import Truth

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from trimtab.lab.experiment import Row
    from trimtab.model.coordinates import Coordinates
    from trimtab.model.workload import Floats, Workload

    # A workload from coordinates of gateways and of brokers, and round-trip times from gateways to brokers.
    Make = Callable[[Coordinates | None, Coordinates | None, Floats | None], Workload]

UNLIMITED: Final = 10**9


@dataclass(frozen=True, slots=True)
class Selection:
    """A policy and what it knows of latencies."""

    policy: str
    knows: str  # serf or robust: coordinates; measured: robust, and what gateways measured; truth: everything
    probes: bool = False  # candidates are probed before a topic is placed

    @property
    def label(self) -> str:
        return f"{self.policy.split('/')[1]}, {self.knows}{', probes' if self.probes else ''}"


ORACLE: Final = Selection("topic/trim", "truth")
TRIM: Final = Selection("topic/trim", "measured", True)
CENTROID: Final = Selection("topic/centroid", "serf")
SELECTIONS: Final = (
    Selection("topic/hash", "nothing"), CENTROID, Selection("topic/all-pairs", "serf"),
    Selection("topic/centroid", "robust"), Selection("topic/all-pairs", "robust"), Selection("topic/trim", "measured"),
    TRIM, Selection("topic/all-pairs", "truth"), ORACLE,
)  # fmt: skip


def selected(make: Make, between_ms: Floats, gateway_ms: Floats, peers: int, seed: int) -> list[Row]:
    """A row for each selection, judged by the true latencies."""
    everyone = 2 * len(between_ms)
    serf = Sites.embedded(between_ms, gateway_ms, "serf", everyone, seed)  # Serf probes any member of the cluster
    robust = Sites.embedded(between_ms, gateway_ms, "robust", peers, seed)
    truth = Problem(make(None, None, gateway_ms), "topic", leg=ROUND_TRIP)
    by_robust = make(robust.gateway, robust.broker, None)
    known = {
        "nothing": truth.workload, "truth": truth.workload, "serf": make(serf.gateway, serf.broker, None),
        "robust": by_robust, "measured": replace(by_robust, rtt=make(None, None, robust.measured_ms).rtt),
    }  # fmt: skip
    rows = []
    for selection in SELECTIONS:
        probe = Truth.of(truth) if selection.probes else None
        problem = replace(truth, workload=known[selection.knows])
        answer = ask(selection.policy, problem, probe=probe, k=UNLIMITED)
        network = judge(truth, answer.placement).network
        assert network is not None
        rows.append({
            "selection": selection.label, "worst_ms": network.worst, "mean_ms": network.mean_ms,
            "violations": network.violation_ratio, "probed": float(max(probe.asked, default=0)) if probe else 0.0,
            "seconds": answer.seconds,
        })  # fmt: skip
    return rows


def table(rows: list[Row], across: str) -> str:
    """Worst case and violation ratio, by selection and by the column ``across``."""
    sizes = sorted({row[across] for row in rows})
    lines = []
    for label, part in grouped(rows, lambda row: row["selection"]).items():
        cells = []
        for size in sizes:
            here = select(part, **{across: size})
            cells.append(f"{100 * mean(here, 'violations'):.2f} ({max(row['worst_ms'] for row in here):.0f})")
        lines.append((label, *cells))
    columns = [f"violating pairs, % (worst case, ms) by {across}", *(str(size) for size in sizes)]
    return markdown_table(columns, lines)


def ratio(rows: list[Row], one: Selection, other: Selection, **where: Any) -> float:
    """Violations of one selection over those of another; 1 if both have none."""
    these, those = (mean(rows, "violations", selection=each.label, **where) for each in (one, other))
    return these / those if those > 0.0 else (1.0 if these == 0.0 else float("inf"))


def draw(rows: list[Row], across: str, bound_ms: float, path: Path) -> None:
    """Left: the worst case, as in the paper's panel a; right: the violation ratio, as in its panel b."""
    from trimtab.lab import plots

    shown = [Selection("topic/hash", "nothing"), CENTROID, Selection("topic/all-pairs", "serf"), TRIM, ORACLE]
    sheet, panels = plots.figure(1, 2, width=4.6, height=3.2)
    for selection in shown:
        part = select(rows, selection=selection.label)
        sizes = sorted({row[across] for row in part})
        name = "oracle" if selection is ORACLE else selection.policy
        label = "oracle (true latencies)" if selection is ORACLE else selection.label
        worst = [max(row["worst_ms"] for row in select(part, **{across: size})) for size in sizes]
        ratios = [100 * mean(part, "violations", **{across: size}) for size in sizes]
        plots.line(panels[0][0], sizes, worst, name, label=label)
        plots.line(panels[0][1], sizes, ratios, name, label=label)
    panels[0][0].axhline(bound_ms, color="black", linewidth=0.8, linestyle=":")
    panels[0][0].set_ylabel("worst case, ms")
    panels[0][1].set_ylabel("violating pairs, %")
    panels[0][1].set_yscale("symlog", linthresh=0.1)
    for panel in panels[0]:
        panel.set_xlabel(across)
    panels[0][0].legend(fontsize=7)
    plots.save(sheet, path)


def distinct_cities(rtt_ms: Floats, count: int, rng: np.random.Generator) -> Sequence[int]:
    """Nodes of a real network that could be cities of one region: nodes near a common centre, in different places."""
    both = np.fmin(rtt_ms, rtt_ms.T)
    near = np.nan_to_num(both, nan=np.inf) <= REACH_MS
    centre = int(near.sum(axis=1).argmax())
    chosen: list[int] = []
    for node in rng.permutation(np.flatnonzero(near[centre])).tolist():
        if all(both[node, other] >= APART_MS for other in chosen):  # also leaves out pairs without a measurement
            chosen.append(node)
    return chosen[:count]


REACH_MS: Final = 60.0  # from the centre of the region to its cities, round trip
APART_MS: Final = 2.0  # between two cities
