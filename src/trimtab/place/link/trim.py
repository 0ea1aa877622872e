"""``link/trim``, trimtab's own policy: a fast sweep for any size, then search and proof if tables are affordable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.model.placement import Bound, Placement
from trimtab.place.knobs import check, knob
from trimtab.place.link import bounds, ilp
from trimtab.place.link.counts import Allotments, Grid, Instance
from trimtab.place.link.greedy import greedy
from trimtab.place.link.kinds import sweep_kinds
from trimtab.place.link.mend import mend
from trimtab.place.link.packing import pack, ruin_and_recreate
from trimtab.place.link.patterns import PatternProgram
from trimtab.place.link.ranking import kinds_of
from trimtab.place.link.sweep import sweep
from trimtab.place.stop import EFFORT, NO_LIMIT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats
    from trimtab.place.stop import Stop

TABLE: Final = 5_000_000  # entries of the largest table the search fills again and again
PAIRS: Final = 2_000_000  # topics x brokers of the table of counts
MERGED_WORK: Final = 3e8  # table entries of the merged bound, about a third of a second
PATTERN_ROWS: Final = 1_500  # most rows of the pattern program, which every step solves again
LINKS: Final = 20_000  # above, a sweep is within 0.1 % of its bound, and a search would take seconds
FIRST_ROUNDS, ROUNDS = 400, 6_000  # rounds of ruin and recreate before and after the pattern bound
SEARCH_WORK: Final = 1e9  # table entries the search may fill, about half a second
KINDS_WORK: Final = 6e6  # table entries of a sweep over kinds
MEND_SLOTS: Final = 5_000_000
MEND_CELLS: Final = 2_000
MEND_WORK: Final = 1e8  # table entries the repair of a sweep may fill, about a tenth of a second
LARGE, LARGE_MEND_WORK = 50_000, 4e6  # from this number of links on, the repair takes milliseconds only
CLOSE: Final = 1e-4  # a sweep this close to the merged bound is not worth a better bound
EXACT_PAIRS, EXACT_NODES = 150, 3_000  # most topics x brokers, and most nodes, of a proof by HiGHS


@dataclass(frozen=True, slots=True)
class Trim:
    """Places links by a sweep, then by search and proof where the problem is small enough (trimtab's own).

    1. ``gs``, then a sweep that fills brokers with whole topics, the last few chosen to leave no room; the merged
       linear bound. For large instances this is all.
    2. Small instances: brokers are filled one by one by an exact knapsack under Lagrangian prices. Then two or three at
       a time are emptied and filled again, until the answer meets a bound.
    3. If the bound is not met and the instance is tiny, the integer program starts from this answer and finishes the
       proof.
    4. If the bound is still not met, the pattern bound is computed, and the search continues under its prices.

    The answer depends on the seed alone unless ``stop`` cuts it short.
    """

    seed: int = knob(0, "seed of the random draws", least=0)
    effort: float = knob(
        1.0, "amount of search; 1 is about half a second on the paper's instances", least=0.0, most=EFFORT
    )
    stop: Stop = NO_LIMIT

    may_leave_unplaced: ClassVar[bool] = True
    keeps_limits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check(self)

    def place(self, problem: Problem) -> Placement:
        instance = Instance.of(problem)
        allotments, bound = self._solve(instance)
        allotments = instance.with_free_topics(allotments)
        return Placement("link", instance.links(problem, allotments), bound)

    def warm_up(self, _: Problem) -> None:
        """Compile the kernels that only large problems reach."""
        instance = Instance(np.full(4, 2.0), np.full(4, 3, np.int32), np.full(2, 14.0), np.arange(4, dtype=np.int32))
        bounds.alike(instance)
        Trim()._mended(instance, Allotments(*(np.array([n], np.int32) for n in (0, 0, 1))))

    def _solve(self, instance: Instance) -> tuple[Allotments, Bound]:
        rate = instance.rate
        best = Allotments(*greedy(rate, np.where(rate > 0.0, instance.degree, 0), instance.room, False))
        bound = bounds.merged_lp(instance)
        if bound.proves(best.data(rate)):
            return best, bound
        swept = Allotments(
            *sweep(rate, instance.degree, instance.order, instance.room, instance.selected, instance.worth)
        )
        best = max(best, swept, _swept_by_kinds(instance) or best, key=lambda m: m.data(rate))
        if bound.proves(best.data(rate)) or self.effort == 0.0:
            return best, bound
        links = int(instance.degree[instance.order].sum())
        if links <= LINKS:
            grid = Grid.of(instance, down=False)
            if grid.work <= TABLE and len(grid.topic) * len(instance.room) <= PAIRS:
                return _Search(instance, grid, self).run(best, bound)
        if best.data(rate) < (1.0 - CLOSE) * bound.value:
            bound = min(bound, bounds.alike(instance) or bound, key=lambda b: b.value)
        if best.data(rate) < (1.0 - CLOSE) * bound.value:
            mended = self._mended(instance, best)
            best = max(best, mended, key=lambda m: m.data(rate))
        return best, bound

    def _mended(self, instance: Instance, allotments: Allotments) -> Allotments:
        if int(np.bincount(allotments.broker).max()) * len(instance.room) > MEND_SLOTS:
            return allotments  # with so many topics per broker, no gain is left
        degree = instance.degree[instance.order]
        critical = degree[max(instance.selected - 1, 0)]
        near = instance.order[(degree >= 0.75 * critical) & (degree <= 1.35 * critical)]
        cell = max(instance.unit, float(instance.room.max()) / MEND_CELLS)
        pool = 2.0 * len(allotments.topic) / len(instance.room) + 16.0
        work = MEND_WORK if instance.degree.sum() < LARGE else LARGE_MEND_WORK
        per_round = 2.0 * pool * float(instance.room.max()) / cell + 2_000.0
        rounds = int(min(self.effort * work / per_round, 100.0 * len(instance.room)))
        rng = np.random.default_rng(self.seed)
        return Allotments(
            *mend(
                instance.rate, instance.degree, instance.room, allotments.topic, allotments.broker, allotments.links,
                instance.worth, near, cell, rounds, rng,
            )
        )  # fmt: skip


def _swept_by_kinds(instance: Instance) -> Allotments | None:
    """The sweep over kinds, where topics fall into few enough."""
    per_kind = 5.0 * float(instance.room.sum()) / instance.unit if instance.unit > 0.0 else float("inf")
    if per_kind > KINDS_WORK:
        return None
    members, begin = kinds_of(instance.rate, instance.degree, instance.order)
    if per_kind * (len(begin) - 1) > KINDS_WORK:
        return None
    return Allotments(
        *sweep_kinds(
            instance.rate, instance.degree, instance.room, instance.unit, members, begin,
            instance.selected, instance.worth,
        )
    )  # fmt: skip


class _Search:
    """Steps 2 to 4 on one instance."""

    def __init__(self, instance: Instance, grid: Grid, knobs: Trim) -> None:
        self.instance = instance
        self.grid = grid
        self.below = grid if grid.exact else Grid.of(instance, down=True)  # for bounds
        self.knobs = knobs
        self.rng = np.random.default_rng(knobs.seed)
        self.room = instance.room
        self.left = instance.degree[grid.topic].astype(np.int64)
        self.count: NDArray[np.int64] = np.zeros((len(self.room), len(grid.topic)), np.int64)
        self.free = self.room.copy()

    def run(self, best: Allotments, bound: Bound) -> tuple[Allotments, Bound]:
        grid, rate = self.grid, self.instance.rate
        links = float(self.instance.degree[self.below.topic].sum())
        if links * float(self.below.cells.sum()) <= MERGED_WORK:
            bound = min(bound, bounds.merged_exact(self.instance, self.below), key=lambda b: b.value)
        if bound.proves(best.data(rate)):
            return best, bound
        price = bounds.merged_prices(self.instance, grid)
        pack(
            grid.rate, price, self.left, grid.first, grid.need, grid.limit, grid.cells, self.room,
            self.count, self.free,
        )  # fmt: skip
        best = self._improve(best, price, FIRST_ROUNDS, bound)
        if self._open(best, bound) and self.count.size <= EXACT_PAIRS:
            best, value = ilp.solve(self.instance, best, self.knobs.stop, EXACT_NODES)
            bound = min(bound, Bound("ilp", value), key=lambda b: b.value)
        if self._open(best, bound) and len(grid.topic) + len(np.unique(self.below.cells)) <= PATTERN_ROWS:
            program = PatternProgram(self.instance, self.below)
            program.add_packing(self.count)
            steps = int(min(bounds.PATTERN_STEPS, self.knobs.effort * SEARCH_WORK / program.work)) + 1
            result = program.bound(self.instance, price, best.data(rate), steps, self.knobs.stop)
            bound = min(bound, Bound("patterns", result.value), key=lambda b: b.value)
            price = result.price
        if self._open(best, bound):
            best = self._improve(best, price, ROUNDS, bound)
        return best, bound

    def _open(self, best: Allotments, bound: Bound) -> bool:
        """Whether the answer is not proven optimal yet and time is left."""
        return not bound.proves(best.data(self.instance.rate)) and self.knobs.stop.left_s() > 0.0

    def _improve(self, best: Allotments, price: Floats, rounds: int, bound: Bound) -> Allotments:
        grid = self.grid
        waiting = float(np.minimum(self.left, grid.limit).sum() + grid.limit.sum() * 2.3 / max(len(self.room), 3))
        per_round = 2.3 * waiting * float(grid.cells.max() + 1) + 10.0 * self.count.shape[1]
        total = int(self.knobs.effort * min(float(rounds), SEARCH_WORK / per_round)) + 1
        goal = bound.value * (1.0 - 1e-12)
        rounds_made = 0
        while rounds_made < total and self.knobs.stop.left_s() > 0.0:
            step = min(total - rounds_made, 200)  # the time limit is checked between steps
            _, done = ruin_and_recreate(
                grid.rate, price, self.left, grid.first, grid.need, grid.limit, grid.cells, self.room,
                self.count, self.free, step, goal, self.rng,
            )  # fmt: skip
            rounds_made += step
            if done < step:
                break
        return max(best, self._allotments(), key=lambda m: m.data(self.instance.rate))

    def _allotments(self) -> Allotments:
        j, i = np.nonzero(self.count)
        return Allotments(self.grid.topic[i], j.astype(np.int32), self.count[j, i].astype(np.int32))
