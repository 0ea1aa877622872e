"""The pattern bound: column generation over the sets of links that one broker can carry.

A *pattern* is a set of links that fits one broker. The problem is to choose a pattern per broker so that no topic is
carried more often than it has links. Allowing fractions of patterns gives a linear program. Its value is close to the
optimum even where a broker holds only two or three topics and merged bounds are loose. New patterns come from the
knapsack with set-ups under the program's dual prices. The Lagrangian value of these prices bounds the optimum at every
step, so stopping early is safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import highspy
import numpy as np

from trimtab.place.link.packing import knapsack, read_back

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats
    from trimtab.place.link.counts import Grid, Instance
    from trimtab.place.stop import Stop

    Ints = NDArray[np.int64]

WIDTHS_A_STEP = 10  # patterns added per step: with unequal brokers, only those of the most promising widths
# Shares of the best prices so far in the mixed prices that are tried one after the other, until a pattern improves.
SMOOTHING = (0.5, 0.25, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class PatternBound:
    value: float
    price: Floats  # (grid topics,) worth of one more link of each topic


class PatternProgram:
    """The restricted master program over the patterns found so far."""

    def __init__(self, instance: Instance, grid: Grid) -> None:
        self.grid = grid
        self.degree = instance.degree[grid.topic].astype(np.float64)
        self.widths, many = np.unique(grid.cells, return_counts=True)
        self.many = many.astype(np.float64)
        self.topics = len(grid.topic)
        self._order = np.arange(self.topics)
        self._best = np.empty(int(self.widths[-1]) + 1)
        self._taken = np.empty((self.topics, int(self.widths[-1]) + 1), np.int16)
        self._added: set[tuple[int, bytes]] = set()
        self.scale = float(grid.rate.max())  # HiGHS has absolute tolerances
        self._highs = highspy.Highs()
        self._highs.silent()
        for option, value in (("threads", 1), ("presolve", "off")):
            self._highs.setOptionValue(option, value)
        self._highs.changeObjectiveSense(highspy.ObjSense.kMaximize)
        nothing = np.empty(0, np.int32), np.empty(0)
        for at_most in (*self.degree, *self.many):
            self._highs.addRow(-highspy.kHighsInf, float(at_most), 0, *nothing)

    @property
    def work(self) -> float:
        """Cost of a step in table entries: the knapsack, and solving the program again."""
        return self.grid.work + 2_000.0 * (self.topics + len(self.widths))

    def add(self, width: int, pattern: Ints) -> bool:
        """Add a pattern for brokers of the ``width``-th capacity. Returns whether it is new."""
        key = (width, pattern.tobytes())
        if key in self._added:
            return False
        self._added.add(key)
        topics = np.flatnonzero(pattern)
        rows = np.append(topics, self.topics + width).astype(np.int32)
        entries = np.append(pattern[topics], 1).astype(np.float64)
        self._highs.addCol(
            float(self.grid.rate @ pattern) / self.scale, 0.0, highspy.kHighsInf, len(rows), rows, entries
        )
        return True

    def add_packing(self, count: NDArray[np.int64]) -> None:
        """Add the pattern of every broker in a solution."""
        for j, width in enumerate(np.searchsorted(self.widths, self.grid.cells)):
            self.add(int(width), count[j])

    def solve(self) -> tuple[float, Floats, Floats]:
        """Value, price of a link per topic, price of a broker per width."""
        self._highs.run()
        dual = np.abs(np.asarray(self._highs.getSolution().row_dual)) * self.scale
        value = float(self._highs.getInfo().objective_function_value) * self.scale
        return value, dual[: self.topics], dual[self.topics :]

    def price_out(self, price: Floats) -> tuple[float, list[Ints]]:
        """The Lagrangian bound at these prices, and the best pattern of every width."""
        grid = self.grid
        widest = int(self.widths[-1])
        knapsack(grid.first, grid.need, grid.rate - price, grid.limit, self._order, widest, self._best, self._taken)
        patterns = []
        for width in self.widths:
            pattern = np.zeros(self.topics, np.int64)
            read_back(grid.first, grid.need, self._order, int(width), self._taken, pattern)
            patterns.append(pattern)
        return float(price @ self.degree + self.many @ self._best[self.widths]), patterns

    def bound(self, instance: Instance, start: Floats, achieved: float, steps: int, stop: Stop) -> PatternBound:
        """Generate patterns until the bound is exact, reaches ``achieved``, or ``steps`` or time run out."""
        best_price = start
        value, patterns = self.price_out(start)
        self._offer(patterns, np.full(len(patterns), self.scale))
        for _ in range(steps):
            if instance.floored(value) <= achieved * (1.0 + 1e-12) or stop.left_s() <= 0.0:
                break
            reached, price, per_broker = self.solve()
            if value - reached <= 1e-7 * value:
                break
            improved = False
            for share in SMOOTHING:
                tried = share * best_price + (1.0 - share) * price
                bound, patterns = self.price_out(tried)
                if bound < value:
                    value, best_price = bound, tried
                gains = np.array([(self.grid.rate - price) @ p for p in patterns]) - per_broker
                improved = self._offer(patterns, gains)
                if improved:
                    break
            if not improved:
                break
        return PatternBound(instance.floored(value), best_price)

    def _offer(self, patterns: list[Ints], gains: Floats) -> bool:
        """Add the patterns with the largest gains. Returns whether any of them was new."""
        order = np.argsort(-gains, kind="stable")[:WIDTHS_A_STEP]
        worthwhile = [width for width in order if gains[width] > 1e-9 * self.scale]
        added = [self.add(int(width), patterns[width]) for width in worthwhile]
        return any(added)
