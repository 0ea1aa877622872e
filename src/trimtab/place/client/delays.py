"""The delay of notifications (Tanaka et al., RELOC, Section 5), in columns.

A publication by client m of topic n, processed at m's home l, reaches a subscriber m' homed at l' after
``dH[m,l] + dS[l,l'] + dH[m',l']``, or, if l has no room, by way of the cloud: ``dH[m,l] + 2 dC + dH[m',l']``.
A server keeps the share ``theta`` of the processing that its topics need: as much as its storage and compute allow (2).

We read the paper as follows. theta is the share that is *kept* (printed "delegation ratio"), and 1 at a server that
needs nothing. In (6) and the text, the delay to the subscriber is ``dH[m',l']``. (8) and (9) divide by I once, so that
Y = Y1 + Y2. A topic is at a server if one of its publishers is. The publishers of a topic share its rate equally, and
publications are weighted by rate. A client does not receive its own publications. With rates in proportion to members
this is the paper's Y.

Delays are distances of positions, times ``Delays.ms_per_km``. In a workload with network latencies and without
positions, they are ``Problem.leg`` of a round-trip time.

It is cheap to compute: the first and last terms are a sum over clients, each with its own weight (``near``), and the
middle term needs only the counts of a topic's links at each server.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimtab.errors import BadInput
from trimtab.model.distances import delays_ms, has_distances
from trimtab.model.workload import PUB

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """Delays, needs and limits. Client m has links ``begin[m]:begin[m + 1]``, one per topic, whatever its roles."""

    begin: Ints  # (M + 1,)
    topic: Rows  # of each link
    publishes: Floats  # of each link: weight of its publications, all together 1; 0: it only subscribes
    spreads: Floats  # of each link: weight of one of its deliveries
    subscribes: NDArray[np.int8]  # of each link: 1 or 0
    needs: NDArray[np.int8]  # of each link: 1 if it publishes, so that its topic is at its home
    near: Floats  # (M,) weight of the delay between a client and its home, as a publisher and as a subscriber
    home_ms: Floats  # (M, L)
    server_ms: Floats  # (L, L)
    spool: Floats  # (N,) u
    rate: Floats  # (N,) data/s
    storage: Floats  # (L,) A
    compute: Floats  # (L,) B
    cloud_ms: float

    @classmethod
    def of(cls, problem: Problem) -> Field:
        load = problem.workload
        spool = load.topics.need("spool", "messages kept for processing; delays depend on where they fit")
        storage = load.brokers.need("storage", "messages that fit")
        compute = load.brokers.need("compute", "publishers x messages kept that it can process")
        home_ms, server_ms = delays_ms(problem)
        begin, topic, published, subscribed = _merged(problem)
        publishers = np.bincount(topic, weights=published, minlength=len(spool))
        subscribers = np.bincount(topic, weights=subscribed, minlength=len(spool))
        others = subscribers[topic] - (published * subscribed)
        counts = (published == 1) & (others > 0)
        weight = np.where(counts, load.topics.rate[topic] / np.maximum(publishers[topic], 1), 0.0)
        total = weight.sum()
        weight = weight / total if total > 0.0 else weight
        spreads = np.where(counts, weight / np.maximum(others, 1), 0.0)
        # (N,) weight of all deliveries to one subscriber
        received_weight = np.bincount(topic, weights=spreads, minlength=len(spool))
        owner = np.repeat(np.arange(len(begin) - 1), np.diff(begin))
        near = np.bincount(
            owner, weights=weight + subscribed * (received_weight[topic] - spreads), minlength=len(begin) - 1
        ).astype(np.float64)
        return cls(
            begin, topic, weight, spreads, subscribed.astype(np.int8), published.astype(np.int8), near,
            home_ms, server_ms, spool, problem.data_rate, storage, compute, problem.delays.cloud_ms,
        )  # fmt: skip

    @property
    def clients(self) -> int:
        return len(self.near)

    @property
    def servers(self) -> int:
        return len(self.storage)


def has_delays(problem: Problem) -> bool:
    """Whether the workload has all columns that delays depend on."""
    topics, brokers = problem.workload.topics, problem.workload.brokers
    return has_distances(problem.workload) and all(
        column is not None for column in (topics.spool, brokers.storage, brokers.compute)
    )


def refuse_insufficient_storage(problem: Problem) -> None:
    """Refuse a problem whose published topics need more storage than all brokers have together."""
    load = problem.workload
    spool = load.topics.need("spool", "messages kept for processing; delays depend on where they fit")
    storage = load.brokers.need("storage", "messages that fit")
    published = np.unique(load.links.topic[load.links.role == PUB])
    needed, room = float(spool[published].sum()), float(storage.sum())
    if needed > room:
        raise BadInput(
            f"topics keep {needed:,.0f} messages, but all brokers together hold {room:,.0f}: {needed - room:,.0f} "
            "too many; raise the brokers' storage or lower the topics' spool"
        )


def _merged(problem: Problem) -> tuple[Ints, Rows, Floats, Floats]:
    """One row for each (client, topic), with both roles."""
    links = problem.workload.links
    topics = max(len(problem.workload.topics), 1)
    key = links.client.astype(np.int64) * topics + links.topic
    pairs, at = np.unique(key, return_inverse=True)
    published = np.bincount(at, weights=links.role == PUB, minlength=len(pairs)).astype(np.float64)
    subscribed = np.bincount(at, weights=links.role != PUB, minlength=len(pairs)).astype(np.float64)
    begin = np.searchsorted(pairs, np.arange(len(problem.workload.clients) + 1) * topics)
    return begin.astype(np.int64), (pairs % topics).astype(np.int32), published, subscribed
