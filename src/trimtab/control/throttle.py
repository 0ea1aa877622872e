"""How many moves run at once: one more while deliveries stay quick, half as many when they do not.

Additive increase, multiplicative decrease, as in Cruise Control's executor, driven by subscribers' delivery latency.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

FEWEST: Final = 1
FIRST: Final = 4


@dataclass(slots=True)
class Throttle:
    limit_ms: float
    most: int = 64
    at_once: int = FIRST
    _halved_at: float = -math.inf

    def adjust(self, latency_ms: float, measured_at: float) -> int:
        """Adjust to the p99 of deliveries in a measurement. Returns how many moves may run at once.

        One measurement halves that number at most once.
        """
        if latency_ms > self.limit_ms:
            if measured_at != self._halved_at:
                self.at_once, self._halved_at = max(FEWEST, self.at_once // 2), measured_at
        else:
            self.at_once = min(self.most, self.at_once + 1)
        return self.at_once
