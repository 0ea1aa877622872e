"""Runs a plan of load tests on a broker. Every finished run is in a file at once, so a plan can be resumed.

The folder has ``runs.jsonl``: first a line about the machine, then a line for each run. A line is written when its run
is complete, and a line that was cut off is dropped, so the file holds whole runs only, however the plan was ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.lab.profile.bench import open_bench
from trimtab.lab.profile.load import machine_s
from trimtab.lab.profile.trial import Trial, run_trial

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from trimtab.lab.profile.design import Run

JOURNAL: Final = "runs.jsonl"
VERSION: Final = 1  # of its lines
QUIET: Final = 0.2  # quantile of other work in all runs that counts as usual
DISTURBED: Final = 0.1  # cores of other work above that: half a core doubles most p90s
ATTEMPTS: Final = 3  # at a run that is disturbed
PROBE_S, PROBES = 0.5, 20  # the machine should be idle before a run; so often is that checked


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine of the broker, as far as a profile depends on it."""

    name: str
    cores: int
    processor: str

    @classmethod
    def here(cls) -> Machine:
        return cls(platform.node() or "machine", os.cpu_count() or 1, _processor())

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "cores": self.cores, "processor": self.processor}


class Journal:
    """The finished runs of a folder."""

    def __init__(self, folder: Path, machine: Machine, tolerated: float = DISTURBED) -> None:
        self._path = folder / JOURNAL
        self.tolerated = tolerated  # cores of other work above the usual
        self.machine = machine
        self.trials: list[Trial] = []
        if self._path.exists():
            self._read()

    def _read(self) -> None:
        try:
            lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{self._path} cannot be read ({error}); choose another --out") from None
        complete = [line for line in lines if line.endswith("\n")]
        if len(complete) < len(lines):  # the process was killed while it wrote the last line
            part = self._path.with_suffix(".partial")
            part.write_text("".join(complete))
            os.replace(part, self._path)
        for number, line in enumerate(complete, 1):
            try:
                values = json.loads(line)
                if number == 1:
                    self._check(values)
                else:
                    self.trials.append(Trial.from_json(values))
            except BadInput:
                raise
            except (ValueError, TypeError, KeyError, AttributeError):
                text = f"{self._path}, line {number}, is not a run of trimtab profile; choose another --out"
                raise BadInput(text) from None

    def _check(self, about: dict[str, Any]) -> None:
        if about.get("version") != VERSION:
            found = f"{self._path} is of version {about.get('version')}, but must be of version {VERSION}"
            raise BadInput(f"{found}: measure again into another --out")
        known = about["machine"]
        if (known["processor"], known["cores"]) != (self.machine.processor, self.machine.cores):
            here, there = (f"{m['cores']} x {m['processor']}" for m in (self.machine.as_json(), known))
            raise BadInput(f"{self._path} has runs of another machine ({there}; here: {here}): choose another --out")

    def find(self, run: Run, seconds: float) -> Trial | None:
        """The finished run, if other work on the machine has not disturbed it."""
        wanted, limit = (run.colocation, run.seed, seconds), self._limit()
        same = (trial for trial in self.trials if (trial.colocation, trial.seed, trial.seconds) == wanted)
        return next((trial for trial in same if trial.foreign_cores is None or trial.foreign_cores <= limit), None)

    def _limit(self) -> float:
        """Cores of other work in a quiet run, at most. Some work is usual, as of the other clients of a fleet."""
        known = [trial.foreign_cores for trial in self.trials if trial.foreign_cores is not None]
        return (float(np.quantile(known, QUIET)) if known else 0.0) + self.tolerated

    @property
    def disturbed(self) -> int:
        """Runs that do not count."""
        limit = self._limit()
        return sum(trial.foreign_cores is not None and trial.foreign_cores > limit for trial in self.trials)

    def add(self, trial: Trial) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            if file.tell() == 0:
                print(json.dumps({"version": VERSION, "machine": self.machine.as_json()}), file=file)
            print(json.dumps(trial.as_json()), file=file, flush=True)
            os.fsync(file.fileno())
        self.trials.append(trial)

    def of(self, plan: Sequence[Run], seconds: float) -> list[Trial]:
        """The finished runs of a plan, in its order."""
        found = (self.find(run, seconds) for run in plan)
        return [trial for trial in found if trial is not None]


@dataclass(frozen=True, slots=True)
class Where:
    """The broker to measure; without a home, one of a fleet that is started for this."""

    home: Path | None = None
    broker: str | None = None
    cores: int | None = None  # of the broker's machine, if that is not this machine

    def machine(self) -> Machine:
        if self.cores is None:
            return Machine.here()
        name = self.broker or "broker"
        return Machine(name, self.cores, f"machine of broker {name}")


async def measure(
    plan: Sequence[Run], seconds: float, journal: Journal, where: Where, progressed: Callable[[int, int], None],
    stop_after_s: float = float("inf"),
) -> list[Trial]:  # fmt: skip
    """Carry out the runs that the journal does not have yet. Returns all finished runs of the plan.

    A run that other work has disturbed is repeated a few times, after all others. No run is begun later than
    ``stop_after_s`` after the start.
    """
    began = time.monotonic()

    def waiting() -> list[Run]:
        left = [run for run in plan if journal.find(run, seconds) is None]
        progressed(len(plan) - len(left), len(plan))
        return left

    if waiting():
        async with open_bench(where.home, where.broker) as bench:
            if not bench.pids and where.cores is None:
                found = f"broker '{bench.broker}' does not run on this machine"
                raise BadInput(f"{found}: give the number of cores of its machine with --cores")
            for _ in range(ATTEMPTS):
                for run in waiting():
                    if time.monotonic() - began >= stop_after_s:
                        return journal.of(plan, seconds)
                    if where.home is None:
                        await idle(journal.tolerated)
                    journal.add(await run_trial(bench, plan.index(run), run.colocation, run.seed, seconds))
                    waiting()
    return journal.of(plan, seconds)


async def idle(tolerated: float) -> None:
    """Wait for the end of other work on this machine, but not for long."""
    for _ in range(PROBES):
        before, at = machine_s(), time.monotonic()
        await asyncio.sleep(PROBE_S)
        if not (machine_s() - before) / (time.monotonic() - at) > tolerated + DISTURBED:  # also without /proc/stat
            return


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
