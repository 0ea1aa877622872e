"""The judge's figures of a placement, used by every family, command and report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from trimtab.model.placement import Figure
    from trimtab.model.workload import Floats

# A limit counts as kept if it is exceeded by at most this share: sums of real-valued rates have rounding errors, and
# 0.1 + 0.1 + 0.1 must fit into 0.3.
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
    speed: Floats | None = None  # (B,) strength of each, 1 on average; None: all alike

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
    def levels(self) -> Floats:
        """Load relative to strength: the load that a broker of mean strength would have. Infinite for a loaded broker
        without strength."""
        if self.speed is None:
            return self.per_broker
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.per_broker > 0.0, self.per_broker / self.speed, 0.0)

    @property
    def level(self) -> float:
        """The highest level; with equal strengths, the maximum load."""
        return float(self.levels.max(initial=0.0))

    @property
    def cov(self) -> float:
        """Coefficient of variation of the levels, idle brokers included (Nguyen, (6)), not those without strength."""
        levels = self.levels if self.speed is None else self.levels[self.speed > 0.0]
        mean = float(levels.mean()) if len(levels) else 0.0
        return float(np.std(levels / mean)) if mean > 0.0 else 0.0

    def as_json(self) -> dict[str, float | None]:
        level = self.level if np.isfinite(self.level) else None
        return {"max": self.max, "mean": self.mean, "total": self.total, "level": level, "cov": self.cov}


@dataclass(frozen=True, slots=True)
class Moves:
    """The cost of changing the current placement into this one."""

    units: int  # units that change their broker
    data: float  # data/s of their subscriptions
    least: int  # lower bound on moves for any placement with this level of load

    def as_json(self) -> dict[str, float]:
        return {"units": self.units, "data": self.data, "least": self.least}


@dataclass(frozen=True, slots=True, eq=False)
class Delay:
    """Mean delay of notifications over all publications (Tanaka et al., (7) to (9)), and the brokers' use behind it."""

    near_ms: float  # Y1: between clients and their homes
    far_ms: float  # Y2: between homes, and to the cloud and back
    kept: Floats  # (B,) theta: share of the processing that a broker has room for
    storage: Floats  # (B,) messages that its topics keep
    compute: Floats  # (B,) compute that processing them takes

    @property
    def mean_ms(self) -> float:
        """Y."""
        return self.near_ms + self.far_ms

    def as_json(self) -> dict[str, Any]:
        return {
            "mean_ms": self.mean_ms, "near_ms": self.near_ms, "far_ms": self.far_ms, "kept": self.kept.tolist(),
            "storage": self.storage.tolist(), "compute": self.compute.tolist(),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """The figures of one placement. A family that needs more figures adds a part like ``load``."""

    received: float  # data/s that arrive at subscribers
    offered: float  # data/s that would arrive if every subscription were served
    brokers_used: int
    placed: int  # units
    unplaced: int
    violations: tuple[Violation, ...]
    load: Load
    wire: Load  # traffic of the servers, including publications that pass through; ``load`` is the papers' figure
    moves: Moves | None = None  # None without a current placement
    delay: Delay | None = None  # for homes, if the workload has the columns that delays need

    def figure(self, name: Figure) -> float:
        """The figure of that name."""
        if name == "delay":
            assert self.delay is not None
            return self.delay.mean_ms
        return self.received if name == "received" else self.load.level

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
            "wire": self.wire.as_json(),
            "moves": self.moves.as_json() if self.moves else None,
            "delay": self.delay.as_json() if self.delay else None,
        }
