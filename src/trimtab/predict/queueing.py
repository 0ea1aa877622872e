"""The queueing structure of a broker's latency: a fixed point of how often every topic is in processing.

Topic t takes ``rho_t = r_t * S_t`` of a core when it is alone, where ``S_t`` is the CPU time of a message. While t is
in processing, ``M`` of the other topics are too, and all of them run at the speed ``v(1 + M)`` of the hardware. So the
worker of t is in use for the share

    x_t = rho_t / E[v(1 + M)],   M a sum of independent draws, one for each other topic u, with probability min(1, x_u)

of the time. The p90 of its latency grows from the time of one message at that speed, first slowly with x and then as
the queue does. Beyond x = 1 the queue grows for as long as the run lasts, which is two minutes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.compiled import compiled
from trimtab.predict.hardware import Hardware

if TYPE_CHECKING:
    from trimtab.model.workload import Floats
    from trimtab.predict.sets import Ints, Sets

CLOSE: Final = 3e-4  # change of x between two rounds at which the fixed point is reached
ROUNDS: Final = 500
PILED_UP_MS: Final = 108_000.0  # what 90 % of two minutes' messages wait at most, per share of overload


@dataclass(frozen=True, slots=True)
class Shape:
    """How p90 grows with x, in times of one message."""

    idle: float = 1.15  # at x = 0
    square: float = 1.5  # times x ** 2
    steep: float = 6.0  # times x ** 8
    knee: float = 0.01  # width of the bend at x = 1


@dataclass(frozen=True, slots=True)
class Queueing:
    """The mean-field model of one kind of hardware."""

    hardware: Hardware
    shape: Shape = Shape()

    def solve(self, sets: Sets) -> tuple[Floats, Floats]:
        """(M,) use x of every topic's worker; (M,) mean time of one message in ms, at the speed it gets."""
        most = int(sets.sizes.max(initial=0))
        return _solve(
            sets.begin, sets.rate / 1000.0, self.hardware.service_ms(sets.processing_ms), self.hardware.speeds(most)
        )

    def use(self, sets: Sets) -> Floats:
        return self.solve(sets)[0]

    def p90_ms(self, sets: Sets) -> Floats:
        use, time = self.solve(sets)
        return self.latency(use, time)

    def latency(self, use: Floats, time: Floats) -> Floats:
        shape = self.shape
        inside = np.minimum(use, 1.0)
        growth = shape.idle + shape.square * inside**2 + shape.steep * inside**8
        knee = max(shape.knee, 1e-4)
        over = knee * np.logaddexp(0.0, (use - 1.0) / knee)
        return np.asarray(self.hardware.network_ms + time * growth + PILED_UP_MS * over)

    def as_json(self) -> dict[str, Any]:
        shape = {name: getattr(self.shape, name) for name in Shape.__slots__}
        return {"hardware": self.hardware.as_json(), "shape": shape}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Queueing:
        return cls(Hardware.from_json(values["hardware"]), Shape(**values["shape"]))

    def with_hardware(self, **changes: Any) -> Queueing:
        return replace(self, hardware=replace(self.hardware, **changes))


@compiled
def _solve(begin: Ints, rate: Floats, service: Floats, speed: Floats) -> tuple[Floats, Floats]:
    """From below and undamped: x rises to the least fixed point. A start from above, or fewer rounds, would be wrong
    where it matters: an optimiser finds the sets whose x comes out too low."""
    use, time = np.zeros(len(rate)), np.zeros(len(rate))
    chance = np.zeros(len(speed) + 1)  # of so many topics in processing
    for s in range(len(begin) - 1):
        first, last = begin[s], begin[s + 1]
        for _ in range(ROUNDS):
            chance[0] = 1.0
            for t in range(first, last):
                busy = min(use[t], 1.0)
                count = t - first
                chance[count + 1] = chance[count] * busy
                for m in range(count, 0, -1):
                    chance[m] = chance[m] * (1.0 - busy) + chance[m - 1] * busy
                chance[0] *= 1.0 - busy
            for t in range(first, last):
                time[t] = service[t] / _mean_speed(chance, last - first, min(use[t], 1.0), speed)
            furthest = 0.0
            for t in range(first, last):
                furthest = max(furthest, rate[t] * time[t] - use[t])
                use[t] = rate[t] * time[t]
            if furthest <= CLOSE:
                break
    return use, time


@compiled
def _mean_speed(chance: Floats, count: int, busy: float, speed: Floats) -> float:
    """E[v(1 + M)], where ``chance`` is about all topics and the one that asks is in processing with chance ``busy``.

    Its own part is divided out of the distribution, from the end where that is stable.
    """
    mean = 0.0
    if busy < 0.5:
        left = 0.0
        for m in range(count):
            left = (chance[m] - busy * left) / (1.0 - busy)
            mean += left * speed[m + 1]
    else:
        left = 0.0
        for m in range(count - 1, -1, -1):
            left = (chance[m + 1] - (1.0 - busy) * left) / busy
            mean += left * speed[m + 1]
    return mean
