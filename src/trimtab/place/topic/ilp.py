"""``topic/ilp``: the integer program of Khare et al. (SEC'18, III-D), over sets of topics."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.errors import TooLarge
from trimtab.model.placement import Placement
from trimtab.place.client.policy import nowhere
from trimtab.place.knobs import check, knob
from trimtab.place.stop import NO_LIMIT
from trimtab.place.topic.bounds import fewest
from trimtab.place.topic.cover import Cover, Effort
from trimtab.place.topic.ffd import first_fit
from trimtab.place.topic.instance import Instance
from trimtab.place.topic.strain import Strain

if TYPE_CHECKING:
    from trimtab.model.placement import Bound
    from trimtab.model.problem import Problem
    from trimtab.place.stop import Stop
    from trimtab.place.topic.policy import Groups
    from trimtab.predict.model import LatencyModel

WIDTHS: Final = (1000, 10_000, 100_000)  # of the first searches for patterns; the last one is ``max_sets``
NODES: Final = 10_000  # of the search for whole numbers of patterns
LISTED: Final = 20_000  # sets of topics that are listed at most, where the search for them misses the bound
TESTS_PER_SET: Final = 50  # of feasibility, in all searches by the queueing model together, by ``max_sets``


@dataclass(frozen=True, slots=True)
class Ilp:
    """Fewest brokers by column generation and branch and bound, with a proved lower bound (Khare, III-D).

    The paper's program has a variable for every topic and broker, and constraint (3) is not linear. Here a variable
    stands for a set of equal topics that can share a broker, and the sets are those within the same limits as in
    ``topic/trim``. The search for sets is exhaustive unless it would extend more than ``max_sets`` sets of one size. If
    it is, the bound holds for every placement within these limits; the linear program's bound is usually the optimum.
    """

    k: int = knob(6, "most topics on a broker", least=1)
    use: float = knob(1.0, "share of time in which a topic's worker may be busy", least=0.01, most=1.0)
    growth: float = knob(0.02, "share by which rates may grow before a limit is reached", least=0.0, most=10.0)
    coverage: float = knob(0.8, "of the latency interval whose upper end must be in the bound", least=0.01, most=0.999)
    max_topics: int = knob(2000, "larger problems are refused, not tried", least=1)
    max_sets: int = knob(1_000_000, "sets of one size that are extended, at most", least=1)
    model: LatencyModel | None = None  # default: the queueing model of the problem's hardware
    stop: Stop = NO_LIMIT

    may_leave_unplaced: ClassVar[bool] = True
    keeps_limits: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self)

    def place(self, problem: Problem) -> Placement:
        if problem.units > self.max_topics:
            raise TooLarge(f"topic/ilp takes at most {self.max_topics:,} topics, but there are {problem.units:,}: use "
                           "topic/trim, which has no such limit, or raise max_topics")  # fmt: skip
        instance = Instance.of(problem, self.k, self.model)
        if not problem.brokers or not len(instance.topics):
            return Placement("topic", nowhere(problem.units), fewest(instance, 0, 1.0))
        strain = Strain(instance, self.use, self.growth, self.coverage)
        groups = first_fit(instance, strain, instance.in_order_of_latency())
        widths = [width for width in WIDTHS if width < self.max_sets] + [self.max_sets]
        effort = Effort(widths, NODES, TESTS_PER_SET * self.max_sets)
        cover = Cover.of(instance, strain, groups)
        groups, proved = cover.solve(groups, effort, self.stop)
        groups = _by_all_sets(cover, groups, proved, self.stop)
        placed = sum(len(topics) for _, topics in groups)
        bound = fewest(instance, placed, self.use)
        if placed == len(instance.topics):
            bound = max(bound, proved, key=lambda each: each.value)
        return instance.placement(groups, bound)


def _by_all_sets(cover: Cover, groups: Groups, proved: Bound, stop: Stop) -> Groups:
    """Groups that meet the bound where sets are few enough to list them all.

    Column generation ends with the sets that the linear program needs. Whole numbers of sets may need others, which
    only matters where topics are few: with many, some other sets do as well.
    """
    pool, instance = cover.pool, cover.instance
    complete = sum(len(topics) for _, topics in groups) == cover.all_topics
    lowest, types = max(1, math.ceil(proved.value)), len(pool.types)
    sizes = range(2, min(instance.most, cover.all_topics) + 1)
    if not complete or lowest >= len(groups) or sum(math.comb(types + size - 1, size) for size in sizes) > LISTED:
        return groups
    for size in sizes:
        every = np.array(list(itertools.combinations_with_replacement(range(types), size)), np.int64)
        there = np.array([(np.bincount(row, minlength=types) <= pool.types.count).all() for row in every])
        for kind in pool.kinds():
            fits = every[there][pool.oracle.fit(pool.types.topic[every[there]], kind)] if there.any() else every[:0]
            for row in fits.tolist():
                pool.add(kind, tuple(row))
    chosen = pool.integral(len(groups), lowest, NODES, stop)
    found = None if chosen is None else cover.groups(chosen)
    return groups if found is None else found
