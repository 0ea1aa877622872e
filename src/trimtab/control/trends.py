"""Rates of topics with a latency bound over the last measurements, and how much they will have grown.

The look-ahead is as long as it takes from a finding to the effect of the plan that mends it: the measurements that must
confirm it, the plan, and the moves. So a bound about to be missed is mended before it is.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.observe.average import RECENT_S
from trimtab.predict.forecast import NOTHING, NOW, growing, growing_together

if TYPE_CHECKING:
    from trimtab.control.settings import Settings
    from trimtab.control.view import View
    from trimtab.model.workload import Floats

LAG_S: Final = 20.0  # time constant of the moving averages of rates
FASTEST: Final = 2.0  # factor by which recent rates count as higher than their averages, at most
LEAST: Final = 4  # windows of the horizon: fewer do not tell a trend from noise
MOST: Final = 60  # windows
SLIGHT: Final = 1.02  # growth below which a rate counts as steady


@dataclass(slots=True)
class Trends:
    """Call ``look`` with every view."""

    settings: Settings
    _rates: dict[str, deque[float]] = field(default_factory=dict)  # by topic, the newest last
    _at: deque[float] = field(default_factory=lambda: deque(maxlen=NOW + LEAST))  # times of the last measurements
    _lag_s: float = LAG_S  # by which the measured rates lag

    def look(self, view: View) -> View:
        """The view with the expected growth of every topic that has a bound. A view that has it is unchanged."""
        topics = view.snapshot.workload.topics
        bounds = topics.latency_ms
        if view.snapshot.growth is not None or bounds is None or np.isnan(bounds).all():
            return view
        rows = np.flatnonzero(~np.isnan(bounds)).tolist()
        recent = view.snapshot.recent
        rate = topics.rate if recent is None else recent
        self._lag_s = LAG_S if recent is None else RECENT_S
        fresh = not self._at or view.at > self._at[-1]
        if fresh:
            self._at.append(view.at)
        horizon = self.horizon()
        known = {}
        for row in rows:
            name = topics.ids[row]
            rates = known[name] = self._rates.get(name) or deque()
            if fresh:
                rates.append(float(rate[row]))
            while len(rates) > horizon + NOW:
                rates.popleft()
        self._rates = known
        old = [row for row in rows if len(known[topics.ids[row]]) == horizon + NOW]
        growth = np.ones(len(topics))
        if old:
            growth[old] = _growth(np.array([known[topics.ids[row]] for row in old]), topics.rate[old], horizon)
            growth[growth < SLIGHT] = 1.0
        return replace(view, snapshot=replace(view.snapshot, growth=growth))

    def horizon(self) -> int:
        """The number of measurements from a finding to the effect of its plan."""
        gaps = np.diff(self._at)
        interval = max(float(np.median(gaps)), 1e-3) if len(gaps) else self.settings.period_s
        return min(max(LEAST, math.ceil(self.horizon_s(interval) / interval)), MOST)

    def horizon_s(self, interval: float) -> float:
        """The look-ahead in seconds: measurements that confirm the finding, one period for the plan and its moves, and
        the time by which measured rates, which are moving averages, lag behind a steady growth. The present level is a
        mean of several measurements, which adds half of their time to the lag of recent rates."""
        level_s = interval * (NOW - 1) / 2 if self._lag_s == RECENT_S else 0.0
        return (self.settings.patience + 1) * max(self.settings.period_s, interval) + self._lag_s + level_s


def _growth(past: Floats, rate: Floats, horizon: int) -> Floats:
    """(T,) factor by which the averages ``rate`` will have grown, from (T, n) measured rates, the newest last.

    A rate that rises counts from its present level, which the average has not reached yet.
    """
    level = past[:, -NOW:].mean(axis=1)
    own, common = growing(past, horizon), growing_together(past, horizon)
    ahead = np.clip(level / np.maximum(rate, NOTHING), 1.0, FASTEST)
    ahead_together = float(np.clip(level.sum() / max(rate.sum(), NOTHING), 1.0, FASTEST))
    return np.maximum(np.where(own > 1.0, own * ahead, 1.0), common * ahead_together if common > 1.0 else 1.0)
