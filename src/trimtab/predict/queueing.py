"""The queueing structure of a broker's latency: a fixed point of how often every topic is in processing.

Topic t takes ``rho_t = r_t * S_t`` of a core when it is alone, where ``S_t`` is the CPU time of a message and of its
copies for subscribers. While t is in processing, ``M`` of the other topics are too, and all of them run at the speed
``v(1 + M)`` of the hardware. So the worker of t is in use for the share

    x_t = rho_t / E[v(1 + M)],   M a sum of independent draws, one for each other topic u, with probability min(1, x_u)

of the time. The p90 of its latency grows with x from the time of one message at that speed. Beyond x = 1 the queue
grows for as long as the run lasts, which is two minutes unless the model was fitted to shorter ones. The latency is
that of the last of a topic's subscribers to get their copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from trimtab.compiled import compiled
from trimtab.errors import BadInput, BadKnob
from trimtab.model.hardware import Hardware
from trimtab.predict.spread import LEVELS, Spread

if TYPE_CHECKING:
    from trimtab.model.workload import Floats
    from trimtab.predict.sets import Ints, Sets

CLOSE: Final = 3e-4  # change of x between two rounds at which the fixed point is reached
ROUNDS: Final = 500
RUN_MS: Final = 120_000.0
PILED_UP: Final = 0.9  # of a run: what 90 % of its messages wait at most, per share of overload
MOST: Final = 1000  # topics on a broker; one set takes time in proportion to the square

# Quantiles of log residuals by x, of a model that was not calibrated: those of the paper's simulated hardware.
_AT: Final = (0.0, 0.5, 0.75, 0.85, 0.96, 0.99, 1.0, 1.02, 1.06, 1.2)
_SCALE: Final = (0.06, 0.06, 0.12, 0.16, 0.21, 0.25, 0.4, 0.25, 0.1, 0.06)  # mean size of a log residual
DEFAULT_SPREAD: Final = Spread(
    np.array(_AT), np.array(_SCALE), np.zeros(0), np.linspace(-2.4, 2.4, len(LEVELS))[None, :]
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How p90 grows with x, in times of one message: fitted to 600 random sets on the paper's simulated hardware."""

    idle: float = 1.08  # at x = 0
    linear: float = 2.07  # times x
    steep: float = 2.74  # times x ** 4
    knee: float = 0.0045  # width of the bend at x = 1
    drained: float = 0.43  # how much less waits where more is piled up: its neighbours are done before it is
    run_ms: float = RUN_MS  # of the runs that p90 is about

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < np.inf:
                raise BadKnob("shape of a queueing model", name, value, "a number, zero or more, and finite")


