"""Load balancing of BAD (Nguyen et al., DEBS'19, Section 5): ``client/ldm``, ``sdm``, ``gsh``, ``multistage``.

Read as follows where Algorithm 1 slips. A move is valid if the destination's load *after* it stays below the source's
before it (the text of 5.2; the printed ``F_b' <= F_b`` always holds). Line 17 clears ``x_ib``. F, mu and cov are
computed anew after every move, and after a shuffle. If no move is valid, it ends. A plan is the difference of two
placements, so a client that moved twice has moved once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.errors import BadKnob
from trimtab.model.judgement import Load
from trimtab.place.client.instance import Instance, homes_or
from trimtab.place.client.policy import ClientPolicy
from trimtab.place.client.simple import Nearest, Random, RoundRobin
from trimtab.place.compiled import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]
    Counts = NDArray[np.int32]

INITIAL: Final[dict[str, Callable[[int], ClientPolicy]]] = {
    "nearest": lambda seed: Nearest(), "round-robin": lambda seed: RoundRobin(), "random": Random,
}  # fmt: skip
SCHEMES: Final = ("ldm", "sdm")


@dataclass(frozen=True, slots=True)
class Dynamic(ClientPolicy):
    """Stage 2: one client after the other leaves the broker of the most load, while the loads are spread by more than
    ``alpha`` and their mean is above ``beta``, in the workload's data/s.

    Stage 1, ``initial``, says where those are who have no home yet.
    """

    alpha: float = 0.15
    beta: float = 0.0
    initial: str = "nearest"
    seed: int = 0

    name: ClassVar[str]

    def __post_init__(self) -> None:
        if self.initial not in INITIAL:
            raise BadKnob(self.name, "initial", self.initial, f"one of {', '.join(INITIAL)}")
        self._refuse_below_zero("alpha", "beta")

    def _refuse_below_zero(self, *knobs: str) -> None:
        for knob in knobs:
            if not getattr(self, knob) >= 0.0:
                raise BadKnob(self.name, knob, getattr(self, knob), "zero or more")

    def by_similarity(self) -> bool:
        """Whether a client goes where most is shared, or where least is to do."""
        return False

    def homes(self, problem: Problem) -> Rows:
        instance = Instance.of(problem)
        return self._migrated(instance, homes_or(problem, INITIAL[self.initial](self.seed).homes(problem)))

    def _migrated(self, instance: Instance, home: Rows) -> Rows:
        count, load = instance.counts(home)
        migrate(
            instance.begin, instance.topic, instance.rate, instance.weight, instance.speed, instance.by_weight(), home,
            count, load, self.alpha, self.beta, self.by_similarity(),
        )  # fmt: skip
        return home


@dataclass(frozen=True, slots=True)
class Ldm(Dynamic):
    """Load-based dynamic migration (5.2): the heaviest client of the fullest broker to the emptiest."""

    name: ClassVar[str] = "client/ldm"


@dataclass(frozen=True, slots=True)
class Sdm(Dynamic):
    """Similarity-based dynamic migration (5.2): ... to that broker below the mean which shares most with it."""

    name: ClassVar[str] = "client/sdm"

    def by_similarity(self) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class Multistage(Dynamic):
    """Algorithm 1: everybody is shuffled above ``gamma`` (spread) and ``theta`` (mean load), then stage 2."""

    scheme: str = "ldm"
    gamma: float = 0.4
    theta: float = 0.0

    name: ClassVar[str] = "client/multistage"

    def __post_init__(self) -> None:
        super(Multistage, self).__post_init__()
        if self.scheme not in SCHEMES:
            raise BadKnob(self.name, "scheme", self.scheme, f"one of {', '.join(SCHEMES)}")
        self._refuse_below_zero("gamma", "theta")

    def by_similarity(self) -> bool:
        return self.scheme == "sdm"

    def _migrated(self, instance: Instance, home: Rows) -> Rows:
        load = Load(instance.counts(home)[1], instance.speed)
        mean = float(load.levels[instance.speed > 0.0].mean())
        if mean > self.theta and load.cov > self.gamma:
            home = instance.shuffled()
        return super(Multistage, self)._migrated(instance, home)


@dataclass(frozen=True, slots=True)
class Gsh(ClientPolicy):
    """Greedy shuffle (5.3): everybody anew, the heaviest first, each to the broker that has least at that time."""

    def homes(self, problem: Problem) -> Rows:
        return Instance.of(problem).shuffled()


@compiled
def migrate(
    begin: Ints, topic: Rows, rate: Floats, weight: Floats, speed: Floats, order: Rows,
    home: Rows, count: Counts, load: Floats, alpha: float, beta: float, by_similarity: bool,
) -> None:  # fmt: skip
    """Stage 2, in place: single moves while the spread is above ``alpha`` and the mean above ``beta``."""
    brokers = 0
    for j in range(len(speed)):
        brokers += speed[j] > 0.0
    rank = np.empty(len(order), np.int32)
    for at in range(len(order)):
        rank[order[at]] = at
    first = np.zeros(len(speed), np.int32)  # of each broker: nobody before this place of ``order`` is there
    while brokers > 1:
        mean, most, least = 0.0, -1, -1
        for j in range(len(speed)):
            if speed[j] > 0.0:
                level = load[j] / speed[j]
                mean += level / brokers
                if most < 0 or level > load[most] / speed[most]:
                    most = j
                if least < 0 or level < load[least] / speed[least]:
                    least = j
        spread = 0.0
        for j in range(len(speed)):
            if speed[j] > 0.0:
                spread += (load[j] / speed[j] - mean) ** 2 / brokers
        if not (np.sqrt(spread) > alpha * mean and mean > beta):
            return
        moved = False
        seen = False
        for at in range(first[most], len(order)):
            i = order[at]
            if home[i] != most:
                continue
            if not seen:
                first[most], seen = at, True
            to = least
            if by_similarity:
                to, best = -1, -1.0
                for j in range(len(speed)):
                    if speed[j] > 0.0 and load[j] / speed[j] < mean:
                        shared = 0.0
                        for s in range(begin[i], begin[i + 1]):
                            if count[topic[s], j]:
                                shared += rate[topic[s]]
                        if shared > best:
                            to, best = j, shared
                if to < 0:
                    continue
            more = weight[i]
            for s in range(begin[i], begin[i + 1]):
                if not count[topic[s], to]:
                    more += rate[topic[s]]
            if (load[to] + more) / speed[to] < load[most] / speed[most]:
                less = weight[i]
                for s in range(begin[i], begin[i + 1]):
                    k = topic[s]
                    count[k, most] -= 1
                    count[k, to] += 1
                    if not count[k, most]:
                        less += rate[k]
                load[most] -= less
                load[to] += more
                home[i] = to
                first[to] = min(first[to], rank[i])
                moved = True
                break
        if not moved:
            return
