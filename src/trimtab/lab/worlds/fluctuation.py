"""Rates that rise and fall (Nguyen et al., DEBS'19, 6.2.1), in virtual time.

Every minute a quarter of the backend subscriptions is chosen to rise at some time within the next three minutes; a rate
that has risen falls back four to six minutes later. The paper leaves two points open, chosen here: a rate rises to 1.5
to 3 times its value, and a rate that is up or about to rise is not chosen again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

CHOSEN: Final = 0.25  # share of the subscriptions chosen at a time
EVERY_S: Final = 60.0  # interval between two choices
WITHIN_S: Final = 180.0  # longest time from the choice to the rise
LASTS_S: Final = (240.0, 360.0)  # shortest and longest time from the rise to the fall
FACTOR: Final = (1.5, 3.0)  # smallest and largest factor of a rate that has risen


class Fluctuation:
    """Factors of all rates over ``minutes``. They are drawn once, so that all policies see the same rates."""

    def __init__(self, topics: int, minutes: float, seed: int) -> None:
        rng = np.random.default_rng((seed, 1))
        rises, falls, which, factors = [], [], [], []
        until = np.zeros(topics)  # time at which each rate has fallen back
        for start in np.arange(0.0, minutes * 60.0, EVERY_S):
            chosen = np.flatnonzero(until <= start)
            chosen = rng.choice(chosen, min(int(CHOSEN * topics), len(chosen)), replace=False)
            up = start + rng.uniform(0.0, WITHIN_S, len(chosen))
            down = up + rng.uniform(*LASTS_S, len(chosen))
            until[chosen] = down
            rises.append(up)
            falls.append(down)
            which.append(chosen)
            factors.append(rng.uniform(*FACTOR, len(chosen)))
        self._topics = topics
        self._rises, self._falls = np.concatenate(rises), np.concatenate(falls)
        self._which, self._factor = np.concatenate(which), np.concatenate(factors)

    def at(self, time_s: float) -> Floats:
        """The factor of every rate."""
        up = (self._rises <= time_s) & (time_s < self._falls)
        factor = np.ones(self._topics)
        factor[self._which[up]] = self._factor[up]
        return factor
