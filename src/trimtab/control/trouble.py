"""Brokers that died or refused moves: they get no keys for a while, longer after each incident."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trimtab.control.move_memory import FORGET

if TYPE_CHECKING:
    from trimtab.control.settings import Settings

LONG: Final = 8  # the most periods that a broker which keeps dying must stay alive before it gets keys


@dataclass(slots=True)
class _Record:
    times: int = 0
    last: float = 0.0
    until: float = 0.0  # the broker gets no keys before this time


@dataclass(slots=True)
class Trouble:
    settings: Settings
    _records: dict[str, _Record] = field(default_factory=dict)

    def died(self, broker: str, now: float) -> None:
        self._add(broker, now, math.inf)

    def returned(self, broker: str, now: float) -> None:
        """Use the broker again after one period; after two the second time, four the third, up to ``LONG``."""
        if (record := self._records.get(broker)) is not None:
            record.until = now + self.settings.period_s * min(LONG, 2 ** (record.times - 1))

    def failed(self, broker: str, now: float) -> bool:
        """Moves to the broker failed. Returns False if the broker is already being avoided."""
        record = self._records.get(broker, _Record())
        if now < record.until:
            return False
        self._add(broker, now, self.settings.cool_s * 2**record.times)
        return True

    def until(self, broker: str) -> float:
        return self._records.get(broker, _Record()).until

    def _add(self, broker: str, now: float, for_s: float) -> None:
        record = self._records.setdefault(broker, _Record())
        if now - record.last > FORGET * self.settings.cool_s:
            record.times = 0
        record.times, record.last, record.until = record.times + 1, now, now + for_s

    def as_json(self, now: float) -> dict[str, Any]:
        return {name: [r.times, r.last, min(r.until, now + 1e9)] for name, r in self._records.items()}

    def restore(self, values: dict[str, Any]) -> None:
        self._records = {name: _Record(*row) for name, row in values.items()}
