"""The judge's figures of a placement, used by every family, command and report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
class Latency:
    """Latencies of placed topics, simulated on the hardware of their brokers (Khare et al., SEC'18, VI-C)."""

    topics: tuple[str, ...]
    p90_ms: Floats  # (K,) NaN for a topic without a broker or without messages
    bound_ms: Floats  # (K,) NaN: no bound
    messages: Floats  # (K,) simulated messages
    late: Floats  # (K,) simulated messages above the bound
    cpu: Floats  # (B,) share of the cores in use of each broker

    @property
    def topics_out_of_bound(self) -> int:
        return int(np.count_nonzero(self.p90_ms > self.bound_ms))

    @property
    def messages_out_of_bound(self) -> float:
        """The share of all messages of topics with a bound."""
        bounded = self.messages[~np.isnan(self.bound_ms)].sum()
        return float(self.late.sum() / bounded) if bounded else 0.0

    def as_json(self) -> dict[str, Any]:
        p90 = [None if np.isnan(value) else float(value) for value in self.p90_ms]
        return {
            "topics_out_of_bound": self.topics_out_of_bound, "messages_out_of_bound": self.messages_out_of_bound,
            "p90_ms": dict(zip(self.topics, p90, strict=True)),
            "cpu": float(self.cpu[self.cpu > 0.0].mean()) if (self.cpu > 0.0).any() else 0.0,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class NetworkLatency:
    """End-to-end network latencies of placed topics, over all pairs of a publisher and a subscriber (Gupta et al.,
    SEC'21, 3.2)."""

    topics: tuple[str, ...]
    worst_ms: Floats  # (K,) NaN for a topic without a broker or without a client whose latency is known
    bound_ms: Floats  # (K,) NaN: no bound
    pairs: NDArray[np.int64]  # (K,)
    violating: NDArray[np.int64]  # (K,) pairs above the bound; all pairs of a topic without a broker
    unknown: int  # links that are left out because the latency of their client is unknown
    source: str  # measured, estimated or mixed
    leg: float  # share of a round-trip time that counts for each leg

    @property
    def topics_out_of_bound(self) -> int:
        return int(np.count_nonzero(self.violating))

    @property
    def violating_pairs(self) -> int:
        return int(self.violating.sum())

    @property
    def violation_ratio(self) -> float:
        """The share of all pairs."""
        pairs = int(self.pairs.sum())
        return self.violating_pairs / pairs if pairs else 0.0

    @property
    def worst(self) -> float:
        """The worst case of all topics in ms; NaN without one."""
        known = self.worst_ms[~np.isnan(self.worst_ms)]
        return float(known.max()) if len(known) else float("nan")

    @property
    def mean_ms(self) -> float:
        """The mean of the topics' worst cases."""
        known = self.worst_ms[np.isfinite(self.worst_ms)]
        return float(known.mean()) if len(known) else float("nan")

    def as_json(self) -> dict[str, Any]:
        worst = [float(value) if np.isfinite(value) else None for value in self.worst_ms]
        return {
            "source": self.source, "leg": self.leg, "topics_out_of_bound": self.topics_out_of_bound,
            "pairs": int(self.pairs.sum()), "violating_pairs": self.violating_pairs,
            "violation_ratio": self.violation_ratio, "worst_ms": _finite(self.worst), "mean_ms": _finite(self.mean_ms),
            "unknown": self.unknown, "topics": dict(zip(self.topics, worst, strict=True)),
        }  # fmt: skip


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


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
    latency: Latency | None = None  # for topics, if the workload has their processing times
    network: NetworkLatency | None = None  # for topics, if the workload has latencies of the network

    def figure(self, name: Figure) -> float:
        """The figure of that name."""
        if name == "delay":
            assert self.delay is not None
            return self.delay.mean_ms
        if name == "brokers_used":
            return float(self.brokers_used)
        if name == "violating_pairs":
            assert self.network is not None
            return float(self.network.violating_pairs)
        return self.received if name == "received" else self.load.level

    @property
    def promises_broken(self) -> int | None:
        """Topics whose network latency and p90 of processing add up to more than their bound.

        None without both parts. A topic without a broker counts.
        """
        if self.latency is None or self.network is None:
            return None
        together = np.nan_to_num(self.network.worst_ms) + np.nan_to_num(self.latency.p90_ms)
        without = np.isnan(self.latency.p90_ms) & (self.network.violating > 0)
        return int(np.count_nonzero((together > self.latency.bound_ms) | without))

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
            "latency": self.latency.as_json() if self.latency else None,
            "network": self.network.as_json() if self.network else None,
            "promises_broken": self.promises_broken,
        }
