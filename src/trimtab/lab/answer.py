"""Ask a policy, time it, and have the judge look at what it says."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from trimtab.clock import Deadline
from trimtab.lab.worlds.maxdata import MaxData
from trimtab.model.problem import Problem
from trimtab.place.judge import judge
from trimtab.place.registry import family_bound, find_family, policy_with
from trimtab.place.stop import NO_LIMIT

if TYPE_CHECKING:
    from trimtab.model.judgement import Judgement
    from trimtab.model.placement import Bound, Placement


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a policy decided, how long it took, and what that is worth."""

    policy: str
    seed: int
    seconds: float
    placement: Placement
    judgement: Judgement
    bound: Bound  # what the policy proved, or the family's quick bound

    @property
    def proven_optimal(self) -> bool:
        return self.judgement.feasible and self.bound.proves(self.judgement.received)

    def gap(self, bound: Bound | None = None) -> float:
        """How far below a bound the data received is, as a share of the bound."""
        limit = (bound or self.bound).value
        return max(1.0 - self.judgement.received / limit, 0.0) if limit > 0.0 else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "seed": self.seed,
            "seconds": self.seconds,
            "bound": {
                "kind": self.bound.kind,
                "value": self.bound.value,
                "proven_optimal": self.proven_optimal,
                "gap": self.gap(),
            },
            "judgement": self.judgement.as_json(),
        }


def ask(name: str, problem: Problem, *, seed: int = 0, time_limit_s: float | None = None, **knobs: Any) -> Answer:
    """Let the policy ``family/name`` answer. Compiling its kernels is not counted in ``seconds``."""
    warm_up(name)
    stop = Deadline(time_limit_s) if time_limit_s is not None else NO_LIMIT
    start = time.perf_counter()
    placement = policy_with(name, seed=seed, stop=stop, **knobs).place(problem)
    seconds = time.perf_counter() - start
    bound = placement.bound or family_bound(name.split("/")[0], problem)
    return Answer(name, seed, seconds, placement, judge(problem, placement), bound)


@cache
def warm_up(name: str) -> None:
    """Have every kernel of a policy compiled, or loaded from disk: by a small problem, and what it does not reach."""
    world = MaxData(publishers=12, subscribers=8, edges=3, rates="low", machines=3, bandwidth=60.0)
    asked = policy_with(name, effort=0.01)
    asked.place(Problem(world.make(0), find_family(name.split("/")[0]).unit))
    if hasattr(asked, "warm_up"):
        asked.warm_up()
