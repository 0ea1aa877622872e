"""Moving averages that tell a lasting change of a rate from a single peak.

An average over some twenty seconds smooths peaks, but it reacts slowly to a real change: when a rate falls from five to
one, the average is still twice too high after 28 s. Each average therefore also tracks the variance of its rate. Two
samples in a row that are far above the mean, or far below it, are a change: the average restarts at the new rate. If
one of the next samples matches the old rate again, it was a peak after all, and the old average is restored.

Traffic that comes in bursts, such as the results of a channel once a minute, is averaged over several bursts, however
far apart they are. Otherwise the average would decay by half between two bursts, and a fleet under constant load would
seem to change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats

SURE: Final = 3.0  # deviation from the mean that is not chance, in standard deviations
ROUGH: Final = 0.1  # smallest standard deviation assumed for any rate, as a share of its mean
YOUNG: Final = 3  # samples after a change during which it can still be taken back
BURSTS: Final = 5.0  # number of bursts that the average of bursty traffic spans
STEADY: Final = 3  # consecutive non-zero samples that make traffic steady, not bursty
RARER: Final = 0.8  # decay of the remembered gap between bursts, per burst
RECENT_S: Final = 5.0  # time constant of the short average


class Averages:
    """Averages of many rates: a row per topic or other source, any number of columns.

    Changes are detected in the first column, which must be a count.
    """

    def __init__(self, average_s: float, rows: int = 0, columns: int = 1) -> None:
        self.average_s = average_s
        self.known_s = 0.0  # seconds covered by all samples so far
        self.mean: Floats = np.zeros((rows, columns))  # per second
        self.recent: Floats = np.zeros(rows)  # of the first column, over ``RECENT_S``: quick and noisy, for trends
        self._variance: Floats = np.zeros(rows)  # of the first column
        self._off: NDArray[np.int8] = np.zeros(rows, np.int8)  # last sample: 1 far above the mean, -1 far below
        self._last: Floats = self.mean  # the mean before the last sample
        self._before: Floats = self.mean.copy()  # the mean before the last change
        self._age: NDArray[np.int64] = np.full(rows, YOUNG)  # samples since the last change
        self._gap: Floats = np.zeros(rows)  # seconds between bursts; zero if there are none
        self._since: Floats = np.full(rows, np.inf)  # seconds since the last non-zero sample
        self._run: NDArray[np.int64] = np.zeros(rows, np.int64)  # consecutive non-zero samples
        self._burst: Floats = self.mean.copy()  # sum over the latest run of non-zero samples
        self._times: NDArray[np.int64] = np.zeros(rows, np.int64)  # non-zero samples in total

    def add(self, amount: Floats, seconds: float) -> None:
        """Add a sample: the (rows, columns) amounts of the last ``seconds``.

        The result is a plain mean until the samples cover the averaging time.
        """
        if seconds <= 0.0:
            return
        self.known_s += seconds
        newest = max(-np.expm1(-seconds / RECENT_S), seconds / self.known_s)
        self.recent = self.recent + newest * (amount[:, 0] / seconds - self.recent)
        # The gap of earlier bursts decides the weight, so that a late burst counts as much as the others.
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
        # Deviations are capped: a single peak must not raise the variance much, but many peaks must.
        self._variance += share * (np.minimum(square, limit) - self._variance)
        self._off = np.where(back, np.int8(0), off)

    def unsure(self, column: int = 0) -> float:
        """Share of the column's total rate that comes from rows with an unknown period: they have too few samples.

        Such a row may be steady or have a burst an hour. Its rate is estimated as if the next burst came now.
        """
        certain = (self._times >= STEADY) | (self._gap > 0.0)
        period_s = np.maximum(np.minimum(self._since, self.known_s), 1.0)
        estimate = np.where(certain, 0.0, self._burst[:, column] / period_s)
        total = float(self.mean[certain, column].sum() + estimate.sum())
        return float(estimate.sum()) / total if total > 0.0 else 0.0

    def quiet_s(self) -> Floats:
        """(rows,) seconds since the last non-zero sample."""
        return self._since

    def _bursts(self, amount: Floats, seconds: float) -> tuple[NDArray[np.bool_], Floats]:
        """Update the gap between bursts.

        Returns the rows whose gap becomes known with this sample, and the means. In those rows the mean is the previous
        burst divided by the gap.
        """
        active, quiet = amount[:, 0] > 0.0, self._since + seconds
        apart = active & np.isfinite(quiet) & (quiet > 2 * seconds)
        second = apart & (self._gap == 0.0)
        gap = np.where(apart, np.maximum(RARER * self._gap, quiet), self._gap)
        mean = np.where(second[:, None], self._burst / np.where(second, quiet, 1.0)[:, None], self.mean)
        self._run = np.where(active, self._run + 1, 0)
        self._burst = np.where((self._run == 1)[:, None], amount, self._burst + amount)
        self._gap = np.where(self._run >= STEADY, 0.0, gap)
        self._times += active
        self._since = np.where(active, 0.0, quiet)
        return second, mean

    def _limit(self, rate: Floats, mean: Floats, seconds: float) -> Floats:
        """The largest squared deviation from the mean that may be chance.

        The standard deviation of a count is at least its root; for rare messages that is the only estimate there is.
        """
        least = np.maximum(np.maximum(mean, rate) / seconds, (ROUGH * mean) ** 2)
        return SURE**2 * np.maximum(self._variance, least)

    def keep(self, rows: NDArray[np.intp], more: int = 0) -> None:
        """Keep only these rows, in this order, and append ``more`` new ones."""

        def resized(column: NDArray, new: float = 0) -> NDArray:  # type: ignore[type-arg]
            return np.concatenate([column[rows], np.full((more, *column.shape[1:]), new, column.dtype)])

        self.mean, self._last, self._before = resized(self.mean), resized(self._last), resized(self._before)
        self.recent = resized(self.recent)
        self._variance, self._off, self._age = resized(self._variance), resized(self._off), resized(self._age, YOUNG)
        self._gap, self._since, self._run = resized(self._gap), resized(self._since, np.inf), resized(self._run)
        self._burst, self._times = resized(self._burst), resized(self._times)
