"""Load balancing of BAD (Nguyen et al., DEBS'19, Section 5): ``client/ldm``, ``sdm``, ``gsh``, ``multistage``.

Corrections of errors in Algorithm 1: A move is valid if the destination's load *after* the move is below the source's
load before it (the text of 5.2; the printed ``F_b' <= F_b`` always holds). Line 17 clears ``x_ib``. F, mu and cov are
computed again after every move, and after a shuffle. The loop ends if no move is valid. A plan is the difference of two
placements, so a client that moved twice counts as one move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.compiled import compiled
from trimtab.model.judgement import Load
from trimtab.place.client.instance import Instance, homes_or
from trimtab.place.client.policy import ClientPolicy
from trimtab.place.client.simple import Nearest, Random, RoundRobin
from trimtab.place.knobs import check, knob

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


def _ceiling() -> Any:
    """The knob of similarity-based migration, which two policies have."""
    return knob(1.0, "sdm: load below which a broker may receive clients, as a multiple of the mean load", least=0.0)


@dataclass(frozen=True, slots=True)
class Dynamic(ClientPolicy):
    """Stages 1 and 2 of Algorithm 1: initial placement of clients without a home, then dynamic migration.

    Migration moves one client at a time from the most loaded broker, while the coefficient of variation of the loads
    is above ``alpha`` and their mean above ``beta``. The paper sets ``alpha`` to 0.15 (also to 0.05) and ``beta``
    to 300 MB/s in its own simulation (6.2.2); that depends on its rates, so the default here is 0.
    """

    alpha: float = knob(0.15, "coefficient of variation of broker loads above which clients move", least=0.0)
    beta: float = knob(0.0, "mean broker load above which clients move, in data/s of the workload", least=0.0)
    initial: str = knob(
        "nearest", "initial placement of clients without a home (stage 1: NR, RR, RND)", choices=INITIAL
    )
    seed: int = knob(0, "seed of the random draws of initial=random", least=0)

    def __post_init__(self) -> None:
        check(self)

    def similarity_ceiling(self) -> float | None:
        """None: a client moves to the least loaded broker. A number: it moves to the broker that shares most topics
        with it, among those with a load below this multiple of the mean."""
        return None

    def homes(self, problem: Problem) -> Rows:
        instance = Instance.of(problem)
        return self._migrated(instance, homes_or(problem, INITIAL[self.initial](self.seed).homes(problem)))

    def _migrated(self, instance: Instance, home: Rows) -> Rows:
        count, load = instance.counts(home)
        ceiling = self.similarity_ceiling()
        migrate(
            instance.begin, instance.topic, instance.rate, instance.weight, instance.speed, instance.by_weight(), home,
            count, load, float(self.alpha), float(self.beta), ceiling is not None, float(ceiling or 0.0),
        )  # fmt: skip
        return home


@dataclass(frozen=True, slots=True)
class Ldm(Dynamic):
    """Moves the heaviest client of the most loaded broker to the least loaded one, repeatedly (Nguyen, 5.2, LDM)."""


@dataclass(frozen=True, slots=True)
class Sdm(Dynamic):
    """Moves the heaviest client of the most loaded broker to one that shares its topics, repeatedly (Nguyen, 5.2, SDM).

    A destination has a load below ``ceiling`` times the mean: the paper's "some threshold (maybe the average load)".
    """

    ceiling: float = _ceiling()

    def similarity_ceiling(self) -> float | None:
        return self.ceiling


@dataclass(frozen=True, slots=True)
class Multistage(Dynamic):
    """Reassigns all clients (gsh) if the imbalance is extreme, then migrates single ones (Nguyen, Algorithm 1).

    All clients are reassigned if the coefficient of variation is above ``gamma`` and the mean load above ``theta``; the
    paper prints no values for these two. ``scheme`` says how single clients migrate: as ``ldm`` or as ``sdm``.
    """

    scheme: str = knob("ldm", "how single clients migrate: by load or by similarity (stage 2)", choices=SCHEMES)
    gamma: float = knob(0.4, "coefficient of variation above which all clients are reassigned", least=0.0)
    theta: float = knob(0.0, "mean broker load above which all clients are reassigned, in data/s", least=0.0)
    ceiling: float = _ceiling()

    def similarity_ceiling(self) -> float | None:
        return self.ceiling if self.scheme == "sdm" else None

    def _migrated(self, instance: Instance, home: Rows) -> Rows:
        load = Load(instance.counts(home)[1], instance.speed)
        mean = float(load.levels[instance.speed > 0.0].mean())
        if mean > self.theta and load.cov > self.gamma:
            home = instance.shuffled()
        return super(Multistage, self)._migrated(instance, home)


@dataclass(frozen=True, slots=True)
class Gsh(ClientPolicy):
    """Reassigns all clients, the heaviest first, each to the broker with the least load so far (Nguyen, 5.3, GSH)."""

    def homes(self, problem: Problem) -> Rows:
        return Instance.of(problem).shuffled()


@compiled
def migrate(
    begin: Ints, topic: Rows, rate: Floats, weight: Floats, speed: Floats, order: Rows,
    home: Rows, count: Counts, load: Floats, alpha: float, beta: float, by_similarity: bool, ceiling: float,
) -> None:  # fmt: skip
    """Stage 2, in place: single moves while the spread is above ``alpha`` and the mean above ``beta``.

    By similarity, a client moves to the broker with a load below ``ceiling`` means that shares most with it.
    """
    brokers = 0
    for j in range(len(speed)):
        brokers += speed[j] > 0.0
    rank = np.empty(len(order), np.int32)
    for at in range(len(order)):
        rank[order[at]] = at
    first = np.zeros(len(speed), np.int32)  # by broker: none of its clients is before this place of ``order``
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
        first_seen = False
        for at in range(first[most], len(order)):
            i = order[at]
            if home[i] != most:
                continue
            if not first_seen:
                first[most], first_seen = at, True
            to = least
            if by_similarity:
                to, best = -1, -1.0
                for j in range(len(speed)):
                    if j != most and speed[j] > 0.0 and load[j] / speed[j] < ceiling * mean:
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
