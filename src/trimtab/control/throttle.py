"""How many moves run at once: one more while deliveries stay quick, half as many when they do not.

Additive increase, multiplicative decrease, as in Cruise Control's executor, but by what subscribers feel.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FEWEST: Final = 1
FIRST: Final = 4


@dataclass(slots=True)
class Throttle:
    limit_ms: float
    most: int = 64
    at_once: int = FIRST

    def told(self, latency_ms: float) -> int:
        """The p99 of deliveries since the last time; how many may run now."""
        if latency_ms > self.limit_ms:
            self.at_once = max(FEWEST, self.at_once // 2)
        else:
            self.at_once = min(self.most, self.at_once + 1)
        return self.at_once
