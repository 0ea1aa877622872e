"""The verdict on a plan: its measured effect compared with the predicted one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.control.resources import binding_candidates
from trimtab.fleet.protocol.plans import Levels, Outcome

if TYPE_CHECKING:
    from trimtab.control.goals.goal import Goal
    from trimtab.control.resources import Resource
    from trimtab.control.settings import Settings
    from trimtab.control.view import View
    from trimtab.fleet.protocol.plans import Plan

WORSE: Final = 1.1  # a reported spread above this multiple of the earlier one counts as worse
ENOUGH: Final = 0.5  # share of the predicted gain that must be measured
CLOSE: Final = 1e-9


@dataclass(slots=True)
class Verdict:
    plan: Plan
    ended: float  # time of the plan's end
    reported_before: Levels | None = None  # the other columns are those of ``Outcome``
    measured: Levels | None = None
    reported_after: Levels | None = None
    binding: float | None = None
    helped: bool | None = None
    unmeasured: str = ""

    def added_to(self, outcome: Outcome | None) -> Outcome:
        """The outcome of the plan's steps with this verdict."""
        return msgspec.structs.replace(
            outcome or Outcome(), reported_before=self.reported_before, measured=self.measured,
            reported_after=self.reported_after, binding=self.binding, helped=self.helped, unmeasured=self.unmeasured,
        )  # fmt: skip

    def measure(self, view: View, goal: Goal, settings: Settings) -> bool:
        """Compare the plan's prediction with a measurement after its end. Returns whether the plan helped."""
        self.measured, self.reported_after = Levels.of(view.load()), reported(view)
        if (current := current_binding(view, self.plan, settings)) is not None:
            self.binding = current[0]
        self.helped = goal.helped(self, view, settings)
        return self.helped


def spread_fell(verdict: Verdict, settings: Settings) -> bool:
    """Whether at least half of the predicted fall of the spread was measured, and brokers' reports do not contradict.

    Brokers' reports include the traffic between processes of the fleet. So the reported spread need not fall by as
    much, but must not have risen.
    """
    plan, measured = verdict.plan, verdict.measured
    assert measured is not None
    promised = plan.before.spread - plan.predicted.spread  # negative for a plan that was rolled back
    before, after = verdict.reported_before, verdict.reported_after
    worse = (
        promised > 0.0 and before is not None and after is not None
        and after.spread > max(WORSE * before.spread, settings.alpha)
    )  # fmt: skip
    return not worse and measured.spread <= max(plan.predicted.spread + ENOUGH * abs(promised), settings.alpha)


def worth_it(before: Levels, then: Levels, gain: float, alpha: float = 0.0) -> bool:
    """Whether a change of levels is worth its moves. Neither the spread nor the highest load may rise.

    One of these must hold: the spread falls by the share ``gain`` of itself (of 0.5, if it is less than that); the
    highest load falls by the share ``gain / 2``; the spread falls from above ``alpha`` to ``alpha`` or less.
    """
    if then.spread > before.spread * (1 + CLOSE) or then.max_load > before.max_load * (1 + CLOSE):
        return False
    less = gain * max(before.spread, 0.5)
    if then.spread <= before.spread - less or then.max_load <= before.max_load * (1 - gain / 2):
        return True
    return then.spread <= alpha < before.spread


def current_binding(view: View, plan: Plan, settings: Settings) -> tuple[float, Resource] | None:
    """The share in use now of the resource that was scarcest when the plan was made."""
    candidates = binding_candidates(view, settings.overload, settings.messages)
    brokers, binding = list(view.brokers), plan.binding
    if binding is None or binding.broker not in brokers:
        return None
    row = brokers.index(binding.broker)
    matches = (resource for resource in candidates if resource.name == binding.resource)
    return next(((float(resource.share()[row]), resource) for resource in matches), None)


def reported(view: View) -> Levels | None:
    """How even the loads are by the brokers' own reports, if all of them report."""
    load = view.measured()
    return Levels.of(load) if load is not None else None
