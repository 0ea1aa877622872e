"""Runs a policy on a problem, times it, and has the judge compute the figures of its placement."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from trimtab.clock import Deadline
from trimtab.errors import MissingColumn
from trimtab.lab.worlds.colocation import Colocation
from trimtab.lab.worlds.maxdata import MaxData
from trimtab.lab.worlds.mmog import Mmog
from trimtab.lab.worlds.reloc import RelocField
from trimtab.model.problem import Problem
from trimtab.place.client.delays import refuse_insufficient_storage
from trimtab.place.judge import judge
from trimtab.place.knobs import knobs as knobs_of
from trimtab.place.registry import family_bound, find_family, policy_with
from trimtab.place.stop import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.lab.worlds import World
    from trimtab.model.judgement import Judgement
    from trimtab.model.placement import Bound, Placement

SMALL: Final[dict[str, tuple[World, ...]]] = {  # small worlds that trigger compilation
    "link": (MaxData(publishers=12, subscribers=8, edges=3, rates="low", machines=3, bandwidth=60.0),),
    "client": (RelocField(topics=4, grid=2),),
    "topic": (Colocation(topics=8), Mmog(cities=3, clients=16)),
}


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A policy's placement, the time it took, and its figures."""

    policy: str
    seed: int
    seconds: float
    placement: Placement
    judgement: Judgement
    bound: Bound  # the bound that the policy proved, or the family's quick bound
    knobs: Mapping[str, Any]  # knobs of the policy that were set
    cpu_s: float = 0.0  # CPU time it took, which other work on the machine changes little

    @property
    def achieved(self) -> float:
        """The figure that the bound is about."""
        return self.judgement.figure(self.bound.figure)

    @property
    def proven_optimal(self) -> bool:
        partial = self.bound.figure == "brokers_used" and self.judgement.unplaced > 0
        return self.judgement.feasible and not partial and self.bound.proves(self.achieved)

    def gap(self, bound: Bound | None = None) -> float:
        """The distance between the bound and the answer's figure, as a share of the bound."""
        of = bound or self.bound
        return of.gap(self.judgement.figure(of.figure))

    def as_json(self) -> dict[str, Any]:
        return {
            "policy": self.policy,
            "seed": self.seed,
            "knobs": dict(self.knobs),
            "seconds": self.seconds,
            "bound": {
                "kind": self.bound.kind,
                "figure": self.bound.figure,
                "value": self.bound.value,
                "proven_optimal": self.proven_optimal,
                "gap": self.gap(),
            },
            "judgement": self.judgement.as_json(),
        }


def ask(name: str, problem: Problem, *, time_limit_s: float | None = None, **knobs: Any) -> Answer:
    """Run the policy ``family/name`` on the problem. Knobs that the policy does not have are ignored.

    ``seconds`` of the answer does not include the compilation of kernels.
    """
    warm_up(name)
    if knobs.get("objective") in ("delay", "both"):
        refuse_insufficient_storage(problem)
    stop = Deadline(time_limit_s) if time_limit_s is not None else NO_LIMIT
    start, cpu_start = time.perf_counter(), time.process_time()
    placement = policy_with(name, stop=stop, **knobs).place(problem)
    seconds, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    bound = placement.bound or family_bound(name.split("/")[0], problem, knobs.get("objective"))
    own = {knob.name for knob in knobs_of(name)}
    used = {knob: value for knob, value in knobs.items() if knob in own}
    return Answer(name, knobs.get("seed", 0), seconds, placement, judge(problem, placement), bound, used, cpu_s)


@cache
def warm_up(name: str) -> None:
    """Compile every kernel of a policy, or load it from disk: with a small problem and the policy's own warm-up."""
    family = name.split("/")[0]
    policy = policy_with(name, effort=0.01)
    for world in SMALL[family]:
        problem = Problem(world.make(0), find_family(family).unit)
        with suppress(MissingColumn):  # a policy of topics needs processing times, network latencies or both
            policy.place(problem)
            if hasattr(policy, "warm_up"):
                policy.warm_up(problem)
