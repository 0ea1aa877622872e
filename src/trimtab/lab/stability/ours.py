"""The controller in virtual time. It is the same code that runs over a live fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.control.plan_runner import PlanRunner
from trimtab.fleet.protocol.plans import FAILED, MOVED, Plan
from trimtab.lab.stability.case import PER_CORE
from trimtab.observe.snapshot import Snapshot, Usage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.control.view import View
    from trimtab.lab.stability.case import Case
    from trimtab.lab.stability.fleet import Observation
    from trimtab.model.workload import Rows

    Flags = NDArray[np.bool_]

DETECT_S: Final = 1  # time until the controller knows that a broker is dead


class Ours:
    """Trimtab's controller as a balancer of cases."""

    name = "trimtab"

    def __init__(self, case: Case, policy: str = "trim") -> None:
        self._case = case
        self.runner = PlanRunner(replace(case.settings, policy=policy))
        self.period_s = int(case.settings.period_s)
        self._observation: Observation | None = None
        self._dead_since: dict[int, int] = {}
        self._due: dict[tuple[int, int], int] = {}  # key and target -> step of the plan, this second

    def look(self, observation: Observation) -> None:
        self._observation = observation
        self._decide(observation.second, observation.home, observation.alive)

    def _decide(self, second: int, home: Rows, alive: Flags) -> None:
        decision = self.runner.look(float(second), self._view(home, alive))
        if isinstance(decision, Plan):
            self.runner.begin(float(second), decision)

    def _view(self, home: Rows, alive: Flags) -> View:
        assert self._observation is not None
        observation, case = self._observation, self._case
        pairs = zip(observation.load.tolist(), observation.messages.tolist(), strict=True)
        usage = {
            f"b{row}": Usage(load, messages, cores=messages / PER_CORE) for row, (load, messages) in enumerate(pairs)
        }
        workload = case.workload(observation.rate)
        recent = None if case.latency_ms is None else case.workload(observation.recent).topics.rate
        snapshot = Snapshot(float(observation.at), workload, usage, observation.unsure, recent=recent)
        return case.view(snapshot, home, alive)

    def orders(self, second: int, home: Rows, alive: Flags) -> list[tuple[int, int]]:
        for broker in np.flatnonzero(~alive & (np.bincount(home, minlength=len(alive)) > 0)).tolist():
            self._dead_since.setdefault(broker, second)
        for broker in [dead for dead in self._dead_since if alive[dead]]:
            del self._dead_since[broker]
        if self._observation and any(second == since + DETECT_S for since in self._dead_since.values()):
            self._decide(second, home, alive)
        self.runner.throttle.adjust(0.0, float(second))
        progress = self.runner.progress
        steps = {row: progress.plan.steps[row] for row in self.runner.due()} if progress else {}
        self._due = {(self._case.rows[step.key], int(step.target[1:])): row for row, step in steps.items()}
        return list(self._due)

    def done(self, second: int, moved: list[tuple[int, int]], failed: list[tuple[int, int]]) -> None:
        for order, row in self._due.items():
            self.runner.set_state(float(second), row, FAILED if order in failed else MOVED)
        if self.runner.finished():
            self.runner.end(float(second))
