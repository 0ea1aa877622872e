"""The judge's figures of network latency, and bounds that no broker can keep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.model.judgement import NetworkLatency
from trimtab.model.nearness import Nearness
from trimtab.model.network import Network

if TYPE_CHECKING:
    from trimtab.model.placement import Placement
    from trimtab.model.problem import Problem


def network_latency_of(problem: Problem, placement: Placement) -> NetworkLatency | None:
    """None unless whole topics are placed and the workload has network latencies.

    Latencies are measured ones if the workload has them for all pairs of clients and brokers. Otherwise they are those
    of the workload's coordinates, where no pair was measured.
    """
    network = Network.of(problem.workload) if placement.unit == "topic" else None
    if network is None:
        return None
    topics = problem.workload.topics
    nearness = Nearness.of(problem, network)
    hosted = nearness.at(placement.broker)
    bound = np.full(len(topics), np.nan) if topics.latency_ms is None else topics.latency_ms
    return NetworkLatency(
        tuple(topics.ids), hosted.worst_ms, bound, hosted.pairs, hosted.violating, int(hosted.unknown.sum()),
        network.source(nearness.clients), problem.leg,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A topic whose latency bound no broker keeps for all of its pairs."""

    topic: str
    bound_ms: float
    best_ms: float  # least worst case of all brokers
    broker: str  # broker with the least worst case

    def __str__(self) -> str:
        if not np.isfinite(self.best_ms):
            return f"topic '{self.topic}': at every broker, the latency of one of its clients or more is unknown"
        enough = math.ceil(10.0 * self.best_ms) / 10.0
        return (
            f"topic '{self.topic}' has a bound of {self.bound_ms:g} ms, but the network alone takes up to "
            f"{self.best_ms:.4g} ms even at its best broker, '{self.broker}': raise latency_ms to {enough:g} or more, "
            "or add a broker nearer to its clients"
        )

    def as_json(self) -> dict[str, Any]:
        best = self.best_ms if np.isfinite(self.best_ms) else None
        return {"topic": self.topic, "bound_ms": self.bound_ms, "best_ms": best, "broker": self.broker}


def unreachable(problem: Problem) -> list[Unreachable]:
    """Topics with a bound that cannot be kept, in the order of topics; empty without network latencies."""
    network = Network.of(problem.workload)
    if network is None or not problem.brokers:
        return []
    nearness = Nearness.of(problem, network)
    ranked = nearness.ranked(1, by_pairs=False)
    rows = np.flatnonzero(ranked.feasible == 0)
    topics, brokers = problem.workload.topics.ids, problem.workload.brokers.ids
    return [
        Unreachable(topics[int(row)], float(nearness.bound_ms[row]), float(ranked.worst_ms[row, 0]),
                    brokers[int(ranked.broker[row, 0])])
        for row in rows
    ]  # fmt: skip
