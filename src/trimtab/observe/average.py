"""Moving averages that know a change from a peak.

An average over some twenty seconds does not run after every peak, but it also takes a minute to believe that a rush is
over: a rate that falls from five to one is still twice what it should be after 28 s. So each average also knows how
much its rate varies. What is far outside of that twice in a row is a new rate and not a peak: the average begins anew
with it, or takes that back if it was a peak after all.

What comes in bursts, such as results of a channel once a minute, is averaged over several of them, however far they are
apart: else it would be half gone before the next one comes, and a fleet that carries the same all the time would seem
to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats

SURE: Final = 3.0  # standard deviations off that are no chance
ROUGH: Final = 0.1  # of its mean that any rate may vary, however steady it has been
YOUNG: Final = 3  # times that something is added, after which a change is not taken back
BURSTS: Final = 5.0  # over which what comes in bursts is averaged
STEADY: Final = 3  # times in a row that something has come: these are no bursts
RARER: Final = 0.8  # of the longest time between bursts that is remembered at each


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
        self._gap: Floats = np.zeros(rows)  # seconds between bursts; zero if there are none
        self._since: Floats = np.full(rows, np.inf)  # seconds since anything has come
        self._run: NDArray[np.int64] = np.zeros(rows, np.int64)  # times in a row that something has
        self._burst: Floats = self.mean.copy()  # all that has come in these
        self._times: NDArray[np.int64] = np.zeros(rows, np.int64)  # that anything has come, all in all

    def add(self, amount: Floats, seconds: float) -> None:
        """What came in the last ``seconds``, (rows, columns). A plain mean until there is enough for an average."""
        if seconds <= 0.0:
            return
        self.known_s += seconds
        # By what is known of gaps before this one: a burst that comes late counts as much as the others.
        least = np.where(self._gap > 0.0, 0.0, seconds / self.known_s)
        share = np.maximum(-np.expm1(-seconds / np.maximum(self.average_s, BURSTS * self._gap)), least)
        second, mean = self._bursts(amount, seconds)
        share = np.where(second, 0.0, share)
        rate, before = amount / seconds, self._before
        first = rate[:, 0]
        square = (first - mean[:, 0]) ** 2
        limit = np.where(share < 1.0, self._limit(first, mean[:, 0], seconds), np.inf)
        off = np.where((square > limit) & (self._gap == 0.0), np.sign(first - mean[:, 0]), 0.0).astype(np.int8)
        changed = (off != 0) & (off == self._off)
        again = (first - before[:, 0]) ** 2 <= self._limit(first, before[:, 0], seconds)
        back = (off != 0) & ~changed & again & (self._age < YOUNG)

        self._before = np.where(changed[:, None], self._last, before)
        self._age = np.where(changed, 0, self._age + 1)
        self._last = mean
        self.mean = np.select([changed[:, None], back[:, None]], [rate, before], mean + share[:, None] * (rate - mean))
        # One peak must not make a rate look as if it varied, many must.
        self._variance += share * (np.minimum(square, limit) - self._variance)
        self._off = np.where(back, np.int8(0), off)

    def unsure(self, column: int = 0) -> float:
        """Share of all that comes, by that column, which has come once only: it may be steady, or a burst an hour. As
        much as if it came again now."""
        known = (self._times >= STEADY) | (self._gap > 0.0)
        again = np.where(known, 0.0, self._burst[:, column] / np.maximum(np.minimum(self._since, self.known_s), 1.0))
        total = float(self.mean[known, column].sum() + again.sum())
        return float(again.sum()) / total if total > 0.0 else 0.0

    def quiet_s(self) -> Floats:
        """(rows,) seconds since anything has come."""
        return self._since

    def _bursts(self, amount: Floats, seconds: float) -> tuple[NDArray[np.bool_], Floats]:
        """How long it takes from one burst to the next. Where that is known for the first time now; and the mean, which
        is there what the burst before has brought, over that time."""
        came, quiet = amount[:, 0] > 0.0, self._since + seconds
        apart = came & np.isfinite(quiet) & (quiet > 2 * seconds)
        second = apart & (self._gap == 0.0)
        gap = np.where(apart, np.maximum(RARER * self._gap, quiet), self._gap)
        mean = np.where(second[:, None], self._burst / np.where(second, quiet, 1.0)[:, None], self.mean)
        self._run = np.where(came, self._run + 1, 0)
        self._burst = np.where((self._run == 1)[:, None], amount, self._burst + amount)
        self._gap = np.where(self._run >= STEADY, 0.0, gap)
        self._times += came
        self._since = np.where(came, 0.0, quiet)
        return second, mean

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
        self._gap, self._since, self._run = kept(self._gap), kept(self._since, np.inf), kept(self._run)
        self._burst, self._times = kept(self._burst), kept(self._times)
