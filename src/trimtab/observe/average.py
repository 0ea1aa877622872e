"""Moving averages that know a change from a peak.

An average over some twenty seconds does not run after every peak, but it also takes a minute to believe that a rush is
over: a rate that falls from five to one is still twice what it should be after 28 s. So each average also knows how
much its rate varies. What is far outside of that twice in a row is a new rate and not a peak: the average begins anew
with it, or takes that back if it was a peak after all. A rate that comes in bursts varies so much that this never
happens, and is averaged.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats

SURE: Final = 3.0  # standard deviations off that are no chance
ROUGH: Final = 0.1  # of its mean that any rate may vary, however steady it has been
YOUNG: Final = 3  # times that something is added, after which a change is not taken back


class Averages:
    """One row for each thing that has a rate, any number of columns; changes are looked for in the first, a count."""

    def __init__(self, average_s: float, rows: int = 0, columns: int = 1) -> None:
        self.average_s = average_s
        self.known_s = 0.0  # of which there is anything to average
        self.mean: Floats = np.zeros((rows, columns))  # per second
        self._variance: Floats = np.zeros(rows)  # of the first column
        self._off: NDArray[np.int8] = np.zeros(rows, np.int8)  # above or below, by far, the last time
        self._last: Floats = self.mean  # the mean before what was added last,
        self._before: Floats = self.mean.copy()  # and before the last change
        self._age: NDArray[np.int64] = np.full(rows, YOUNG)  # of that change

    def add(self, amount: Floats, seconds: float) -> None:
        """What came in the last ``seconds``, (rows, columns). A plain mean until there is enough for an average."""
        if seconds <= 0.0:
            return
        self.known_s += seconds
        share = max(-math.expm1(-seconds / self.average_s), seconds / self.known_s)
        rate, mean, before = amount / seconds, self.mean, self._before
        first = rate[:, 0]
        square = (first - mean[:, 0]) ** 2
        limit = self._limit(first, mean[:, 0], seconds) if share < 1.0 else np.full(len(first), np.inf)
        off = np.where(square > limit, np.sign(first - mean[:, 0]), 0.0).astype(np.int8)
        changed = (off != 0) & (off == self._off)
        again = (first - before[:, 0]) ** 2 <= self._limit(first, before[:, 0], seconds)
        back = (off != 0) & ~changed & again & (self._age < YOUNG)

        self._before = np.where(changed[:, None], self._last, before)
        self._age = np.where(changed, 0, self._age + 1)
        self._last = mean
        self.mean = np.select([changed[:, None], back[:, None]], [rate, before], mean + share * (rate - mean))
        # One peak must not make a rate look as if it varied, many must.
        self._variance += share * (np.minimum(square, limit) - self._variance)
        self._off = np.where(back, np.int8(0), off)

    def _limit(self, rate: Floats, mean: Floats, seconds: float) -> Floats:
        """The square of how far from its mean a rate may be by chance.

        Counts vary by their root at least, which is all there is to know of what hardly ever comes.
        """
        least = np.maximum(np.maximum(mean, rate) / seconds, (ROUGH * mean) ** 2)
        return SURE**2 * np.maximum(self._variance, least)

    def keep(self, rows: NDArray[np.intp], more: int = 0) -> None:
        """These rows only, in this order, and so many new ones behind them."""

        def kept(column: NDArray, new: float = 0) -> NDArray:  # type: ignore[type-arg]
            return np.concatenate([column[rows], np.full((more, *column.shape[1:]), new, column.dtype)])

        self.mean, self._last, self._before = kept(self.mean), kept(self._last), kept(self._before)
        self._variance, self._off, self._age = kept(self._variance), kept(self._off), kept(self._age, YOUNG)
