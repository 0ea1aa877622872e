"""``client/trim``: homes by load (``by_load``), by delay (``by_delay``), or by both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from trimtab.errors import BadKnob
from trimtab.model.placement import Bound, Placement
from trimtab.place.client import by_delay, by_load
from trimtab.place.client.delays import has_delays
from trimtab.place.client.policy import ClientPolicy, nowhere
from trimtab.place.stop import NO_LIMIT, Stop

if TYPE_CHECKING:
    from trimtab.model.problem import Problem

OBJECTIVES: Final = ("load", "delay", "both")


@dataclass(frozen=True, slots=True)
class Trim(ClientPolicy):
    """Least maximum load, or least delay, or least delay among what is nearly level.

    Load: with a current placement and no budget, as few clients move as levelling takes. With a budget (a share of the
    clients), those move who bring most: clients that want the same get together, and the total load falls. With no
    current placement everybody may go anywhere. Delay: everybody may, or as many as the budget says; with no effort at
    all, newcomers get a home and nobody else moves.
    """

    objective: str = "load"
    budget: float | None = None
    load_limit: float = 1.1  # objective both: the highest level may be this many times the least
    tolerance: float = 5e-4  # the highest level may be above the mean by this share of it
    effort: float = 1.0
    seed: int = 0
    stop: Stop = NO_LIMIT

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise BadKnob("client/trim", "objective", self.objective, f"one of {', '.join(OBJECTIVES)}")
        if self.budget is not None and not 0.0 <= self.budget <= 1.0:
            raise BadKnob("client/trim", "budget", self.budget, "a share of the clients, from 0 to 1")
        if not 1.0 <= self.load_limit < float("inf"):
            raise BadKnob("client/trim", "load_limit", self.load_limit, "1 or more")
        for knob in ("tolerance", "effort"):
            if not 0.0 <= getattr(self, knob) < float("inf"):
                raise BadKnob("client/trim", knob, getattr(self, knob), "zero or more")

    def place(self, problem: Problem) -> Placement:
        if not problem.brokers:
            bound = Bound("no brokers", 0.0, "max_load" if self.objective == "load" else "delay")
            return Placement("client", nowhere(problem.units), bound)
        if self.objective == "load":
            return by_load.place(problem, self)
        return by_delay.place(problem, self)

    def warm_up(self, problem: Problem) -> None:
        """Compile what only other knobs, and a problem with a current placement, reach."""
        known = replace(problem, current=self.place(problem))
        for objective in OBJECTIVES if has_delays(problem) else ("load",):
            asked = replace(self, objective=objective)
            asked.place(problem)
            asked.place(known)
            replace(asked, budget=0.5).place(known)
