"""Where a client goes that nobody knows yet (the initial placement of Nguyen, DEBS'19, section 5).

What it will want is not known when it comes, so it counts as much as the mean of those who are there. It stays where it
came, which is near it as far as anybody knows, unless that broker has more than the mean; then it goes to the one that
has least.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from trimtab.control.view import View
    from trimtab.model.workload import Floats


@dataclass(slots=True)
class Newcomers:
    """Since the last look: those who came after it are not in its loads."""

    _brokers: tuple[str, ...] = ()
    _level: Floats = field(default_factory=lambda: np.zeros(0))  # load for a broker's strength
    _each: Floats = field(default_factory=lambda: np.zeros(0))  # by how much one more raises it

    def look(self, view: View, unfit: Collection[str]) -> None:
        """As it is now; nobody is sent to a broker that is ``unfit``."""
        load, speed = view.load(), np.maximum(view.problem.speed, 1e-9)
        fit = [row for row, name in enumerate(view.brokers) if name not in unfit]
        one = max(float(load.per_broker.sum()) / max(1, len(view.clients)), 1.0)
        self._brokers = tuple(view.brokers[row] for row in fit)
        self._level = load.levels[fit].astype(np.float64)
        self._each = one / speed[fit]

    def place(self, came_to: str) -> str:
        """Its home, and count it there; where it came if nothing is known of the fleet."""
        if not self._brokers:
            return came_to
        row = self._brokers.index(came_to) if came_to in self._brokers else -1
        if row < 0 or self._level[row] > self._level.mean():
            row = int(np.argmin(self._level + self._each))
        self._level[row] += self._each[row]
        return self._brokers[row]
