"""``client/trim``: homes by load (``by_load``), by delay (``by_delay``), or by both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from trimtab.model.placement import Bound, Placement
from trimtab.place.client import by_delay, by_load
from trimtab.place.client.delays import has_delays
from trimtab.place.client.policy import ClientPolicy, nowhere
from trimtab.place.knobs import check, knob
from trimtab.place.stop import EFFORT, NO_LIMIT, Stop

if TYPE_CHECKING:
    from trimtab.model.problem import Problem

OBJECTIVES: Final = ("load", "delay", "both")


@dataclass(frozen=True, slots=True)
class Trim(ClientPolicy):
    """Assigns clients for the least maximum load with few moves, the least delay, or both (trimtab's own).

    Load: with a current placement and no budget, the policy levels the load with as few moves as possible. With a
    budget (a share of the clients), it moves the clients with the largest gain: clients with common subscriptions are
    gathered, and the total load falls. Without a current placement, all clients are placed freely. Delay: all clients
    may move, or as many as the budget allows; with effort 0, only clients without a home are placed.
    """

    objective: str = knob(
        "load", "least maximum load, least delay, or least delay within load_limit (both)", choices=OBJECTIVES
    )
    budget: float | None = knob(
        None,
        "share of the clients that may move; none: as few as levelling takes",
        kind=float,
        least=0.0,
        most=1.0,
    )
    load_limit: float = knob(1.1, "objective both: maximum load allowed, as a multiple of the least one", least=1.0)
    tolerance: float = knob(5e-4, "maximum load allowed above the mean load, as a share of the mean", least=0.0)
    effort: float = knob(
        1.0, "amount of search; with objective delay, 0 only places clients without a home", least=0.0, most=EFFORT
    )
    seed: int = knob(0, "seed of the random draws", least=0)
    stop: Stop = NO_LIMIT

    def __post_init__(self) -> None:
        check(self)

    def place(self, problem: Problem) -> Placement:
        if not problem.brokers:
            bound = Bound("no brokers", 0.0, "max_load" if self.objective == "load" else "delay")
            return Placement("client", nowhere(problem.units), bound)
        if self.objective == "load":
            return by_load.place(problem, self)
        return by_delay.place(problem, self)

    def warm_up(self, problem: Problem) -> None:
        """Compile the kernels that are reached only with other knobs or with a current placement."""
        placed = replace(problem, current=self.place(problem))
        for objective in OBJECTIVES if has_delays(problem) else ("load",):
            policy = replace(self, objective=objective)
            policy.place(problem)
            policy.place(placed)
            replace(policy, budget=0.5).place(placed)
