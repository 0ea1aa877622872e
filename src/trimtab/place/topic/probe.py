"""Probes: latencies that are measured before a topic moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from trimtab.model.nearness import Nearness
from trimtab.model.network import Network
from trimtab.model.placement import UNPLACED

if TYPE_CHECKING:
    from trimtab.model.nearness import Counts
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

PROBES: Final = 8  # brokers that are probed for a topic that is placed


class Probe(Protocol):
    """Measures topics at candidates for their broker, before any of them moves.

    On a fleet, the clients of a topic measure their round-trip times to the candidates, and the broker that hosts the
    topic adds them up. A policy asks once for each topic that it places, for at most ``PROBES`` brokers.
    """

    def __call__(self, topics: Rows, brokers: Rows, less_ms: Floats) -> tuple[Floats, Counts]:
        """(N, M) worst-case latency in ms and (N, M) violating pairs of topic n at each of its M candidates.

        ``topics`` has shape (N,), ``brokers`` (N, M) with UNPLACED where there are fewer candidates; the latency is
        infinite there. A pair counts as violating if its latency minus ``less_ms`` (N, M) is above the bound.
        """
        ...


@dataclass(frozen=True, eq=False)
class Truth:
    """A probe that looks latencies up in a problem whose measured round-trip times are complete."""

    nearness: Nearness
    asked: list[int] = field(default_factory=list)  # number of candidates of each topic that was probed, in order

    @classmethod
    def of(cls, problem: Problem) -> Truth:
        return cls(Nearness.of(problem, Network.needed(problem.workload, "round-trip times that probes look up")))

    def __call__(self, topics: Rows, brokers: Rows, less_ms: Floats) -> tuple[Floats, Counts]:
        self.asked.extend((brokers != UNPLACED).sum(axis=1).tolist())
        hosted = self.nearness.some_at(
            np.repeat(topics, brokers.shape[1]), brokers.reshape(-1), less_ms=less_ms.reshape(-1)
        )
        worst = np.where(brokers == UNPLACED, np.inf, np.nan_to_num(hosted.worst_ms.reshape(brokers.shape)))
        return worst, hosted.violating.reshape(brokers.shape)