@dataclass(frozen=True, slots=True)
class Queueing:
    """The mean-field model of one kind of hardware. It is a latency model of its own.

    Its intervals are those of the paper's simulated hardware, unless it was calibrated: see ``predict.fit``.
    """

    name: ClassVar[str] = "queueing"

    hardware: Hardware
    shape: Shape = Shape()
    spread: Spread = DEFAULT_SPREAD

    @property
    def most(self) -> int:
        return MOST

    def solve(self, sets: Sets, close: float = CLOSE) -> tuple[Floats, Floats]:
        """(M,) use x of every topic's worker; (M,) mean time of one message in ms, at the speed it gets."""
        most = int(sets.sizes.max(initial=0))
        total = sets.sum(sets.rate) if self.hardware.overhead_ms > 0.0 else 0.0
        speed = np.atleast_2d(self.hardware.speeds(most, total))
        service = self.hardware.message_ms(sets.processing_ms, sets.subscribers)
        return _solve(sets.begin, sets.rate / 1000.0, service, speed, close)

    def cpu(self, sets: Sets) -> Floats:
        """(S,) share of all cores in use, by topics and by other processes."""
        used = _cores_in_use(sets.begin, self.use(sets), float(self.hardware.cores))
        return np.asarray(np.minimum((used + self.hardware.elsewhere(sets.sum(sets.rate))) / self.hardware.cores, 1.0))

    def use(self, sets: Sets) -> Floats:
        return self.solve(sets)[0]

    def p90_ms(self, sets: Sets) -> Floats:
        use, time = self.solve(sets)
        return self.latency(use, time)

    def latency(self, use: Floats, time: Floats) -> Floats:
        shape = self.shape
        inside = np.minimum(use, 1.0)
        growth = shape.idle + shape.linear * inside + shape.steep * inside**4
        knee = max(shape.knee, 1e-4)
        over = knee * np.logaddexp(0.0, (use - 1.0) / knee)
        waiting = PILED_UP * shape.run_ms * over / (1.0 + shape.drained * over)
        return np.asarray(self.hardware.network_ms + time * growth + waiting)

    def most_use(self, bound_ms: float) -> float:
        """The use of a worker above which p90 is above the bound, because of the waiting time alone.

        Waiting rises with the use, from ``PILED_UP * run_ms`` per share of overload to ``PILED_UP * run_ms / drained``
        at most. It is at least that of the overload without the bend at x = 1.
        """
        waiting = bound_ms - self.hardware.network_ms
        rise = PILED_UP * self.shape.run_ms - self.shape.drained * waiting
        return 1.0 + max(waiting, 0.0) / rise if rise > 0.0 else math.inf

    def interval_ms(self, sets: Sets, coverage: float = 0.9) -> tuple[Floats, Floats]:
        use, time = self.solve(sets)
        return self.spread.around(self.latency(use, time), use, coverage)

    def on(self, hardware: Hardware) -> Queueing:
        return replace(self, hardware=hardware)

    def as_json(self) -> dict[str, Any]:
        shape = {name: getattr(self.shape, name) for name in Shape.__slots__}
        spread = {} if self.spread is DEFAULT_SPREAD else {"spread": self.spread.as_json()}
        return {"hardware": self.hardware.as_json(), "shape": shape} | spread

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Queueing:
        hardware = Hardware.from_json(values["hardware"])
        shape = values.get("shape")
        if not isinstance(shape, dict) or shape.keys() - set(Shape.__slots__):
            raise BadInput(f"shape of a queueing model must be an object with {', '.join(Shape.__slots__)}, but is "
                           f"{shape!r}")  # fmt: skip
        spread = Spread.from_json(values["spread"]) if "spread" in values else DEFAULT_SPREAD
        return cls(hardware, Shape(**shape), spread)

    def with_hardware(self, **changes: Any) -> Queueing:
        return replace(self, hardware=replace(self.hardware, **changes))


@compiled
def _solve(begin: Ints, rate: Floats, service: Floats, speed: Floats, close: float) -> tuple[Floats, Floats]:
    """``speed`` has a row for each set, or one for all.

    From below and undamped: x rises to the least fixed point. A start from above, or fewer rounds, would be wrong
    where it matters: an optimiser finds the sets whose x comes out too low."""
    use, time = np.zeros(len(rate)), np.zeros(len(rate))
    chance = np.zeros(speed.shape[1] + 1)  # of so many topics in processing
    for s in range(len(begin) - 1):
        row = speed[min(s, len(speed) - 1)]
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
                time[t] = service[t] / _mean_speed(chance, last - first, min(use[t], 1.0), row)
            furthest = 0.0
            for t in range(first, last):
                furthest = max(furthest, rate[t] * time[t] - use[t])
                use[t] = rate[t] * time[t]
            if furthest <= close:
                break
    return use, time


@compiled
def _cores_in_use(begin: Ints, use: Floats, cores: float) -> Floats:
    """(S,) E[min(M, cores)], where M is the number of topics of the set in processing."""
    used = np.zeros(len(begin) - 1)
    for s in range(len(used)):
        count = begin[s + 1] - begin[s]
        chance = np.zeros(count + 1)
        chance[0] = 1.0
        for t in range(count):
            busy = min(use[begin[s] + t], 1.0)
            for m in range(t + 1, 0, -1):
                chance[m] = chance[m] * (1.0 - busy) + chance[m - 1] * busy
            chance[0] *= 1.0 - busy
        for m in range(count + 1):
            used[s] += chance[m] * min(float(m), cores)
    return used


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
