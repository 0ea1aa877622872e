"""Brokers that died or refused moves: they get no keys for a while, longer after each incident."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trimtab.control.memory import Incidents
from trimtab.control.move_memory import FORGET

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.control.settings import Settings

LONG: Final = 8  # the most periods that a broker which keeps dying must stay alive before it gets keys


@dataclass(slots=True)
class Trouble:
    settings: Settings
    _incidents: dict[str, Incidents] = field(default_factory=dict)

    def died(self, broker: str, now: float) -> None:
        self._add(broker, now, math.inf)

    def returned(self, broker: str, now: float) -> None:
        """Use the broker again after one period; after two the second time, four the third, up to ``LONG``."""
        if (incidents := self._incidents.get(broker)) is not None:
            incidents.until = now + self.settings.period_s * min(LONG, 2 ** (incidents.times - 1))

    def failed(self, broker: str, now: float) -> bool:
        """Moves to the broker failed. Returns False if the broker is already being avoided."""
        incidents = self._incidents.get(broker, Incidents())
        if now < incidents.until:
            return False
        self._add(broker, now, self.settings.cool_s * 2**incidents.times)
        return True

    def until(self, broker: str) -> float:
        return self._incidents.get(broker, Incidents()).until

    def _add(self, broker: str, now: float, for_s: float) -> None:
        incidents = self._incidents.setdefault(broker, Incidents())
        if now - incidents.last > FORGET * self.settings.cool_s:
            incidents.times = 0
        incidents.times, incidents.last, incidents.until = incidents.times + 1, now, now + for_s

    def stored(self, now: float) -> dict[str, Incidents]:
        """JSON has no infinity: a dead broker is avoided for a very long time instead."""
        return {
            name: Incidents(incidents.times, incidents.last, min(incidents.until, now + 1e9))
            for name, incidents in self._incidents.items()
        }

    def restore(self, stored: Mapping[str, Incidents]) -> None:
        self._incidents = dict(stored)
