"""How much traffic the next hour brings, from the traffic of the past, with a margin that past forecasts needed.

The forecast repeats what followed this time of day in the last season (a day), scaled by how much higher traffic is
now than it was then: seasonal naive with a level correction (Hyndman and Athanasopoulos, Forecasting, 5.2). Without a
season of history, growth goes on as over the last horizon. The margin is a quantile of what the same rule missed at
earlier times: split conformal prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import BadKnob

if TYPE_CHECKING:
    from trimtab.model.workload import Floats

SCALE: Final = (0.5, 2.0)  # limits of the correction between now and a season ago
GROWTH: Final = (1.0, 2.0)  # limits of the growth that is expected without a season of history
UNKNOWN: Final = 1.2  # margin while there are too few earlier forecasts to learn it from
FORECASTS: Final = 10  # earlier forecasts to learn the margin from, at least
NOW: Final = 3  # windows whose mean is the present level
SIGNIFICANT: Final = 3.0  # standard deviations of noise that a rise must exceed
ALIKE: Final = 4  # rates that must be known to tell a common growth
NOTHING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Forecast:
    """The highest traffic that is expected within the horizon, as a multiple of the present traffic."""

    growth: float  # with the margin
    margin: float  # factor by which the expectation was raised
    seasonal: bool  # whether a season of history was there
    tested: int  # earlier forecasts behind the margin


def forecast(rates: Floats, horizon: int, season: int, coverage: float = 0.9) -> Forecast:
    """From rates in windows of equal length, the newest last, NaN where nothing was measured.

    ``horizon`` and ``season`` are numbers of windows. The share ``coverage`` of earlier forecasts, raised by the
    margin, were not exceeded.
    """
    for name, value in (("horizon", horizon), ("season", season)):
        if value < 1:
            raise BadKnob("forecast", name, value, "one window or more")
    if not 0.0 < coverage < 1.0:
        raise BadKnob("forecast", "coverage", coverage, "between 0 and 1")
    rates = _filled(np.asarray(rates, np.float64))
    if not len(rates):
        return Forecast(UNKNOWN, UNKNOWN, seasonal=False, tested=0)
    missed = [
        rates[end : end + horizon].max() / max(_expected(rates[:end], horizon, season)[0], NOTHING)
        for end in range(min(NOW, len(rates)), len(rates) - horizon + 1)
        if rates[:end].any()
    ]
    margin = UNKNOWN
    if len(missed) >= FORECASTS:
        margin = max(1.0, float(np.quantile(missed, coverage, method="higher")))
    expected, seasonal = _expected(rates, horizon, season)
    now = _level(rates, len(rates))
    growth = margin * expected / now if now > NOTHING else margin
    return Forecast(float(growth), margin, seasonal, len(missed))


def growing(rates: Floats, horizon: int) -> Floats:
    """(T,) by which factor rates will have grown after the horizon, if they go on to grow as over the last horizon.

    ``rates`` is (T, n), in windows of equal length, the newest last. A rate that does not grow, or by less than its
    own noise explains, stays as it is: the factor is 1. The slope is the median of the differences between windows, so
    that a single jump is no trend (Theil-Sen's robust line, with neighbours only).
    """
    rates = np.asarray(rates, np.float64)
    if rates.ndim != 2 or rates.shape[1] < horizon + NOW:
        return np.ones(len(rates))
    recent = rates[:, -(horizon + NOW) :]
    before, now = recent[:, :NOW].mean(axis=1), recent[:, -NOW:].mean(axis=1)
    steps = np.diff(recent, axis=1)
    noise = steps.std(axis=1) * np.sqrt(1.0 / NOW)  # of the difference between two means of independent windows
    rises = (now - before > SIGNIFICANT * noise) & (now > NOTHING)
    growth = 1.0 + np.median(steps, axis=1) * horizon / np.maximum(now, NOTHING)
    return np.where(rises, np.clip(growth, *GROWTH), 1.0)


def growing_together(rates: Floats, horizon: int) -> float:
    """The factor by which most of the rates will have grown after the horizon, if they go on to grow alike.

    Rates of single topics may be too noisy to show a rise that all of them share. In the median of all, each in
    proportion to its own mean, the noise of single rates cancels. 1 for fewer than ``ALIKE`` rates.
    """
    rates = np.asarray(rates, np.float64)
    if rates.ndim != 2 or rates.shape[1] < horizon + NOW:
        return 1.0
    busy = rates[rates.mean(axis=1) > NOTHING]
    if len(busy) < ALIKE:
        return 1.0
    common = np.median(busy / busy.mean(axis=1)[:, None], axis=0)
    return float(growing(common[None, :], horizon)[0])


def _expected(rates: Floats, horizon: int, season: int) -> tuple[float, bool]:
    """The highest rate that the rule expects after these windows, and whether a season of history was there."""
    end, now = len(rates), _level(rates, len(rates))
    if end >= season + NOW and horizon <= season:
        then = _level(rates, end - season)
        scale = float(np.clip(now / max(then, NOTHING), *SCALE))
        return max(now, scale * float(rates[end - season : end - season + horizon].max())), True
    before = _level(rates, end - horizon) if end > horizon else now
    return now * float(np.clip(now / max(before, NOTHING), *GROWTH)), False


def _level(rates: Floats, end: int) -> float:
    """The mean rate of the last windows before ``end``."""
    return float(rates[max(0, end - NOW) : end].mean()) if end > 0 else 0.0


def _filled(rates: Floats) -> Floats:
    """With the last value before each gap; windows before the first measurement are dropped."""
    known = np.flatnonzero(np.isfinite(rates))
    if not len(known):
        return np.zeros(0)
    last = np.maximum.accumulate(np.where(np.isfinite(rates), np.arange(len(rates)), -1))
    return np.asarray(rates[last[known[0] :]])
