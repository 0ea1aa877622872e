"""An alarm for latencies that leave their prediction: the machine has become slower or faster, or does other work.

A model has an error of its own for every topic, which stays the same from window to window. So the first windows of
each topic show its usual deviation from the prediction, and the alarm is about changes since: Page's cumulative sum
test (Biometrika, 1954) of the log-likelihood ratio between "as usual" and "slower by ``change``", one more for faster.
Without a change, the mean time between false alarms is at least ``1 / false_alarms`` windows (Lorden, Annals of
Mathematical Statistics, 1971); this needs windows that are nearly independent, with normally distributed logarithms.
One odd window never rings.

Deviations that are there from the beginning are seen by ``misfit``: more topics outside their intervals than intervals
allow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import BadInput, BadKnob

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.model.workload import Floats

LEAST_NOISE: Final = 0.05  # of the mean deviation of a window, as a share of latency
LEAST_WINDOWS: Final = 3  # that it takes to ring
WITHIN_90: Final = 1.645  # standard deviations between the prediction and each limit of a 90 % interval
RECENT: Final = 12  # windows that the factor is a mean of, at most


@dataclass(frozen=True, slots=True)
class Settings:
    change: float = 1.5  # factor of latency that must be noticed; a change below its square root never rings
    false_alarms: float = 1e-4  # per window
    settle: int = 12  # windows in which a topic's usual deviation is learned

    def __post_init__(self) -> None:
        if not 1.0 < self.change < math.inf:
            raise BadKnob("drift alarm", "change", self.change, "a factor above 1")
        if not 0.0 < self.false_alarms < 1.0:
            raise BadKnob("drift alarm", "false_alarms", self.false_alarms, "between 0 and 1")
        if self.settle < 3:
            raise BadKnob("drift alarm", "settle", self.settle, "3 windows or more")

    @property
    def threshold(self) -> float:
        return -math.log(self.false_alarms)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """One window of one broker. A topic without messages has a measured latency of NaN, or is left out."""

    topics: tuple[str, ...]
    measured_ms: Floats  # p90 of each topic
    predicted_ms: Floats
    low_ms: Floats  # of the 90 % interval
    high_ms: Floats

    def deviations(self) -> dict[str, tuple[float, float, float]]:
        """By topic: log of measured over predicted, its expected size, and 1 outside the interval, else 0."""
        limits = np.array([self.predicted_ms, self.low_ms, self.high_ms], np.float64)
        if not (np.isfinite(limits) & (limits > 0.0)).all():
            raise BadInput("the predicted latencies of a window must be above zero, and finite")
        found = {}
        for topic, measured, (predicted, low, high) in zip(
            self.topics, self.measured_ms.tolist(), limits.T.tolist(), strict=True
        ):
            if measured > 0.0 and math.isfinite(measured):
                size = max(math.log(high / low) / (2.0 * WITHIN_90), LEAST_NOISE)
                found[topic] = (math.log(measured / predicted), size, float(not low <= measured <= high))
        return found


@dataclass(frozen=True, slots=True)
class Usual:
    """The deviation of one topic in its first windows."""

    seen: tuple[float, ...] = ()
    outside: float = 0.0  # windows outside the interval

    @property
    def offset(self) -> float:
        return float(np.median(self.seen))


@dataclass(frozen=True, slots=True)
class Drift:
    """The state of the alarm of one broker. A new placement of its topics needs a new one."""

    settings: Settings = Settings()
    usual: Mapping[str, Usual] = field(default_factory=dict)
    first: tuple[float, ...] = ()  # mean deviations of the first windows after settling began, for the noise
    recent: tuple[float, ...] = ()  # mean deviations of the last windows in which topics were settled
    slower: float = 0.0  # the two cumulative sums
    faster: float = 0.0

    def after(self, window: Window) -> Drift:
        """The state after one more window."""
        deviations = window.deviations()
        usual = dict(self.usual)
        total = weight = 0.0
        for topic, (value, size, outside) in deviations.items():
            known = usual.get(topic, Usual())
            if len(known.seen) < self.settings.settle:
                usual[topic] = Usual((*known.seen, value), known.outside + outside)
            else:
                total += (value - known.offset) / size**2
                weight += 1.0 / size**2
        state = replace(self, usual=usual)
        if not weight:
            return replace(state, first=(*self.first, _mean(deviations)) if deviations else self.first)
        mean = total / weight
        step, noise = math.log(self.settings.change), self._noise()
        most = self.settings.threshold / LEAST_WINDOWS + 1e-9
        slower, faster = (
            max(0.0, before + min(step / noise**2 * (sign * mean - step / 2.0), most))
            for before, sign in ((self.slower, 1.0), (self.faster, -1.0))
        )
        return replace(state, recent=(*self.recent, mean)[-RECENT:], slower=slower, faster=faster)

    def _noise(self) -> float:
        """Of a window's mean deviation: from the windows of settling."""
        if len(self.first) < 3:
            return 4.0 * LEAST_NOISE
        values = np.array(self.first)
        return max(float(values.std(ddof=1)), float(np.diff(values).std()) / math.sqrt(2.0), LEAST_NOISE)

    @property
    def settled(self) -> bool:
        """Whether the usual deviation of any topic is known."""
        return any(len(known.seen) >= self.settings.settle for known in self.usual.values())

    @property
    def ringing(self) -> bool:
        return max(self.slower, self.faster) >= self.settings.threshold

    @property
    def factor(self) -> float:
        """Latency now over usual latency, by the windows since the change if the alarm rings."""
        if not self.recent:
            return 1.0
        windows = LEAST_WINDOWS if self.ringing else len(self.recent)
        return math.exp(float(np.mean(self.recent[-windows:])))

    @property
    def misfit(self) -> float:
        """The chance that as many topics lie outside their 90 % intervals, if the intervals are right."""
        settled = [known for known in self.usual.values() if len(known.seen) >= self.settings.settle]
        outside = sum(known.outside > len(known.seen) / 2 for known in settled)
        n = len(settled)
        return math.fsum(math.comb(n, k) * 0.1**k * 0.9 ** (n - k) for k in range(outside, n + 1))

    @property
    def reason(self) -> str:
        """What has happened, in words; empty while all is as usual."""
        if self.ringing:
            way = "slower" if self.slower >= self.faster else "faster"
            return f"topics are {way} than usual: their latency is {self.factor:.2f} times what it was"
        if self.settled and self.misfit < self.settings.false_alarms:
            return "predictions do not fit this broker: measure its hardware again with trimtab profile"
        return ""


def _mean(deviations: Mapping[str, tuple[float, float, float]]) -> float:
    weights = [1.0 / size**2 for _, size, _ in deviations.values()]
    return float(np.average([value for value, _, _ in deviations.values()], weights=weights))
