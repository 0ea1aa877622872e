"""Runs plans: when to decide, which plan is under way, which of its steps are due, how many moves run at once.

There is no clock and no network in it, so the same code controls a live fleet and one in virtual time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.control.loop import Loop
from trimtab.control.throttle import FIRST, Throttle
from trimtab.fleet.protocol.plans import FAILED, MOVED, MOVING, WAITING, Progress
from trimtab.model.placement import UNPLACED

if TYPE_CHECKING:
    from collections.abc import Collection

    from trimtab.control.decide import NoPlan
    from trimtab.control.settings import Settings
    from trimtab.control.view import View
    from trimtab.fleet.protocol.plans import Plan
    from trimtab.model.key import Key

EXECUTORS: Final = 64


class PlanRunner:
    """``look`` decides. The executor calls ``begin``, carries out the steps that are ``due``, and sets their state."""

    def __init__(self, settings: Settings, number: int = 0, progress: Progress | None = None) -> None:
        self.settings = settings
        self.loop = Loop(settings, number)
        self.progress = progress
        self.beside: list[Progress] = []  # urgent plans, and replaced ones that still have moves under way
        self.throttle = Throttle(settings.latency_ms, EXECUTORS)

    def look(
        self, now: float, view: View, *, paused: bool = False, cordoned: Collection[str] = ()
    ) -> Plan | NoPlan | None:
        """Decide what to do now, if anything; and drop the remaining steps of a plan that no longer helps."""
        progress = self.progress
        if progress is None:
            return self.loop.step(now, view, paused=paused, cordoned=cordoned, moving=self.moving())
        left = [*progress.of(WAITING), *progress.of(MOVING)]
        grown = self.loop.trends.look(view)
        if not progress.by_hand and progress.count(WAITING) and not self.loop.still_helps(grown, progress.plan, left):
            progress.drop("its remaining steps would no longer help")
        pending = {step.key for step in left}
        lost = (view.keys[row] for row in np.flatnonzero(view.current == UNPLACED).tolist())
        rehoming = all(key in pending for key in lost)
        return self.loop.step(
            now, view, busy=True, paused=paused, rehoming=rehoming, cordoned=cordoned, moving=self.moving()
        )

    def moving(self) -> list[Key]:
        """Keys whose moves are under way."""
        plans = self.beside if self.progress is None else [self.progress, *self.beside]
        return [step.key for progress in plans for state in (WAITING, MOVING) for step in progress.of(state)]

    def begin(self, now: float, plan: Plan, *, by_hand: bool = False) -> Progress | None:
        """Start a plan. Returns the plan that it replaces, if one was under way."""
        if plan.aside:
            self.beside.append(Progress(plan, now))
            return None
        replaced = self.progress
        if replaced is not None:  # keys of a dead broker go first, and the others are planned anew
            replaced.drop("the keys of a dead broker go first")
            self._end(now, replaced)
            self.beside.append(replaced)
        self.progress = Progress(plan, now, by_hand)
        self.loop.began()
        lost = any(not step.source for step in plan.steps)  # keys without a broker have no deliveries to slow down
        self.throttle = Throttle(self.settings.latency_ms, EXECUTORS, EXECUTORS if lost else FIRST)
        return replaced

    def due(self, *, paused: bool = False) -> list[int]:
        """Rows of the steps to begin now. While ``paused``, only plans made by hand or serving lost keys go on."""
        progress = self.progress
        if progress is None or (
            paused and not progress.by_hand and all(step.source for step in progress.plan.steps)
        ):  # fmt: skip
            return []
        if progress.count(WAITING) and self.loop.is_hopeless(progress.of(FAILED)):
            progress.drop("too many of its moves failed")
        return progress.rows(WAITING)[: max(0, self.throttle.at_once - progress.count(MOVING))]

    def set_state(self, now: float, row: int, state: str, of: Progress | None = None) -> None:
        """Set the state of a step of the plan under way, or of the plan ``of``."""
        progress = of or self.progress
        assert progress is not None
        progress.states[row] = state
        if state == MOVING:
            self.loop.moves.ordered(progress.plan.steps[row])
        if state == MOVED and progress.plan.aside:
            self.loop.followed(now, progress.plan.steps[row])
        elif state == MOVED:
            self.loop.moved(now, [progress.plan.steps[row]])

    def finished(self) -> Progress | None:
        """The plan under way, if all of its steps are over."""
        return self.progress if self.progress is not None and self.progress.over else None

    def end(self, now: float) -> None:
        """End the plan under way."""
        if self.progress is not None:
            self._end(now, self.progress)
            self.progress = None

    def _end(self, now: float, progress: Progress) -> None:
        progress.ended = now
        self.loop.ended(now, progress.plan, progress.of(FAILED))
