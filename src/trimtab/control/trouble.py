"""Brokers that died, or to which moves failed: no key goes there for a while, longer each time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trimtab.control.move_memory import FORGET

if TYPE_CHECKING:
    from trimtab.control.settings import Settings

LONG: Final = 8  # periods that a broker must be alive before it is used, if it keeps dying


@dataclass(slots=True)
class _Record:
    times: int = 0
    last: float = 0.0
    until: float = 0.0  # no key goes there before this


@dataclass(slots=True)
class Trouble:
    settings: Settings
    _records: dict[str, _Record] = field(default_factory=dict)

    def died(self, broker: str, now: float) -> None:
        self._add(broker, now, math.inf)

    def returned(self, broker: str, now: float) -> None:
        """It is used after a period, after twice as long the second time, and so on."""
        if (known := self._records.get(broker)) is not None:
            known.until = now + self.settings.period_s * min(LONG, 2 ** (known.times - 1))

    def failed(self, broker: str, now: float) -> bool:
        """Moves there failed; whether that is news."""
        known = self._records.get(broker, _Record())
        if now < known.until:
            return False
        self._add(broker, now, self.settings.cool_s * 2**known.times)
        return True

    def until(self, broker: str) -> float:
        return self._records.get(broker, _Record()).until

    def _add(self, broker: str, now: float, for_s: float) -> None:
        known = self._records.setdefault(broker, _Record())
        if now - known.last > FORGET * self.settings.cool_s:
            known.times = 0
        known.times, known.last, known.until = known.times + 1, now, now + for_s

    def as_json(self, now: float) -> dict[str, Any]:
        return {name: [r.times, r.last, min(r.until, now + 1e9)] for name, r in self._records.items()}

    def restore(self, values: dict[str, Any]) -> None:
        self._records = {name: _Record(*each) for name, each in values.items()}
