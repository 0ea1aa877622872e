"""What the judge found: one value that every family, command and report reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from trimtab.model.workload import Floats

# A limit counts as kept when it is exceeded by no more than this share of it: real-valued rates do not add
# up exactly, and 0.1 + 0.1 + 0.1 must fit into 0.3.
TOLERANCE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Violation:
    """A limit of a broker that is exceeded; raising the limit to ``used`` would mend it."""

    resource: str  # column of brokers
    broker: str
    used: float
    limit: float

    def __str__(self) -> str:
        over = self.used - self.limit
        return f"broker '{self.broker}' uses {self.used:g} of {self.limit:g} {self.resource}: {over:g} too much"


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Data per second in and out of every broker."""

    per_broker: Floats  # (B,)

    @property
    def max(self) -> float:
        return float(self.per_broker.max(initial=0.0))

    @property
    def mean(self) -> float:
        return self.total / len(self.per_broker) if len(self.per_broker) else 0.0

    @property
    def total(self) -> float:
        return float(self.per_broker.sum())

    @property
    def cov(self) -> float:
        """Coefficient of variation over all brokers, idle ones included."""
        return float(np.std(self.per_broker / self.mean)) if self.mean > 0.0 else 0.0

    def as_json(self) -> dict[str, float]:
        return {"max": self.max, "mean": self.mean, "total": self.total, "cov": self.cov}


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """The figures of one placement. A family that needs more of them adds a part like ``load``."""

    received: float  # data/s that arrive at subscribers
    offered: float  # data/s that would arrive if every subscription were served
    brokers_used: int
    placed: int  # units
    unplaced: int
    violations: tuple[Violation, ...]
    load: Load

    @property
    def received_share(self) -> float:
        """In [0, 1]; 1 when nothing is offered."""
        return self.received / self.offered if self.offered > 0.0 else 1.0

    @property
    def feasible(self) -> bool:
        return not self.violations

    def as_json(self) -> dict[str, Any]:
        return {
            "received": self.received,
            "offered": self.offered,
            "received_share": self.received_share,
            "brokers_used": self.brokers_used,
            "placed": self.placed,
            "unplaced": self.unplaced,
            "violations": len(self.violations),
            "violated": [
                {"resource": v.resource, "broker": v.broker, "used": v.used, "limit": v.limit} for v in self.violations
            ],
            "load": self.load.as_json(),
        }
