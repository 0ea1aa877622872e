"""When to decide, which plan is under way, which of its steps are due, and how many moves run at once.

No clock and no network in it: a live fleet and one in virtual time are controlled by the same code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.control.loop import Loop
from trimtab.control.progress import FAILED, MOVED, MOVING, WAITING, Progress
from trimtab.control.throttle import FIRST, Throttle
from trimtab.model.placement import UNPLACED

if TYPE_CHECKING:
    from collections.abc import Collection

    from trimtab.control.decide import NoPlan
    from trimtab.control.plan import Plan
    from trimtab.control.settings import Settings
    from trimtab.control.view import View

EXECUTORS: Final = 64


class PlanRunner:
    """``look`` decides; the executor says ``begin``, asks which steps are ``due``, and reports what came of each."""

    def __init__(self, settings: Settings, number: int = 0, progress: Progress | None = None) -> None:
        self.settings = settings
        self.loop = Loop(settings, number)
        self.progress = progress
        self.trailing: list[Progress] = []  # plans that were replaced, some of whose moves are on their way still
        self.throttle = Throttle(settings.latency_ms, EXECUTORS)

    def look(
        self, now: float, view: View, *, paused: bool = False, cordoned: Collection[str] = ()
    ) -> Plan | NoPlan | None:
        """What to do now, if anything; and drop the rest of a plan that no longer helps."""
        doing = self.progress
        if doing is None:
            return self.loop.step(now, view, paused=paused, cordoned=cordoned)
        left = [*doing.of(WAITING), *doing.of(MOVING)]
        if not doing.by_hand and doing.count(WAITING) and not self.loop.still_helps(view, doing.plan, left):
            doing.drop("the rest of it would no longer help")
        going = {step.key for step in left}
        lost = (view.keys[row] for row in np.flatnonzero(view.current == UNPLACED).tolist())
        rehoming = all(key in going for key in lost)
        return self.loop.step(now, view, busy=True, paused=paused, rehoming=rehoming, cordoned=cordoned)

    def begin(self, now: float, plan: Plan, *, by_hand: bool = False) -> Progress | None:
        """From now on it is under way; what was so before, if anything, is over."""
        before = self.progress
        if before is not None:  # keys of a dead broker go first, and the rest is planned anew
            before.drop("a broker is not alive, and its keys go first")
            self._end(now, before)
            self.trailing.append(before)
        self.progress = Progress(plan, now, by_hand)
        lost = any(not each.source for each in plan.steps)  # they have nothing to lose
        self.throttle = Throttle(self.settings.latency_ms, EXECUTORS, EXECUTORS if lost else FIRST)
        return before

    def due(self, *, paused: bool = False) -> list[int]:
        """Steps to begin now. While ``paused``, only those of plans that people asked for, or that serve lost keys."""
        doing = self.progress
        if doing is None or (paused and not doing.by_hand and all(each.source for each in doing.plan.steps)):
            return []
        if doing.count(WAITING) and self.loop.is_hopeless(doing.of(FAILED)):
            doing.drop("too many of its moves failed")
        return doing.rows(WAITING)[: max(0, self.throttle.at_once - doing.count(MOVING))]

    def came_of(self, now: float, row: int, state: str, of: Progress | None = None) -> None:
        """A step has begun, is done, or has failed; of the plan that is under way, if no other is named."""
        plan = of or self.progress
        assert plan is not None
        plan.states[row] = state
        if state == MOVED:
            self.loop.moved(now, [plan.plan.steps[row]])

    def finished(self) -> Progress | None:
        """The plan that was under way, if nothing of it is left to do."""
        return self.progress if self.progress is not None and self.progress.over else None

    def end(self, now: float) -> None:
        """Nothing is under way any more."""
        if self.progress is not None:
            self._end(now, self.progress)
            self.progress = None

    def _end(self, now: float, doing: Progress) -> None:
        doing.ended = now
        self.loop.ended(now, doing.plan, doing.of(FAILED))
