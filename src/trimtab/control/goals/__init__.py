"""Goals of the controller in strict order: an earlier goal may veto any change that a later one proposes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trimtab.control.goals.evenness import Evenness
from trimtab.control.goals.gathering import Gathering
from trimtab.control.goals.limits import Limits
from trimtab.control.goals.nearness import Nearness
from trimtab.control.goals.promises import Promises
from trimtab.control.goals.served import Served
from trimtab.control.goals.thrift import Thrift

if TYPE_CHECKING:
    from trimtab.control.goals.goal import Goal
    from trimtab.fleet.protocol.plans import Plan

EVENNESS: Final = Evenness()
GOALS: Final[tuple[Goal, ...]] = (Served(), Limits(), Promises(), Thrift(), EVENNESS, Gathering(), Nearness())


def goal_of(plan: Plan) -> Goal:
    """The goal that proposed the plan. A plan made by hand is judged as one of evenness."""
    return next((goal for goal in GOALS if goal.name == plan.goal), EVENNESS)
