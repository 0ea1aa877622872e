"""The controller in virtual time: the same code that runs over a live fleet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.control.loop import Loop
from trimtab.control.plan import Plan, Step
from trimtab.control.throttle import FIRST, Throttle
from trimtab.control.view import View
from trimtab.observe.snapshot import Snapshot, Usage

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.lab.stability.case import Case
    from trimtab.lab.stability.fleet import Seen
    from trimtab.model.workload import Rows

    Flags = NDArray[np.bool_]

DETECT_S: Final = 1  # until a dead broker is known to be dead
EXECUTORS: Final = 64


class Ours:
    name = "trimtab"

    def __init__(self, case: Case, policy: str = "trim") -> None:
        self._case = case
        self.settings = replace(case.settings, policy=policy)
        self.period_s = int(self.settings.period_s)
        self.loop = Loop(self.settings)
        self._throttle = Throttle(self.settings.latency_ms, EXECUTORS)
        self._plan: Plan | None = None
        self._left: list[Step] = []
        self._failed: list[Step] = []
        self._seen: Seen | None = None
        self._dead_since: dict[int, int] = {}

    def look(self, seen: Seen) -> None:
        self._seen = seen
        self._step(seen.second, seen.home, seen.alive)

    def _view(self, home: Rows, alive: Flags) -> View:
        assert self._seen is not None
        seen, case = self._seen, self._case
        usage = {f"b{row}": Usage(float(load)) for row, load in enumerate(seen.load)}
        snapshot = Snapshot(float(seen.at), case.workload(seen.rate), usage)
        homes = {f"c{client}": f"b{broker}" for client, broker in enumerate(home.tolist())}
        return View.of(snapshot, homes, [f"b{row}" for row in np.flatnonzero(alive)])

    def _step(self, second: int, home: Rows, alive: Flags) -> None:
        view = self._view(home, alive)
        made = self.loop.step(float(second), view, busy=self._plan is not None)
        if isinstance(made, Plan):
            if self._plan is not None:  # clients of a dead broker go first, and the rest is planned anew
                self._end(second)
            self._plan, self._left = made, list(made.steps)
            lost = any(not each.source for each in made.steps)  # they have nothing to lose
            self._throttle = Throttle(self.settings.latency_ms, EXECUTORS, EXECUTORS if lost else FIRST)
        elif self._plan is not None and not self.loop.still_helps(view, self._left):
            self._end(second)

    def orders(self, second: int, home: Rows, alive: Flags) -> list[tuple[int, int]]:
        for broker in np.flatnonzero(~alive & (np.bincount(home, minlength=len(alive)) > 0)).tolist():
            self._dead_since.setdefault(broker, second)
        for broker in [each for each in self._dead_since if alive[each]]:
            del self._dead_since[broker]
        if self._seen and any(second == since + DETECT_S for since in self._dead_since.values()):
            self._step(second, home, alive)
        some, self._left = self._left[: self._throttle.told(0.0)], self._left[self._throttle.at_once :]
        return [(int(each.client[1:]), int(each.target[1:])) for each in some]

    def done(self, second: int, moved: list[tuple[int, int]], failed: list[tuple[int, int]]) -> None:
        if self._plan is None:
            return
        known = {(each.client, each.target): each for each in self._plan.steps}
        self.loop.moved(float(second), [known[f"c{client}", f"b{target}"] for client, target in moved])
        self._failed += [known[f"c{client}", f"b{target}"] for client, target in failed]
        if not self._left or self.loop.is_hopeless(self._failed):
            self._end(second)

    def _end(self, second: int) -> None:
        assert self._plan is not None
        self.loop.ended(float(second), self._plan, self._failed)
        self._plan, self._left, self._failed = None, [], []
