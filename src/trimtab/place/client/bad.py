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
from trimtab.model.placement import Placement
from trimtab.place.client.instance import Instance, homes_or
from trimtab.place.client.simple import Nearest, Random, RoundRobin
from trimtab.place.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]
    Counts = NDArray[np.int32]

INITIAL: Final = ("nearest", "round-robin", "random")
SCHEMES: Final = ("ldm", "sdm")


def initial(problem: Problem, name: str, seed: int) -> Rows:
    """Stage 1: where clients are before anything is known of them, or where they are now."""
    if name == "nearest":
        first = Nearest().place(problem)
    else:
        first = RoundRobin().place(problem) if name == "round-robin" else Random(seed).place(problem)
    return homes_or(problem, first.broker)


@dataclass(frozen=True, slots=True)
class Multistage:
    """Algorithm 1: a shuffle if the load is spread widely, then single moves until it is spread little.

    Above ``gamma`` (spread) and ``theta`` (mean load) everybody is shuffled; above ``alpha`` and ``beta`` clients move
    one by one from the broker of the most load. Loads are in the workload's data/s.
    """

    scheme: str = "ldm"
    alpha: float = 0.15
    beta: float = 0.0
    gamma: float = 0.4
    theta: float = 0.0
    initial: str = "nearest"
    seed: int = 0

    may_leave_unplaced: ClassVar[bool] = False
    keeps_limits: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise BadKnob("client/multistage", "scheme", self.scheme, f"one of {', '.join(SCHEMES)}")
        if self.initial not in INITIAL:
            raise BadKnob("client/multistage", "initial", self.initial, f"one of {', '.join(INITIAL)}")
        for knob in ("alpha", "beta", "gamma", "theta"):
            if not getattr(self, knob) >= 0.0:
                raise BadKnob("client/multistage", knob, getattr(self, knob), "zero or more")

    def place(self, problem: Problem) -> Placement:
        instance = Instance.of(problem)
        home = initial(problem, self.initial, self.seed)
        if not instance.brokers or (home < 0).any():
            return Placement("client", home)
        order = instance.by_weight()
        count, load = instance.counts(home)
        level = load[instance.speed > 0.0] / instance.speed[instance.speed > 0.0]
        mean = float(level.mean())
        if mean > self.theta and np.std(level) > self.gamma * mean:
            home = shuffled(instance.begin, instance.topic, instance.rate, instance.speed, order)
            count, load = instance.counts(home)
        migrate(
            instance.begin, instance.topic, instance.rate, instance.weight, instance.speed, order, home, count, load,
            self.alpha, self.beta, self.scheme == "sdm",
        )  # fmt: skip
        return Placement("client", home)


@dataclass(frozen=True, slots=True)
class Ldm:
    """Load-based dynamic migration (5.2): the heaviest client of the fullest broker to the emptiest."""

    alpha: float = 0.15
    beta: float = 0.0
    initial: str = "nearest"
    seed: int = 0

    may_leave_unplaced: ClassVar[bool] = False
    keeps_limits: ClassVar[bool] = False

    def place(self, problem: Problem) -> Placement:
        return _dynamic("ldm", self.alpha, self.beta, self.initial, self.seed).place(problem)


@dataclass(frozen=True, slots=True)
class Sdm:
    """Similarity-based dynamic migration (5.2): ... to that broker below the mean which shares most with it."""

    alpha: float = 0.15
    beta: float = 0.0
    initial: str = "nearest"
    seed: int = 0

    may_leave_unplaced: ClassVar[bool] = False
    keeps_limits: ClassVar[bool] = False

    def place(self, problem: Problem) -> Placement:
        return _dynamic("sdm", self.alpha, self.beta, self.initial, self.seed).place(problem)


def _dynamic(scheme: str, alpha: float, beta: float, first: str, seed: int) -> Multistage:
    return Multistage(scheme, alpha, beta, gamma=float("inf"), initial=first, seed=seed)


@dataclass(frozen=True, slots=True)
class Gsh:
    """Greedy shuffle (5.3): everybody anew, the heaviest first, each to the broker that has least at that time."""

    may_leave_unplaced: ClassVar[bool] = False
    keeps_limits: ClassVar[bool] = False

    def place(self, problem: Problem) -> Placement:
        instance = Instance.of(problem)
        order = instance.by_weight()
        return Placement("client", shuffled(instance.begin, instance.topic, instance.rate, instance.speed, order))


@compiled
def shuffled(begin: Ints, topic: Rows, rate: Floats, speed: Floats, order: Rows) -> Rows:
    """O(links + clients x brokers)."""
    home = np.full(len(order), -1, np.int32)
    count = np.zeros((len(rate), len(speed)), np.int32)
    load = np.zeros(len(speed))
    for i in order:
        least = -1
        for j in range(len(speed)):
            if speed[j] > 0.0 and (least < 0 or load[j] / speed[j] < load[least] / speed[least]):
                least = j
        if least < 0:
            break
        home[i] = least
        for s in range(begin[i], begin[i + 1]):
            k = topic[s]
            load[least] += rate[k] if count[k, least] else 2.0 * rate[k]
            count[k, least] += 1
    return home


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
