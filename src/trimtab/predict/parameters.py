"""The parameters of the queueing model as a vector, with their prior: what ``predict.fit`` searches.

Each parameter is written as ``z = (value - prior) / deviation``. The real CPU time of a message is that of the prior
profile, stretched: ``S = offset + exp(stretch) * S_prior(nominal)``; nominal times that many topics share may deviate
from this line.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from trimtab.model.hardware import Hardware
    from trimtab.model.workload import Floats
    from trimtab.predict.queueing import Queueing
    from trimtab.predict.sets import Sets

MOST_POINTS: Final = 8  # nominal times with a CPU time of their own
TOPICS_PER_POINT: Final = 5  # at least
POINT_DEVIATION: Final = 0.08  # of the logarithm of such a CPU time from the line
LEAST_MS: Final = 1e-3  # CPU time of a message
# name: deviation, least, most; of fields of the hardware
MACHINE: Final = {
    "contention": (0.10, 0.0, 2.0),
    "exponent": (0.25, 0.1, 2.0),
    "switching": (0.03, 0.0, 1.0),
    "sibling": (0.10, 0.0, 1.0),
    "network_ms": (3.0, 0.0, 1000.0),
    "background": (0.10, 0.0, np.inf),  # at most nine tenths of the cores
    "overhead_ms": (3.0, 0.0, 50.0),
}
FANOUT: Final = {"fanout_ms": (0.03, 0.0, 10.0)}  # where topics have different numbers of subscribers
SHAPE: Final = {
    "idle": (0.15, 0.5, 3.0),
    "linear": (0.8, 0.0, 20.0),
    "steep": (1.0, 0.0, 30.0),
    "knee": (0.003, 2e-4, 0.2),
    "drained": (0.2, 0.0, 3.0),
}


@dataclass(frozen=True, slots=True, eq=False)
class Parameters:
    """How to make a model of a vector z; z = 0 is the prior."""

    prior: Queueing
    offset_ms: float  # deviation of the offset
    nominal: Floats  # (P,) nominal times with a CPU time of their own
    start: Floats  # of fields of the hardware, then of the shape
    deviation: Floats
    low: Floats  # of z
    high: Floats
    machine: tuple[str, ...]  # fields of the hardware

    @classmethod
    def of(cls, prior: Queueing, sets: Sets) -> Parameters:
        processing_ms = sets.processing_ms
        limits = MACHINE | FANOUT if (sets.subscribers != sets.subscribers[:1]).any() else MACHINE
        values, count = np.unique(processing_ms, return_counts=True)
        shared = (count >= TOPICS_PER_POINT).all() and len(values) <= MOST_POINTS
        nominal = values if shared else np.zeros(0)
        machine = {name: getattr(prior.hardware, name) for name in limits}
        shape = {name: getattr(prior.shape, name) for name in SHAPE}
        start = np.array([*machine.values(), *shape.values()])
        deviation, least, most = np.array([*limits.values(), *SHAPE.values()]).T
        most[list(limits).index("background")] = 0.9 * prior.hardware.cores
        free = np.full(2 + len(nominal), 10.0)  # stretched, offset, points: the prior alone limits them
        low = np.concatenate([-free, (np.minimum(least, start) - start) / deviation])
        high = np.concatenate([free, (np.maximum(most, start) - start) / deviation])
        offset = 0.25 * float(np.median(prior.hardware.service_ms(processing_ms)))
        return cls(prior, offset, nominal, start, deviation, low - 1e-9, high + 1e-9, tuple(limits))

    @property
    def names(self) -> list[str]:
        return ["stretch", "offset", *(f"at {value:g} ms" for value in self.nominal), *self.machine, *SHAPE]

    def model(self, z: Floats) -> Queueing:
        known = 2 + len(self.nominal)
        values = np.maximum(self.start + self.deviation * z[known:], 0.0)
        changes: dict[str, Any] = dict(zip(self.machine, values.tolist(), strict=False))
        shape = dict(zip(SHAPE, values[len(self.machine) :].tolist(), strict=True))
        hardware = replace(self.prior.hardware, service=self._service(z), **changes)
        return replace(self.prior, hardware=hardware, shape=replace(self.prior.shape, **shape))

    def _service(self, z: Floats) -> tuple[tuple[float, float], ...]:
        hardware: Hardware = self.prior.hardware
        nominal = self.nominal if len(self.nominal) >= 2 else np.array([pair[0] for pair in hardware.service])
        real = self.offset_ms * z[1] + np.exp(z[0]) * hardware.service_ms(nominal)
        if len(self.nominal) >= 2:
            real = real * np.exp(POINT_DEVIATION * z[2 : 2 + len(nominal)])
        real = np.maximum.accumulate(np.maximum(real, LEAST_MS))
        return tuple(zip(nominal.tolist(), real.tolist(), strict=True))
