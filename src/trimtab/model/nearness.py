"""Network latency of topics at brokers: worst case and violating pairs, from all of a topic's clients.

The latency from publisher p over broker b to subscriber c is ``leg * (rtt(p, b) + rtt(b, c))`` (Gupta et al., SEC'21,
3.2). A pair of publisher and subscriber violates the topic's bound if its latency is above it. A topic without
publishers, or without subscribers, counts the other leg alone. A client without a known latency to any broker is left
out; if its latency to one broker is unknown, that broker is taken to be infinitely far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.compiled import compiled
from trimtab.model.network import AT_ONCE, Network
from trimtab.model.placement import UNPLACED
from trimtab.model.workload import PUB, SUB

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

    Counts = NDArray[np.int64]

FEW: Final = 64  # pairs of a topic up to which they are counted one by one


@dataclass(frozen=True, eq=False)
class Ends:
    """Publishers and subscribers of each topic, as rows of clients."""

    pub_begin: Counts  # (T + 1,)
    pub: Rows
    sub_begin: Counts  # (T + 1,)
    sub: Rows

    @classmethod
    def of(cls, problem: Problem) -> Ends:
        links, count = problem.workload.links, len(problem.workload.topics)
        columns: list[NDArray[np.integer]] = []
        for role in (PUB, SUB):
            mine = np.flatnonzero(links.role == role)
            order = mine[np.argsort(links.topic[mine], kind="stable")]
            begin = np.searchsorted(links.topic[order], np.arange(count + 1)).astype(np.int64)
            columns += [begin, links.client[order]]
        return cls(*columns)  # type: ignore[arg-type]

    def take(self, topics: Rows) -> Ends:
        """The ends of these topics, in this order."""
        columns: list[NDArray[np.integer]] = []
        for begin, client in ((self.pub_begin, self.pub), (self.sub_begin, self.sub)):
            count = begin[topics + 1] - begin[topics]
            new = np.concatenate([[0], np.cumsum(count)])
            row = np.arange(new[-1]) - np.repeat(new[:-1], count) + np.repeat(begin[topics], count)
            columns += [new.astype(np.int64), client[row]]
        return Ends(*columns)  # type: ignore[arg-type]

    def without(self, unknown: NDArray[np.bool_]) -> Ends:
        """The same without some clients."""
        columns: list[NDArray[np.integer]] = []
        for begin, client in ((self.pub_begin, self.pub), (self.sub_begin, self.sub)):
            kept = ~unknown[client]
            columns += [np.concatenate([[0], np.cumsum(kept)])[begin].astype(np.int64), client[kept]]
        return Ends(*columns)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Ranked:
    """The best brokers of each topic: fewest violating pairs first, then the least worst case, then in broker order."""

    broker: Rows  # (T, K) UNPLACED where there are fewer brokers
    worst_ms: Floats  # (T, K)
    violating: Counts  # (T, K) pairs above the bound
    feasible: Counts  # (T,) brokers, of all, that keep the bound for every pair


@dataclass(frozen=True, eq=False)
class Hosted:
    """Topics at their brokers. Row t is topic t."""

    worst_ms: Floats  # (T,) NaN for a topic without a broker or without a known client
    violating: Counts  # (T,) all pairs of a topic without a broker
    pairs: Counts  # (T,) with known latencies; a missing end counts as one
    unknown: Counts  # (T,) clients left out because their latency is unknown


@dataclass(frozen=True, eq=False)
class Nearness:
    """The network latencies of a problem's topics."""

    network: Network
    ends: Ends  # of clients with a known latency
    clients: Rows  # clients with links, each once
    bound_ms: Floats  # (T,) inf: no bound
    leg: float
    brokers: int
    unknown: Counts  # (T,) clients left out

    @classmethod
    def of(cls, problem: Problem, network: Network) -> Nearness:
        workload, ends = problem.workload, Ends.of(problem)
        bound = workload.topics.latency_ms
        bounds = np.full(len(workload.topics), np.inf) if bound is None else np.where(np.isnan(bound), np.inf, bound)
        known = network.known()
        kept = ends.without(~known)
        dropped = [np.diff(before) - np.diff(after) for before, after in (
            (ends.pub_begin, kept.pub_begin), (ends.sub_begin, kept.sub_begin))]  # fmt: skip
        clients = np.unique(np.concatenate([kept.pub, kept.sub])).astype(np.int32)
        return cls(network, kept, clients, bounds, problem.leg, problem.brokers, dropped[0] + dropped[1])

    @property
    def located(self) -> NDArray[np.bool_]:
        """(T,) whether the topic has a client whose latency is known."""
        return np.asarray(np.diff(self.ends.pub_begin) + np.diff(self.ends.sub_begin) > 0)

    def ranked(self, most: int, topics: Rows | None = None, *, by_pairs: bool = True) -> Ranked:
        """The ``most`` best brokers of all or of some topics. O(links x brokers), in memory of O(topics x most).

        Without ``by_pairs``, brokers are ranked by their worst case alone, and ``violating`` is 1 for one or more.
        """
        rows = np.arange(len(self.bound_ms), dtype=np.int32) if topics is None else topics
        ends = self.ends if topics is None else self.ends.take(rows)
        clients = self.clients if topics is None else np.unique(np.concatenate([ends.pub, ends.sub])).astype(np.int32)
        size = min(most, self.brokers)
        shape = (len(rows), size)
        broker, worst = np.full(shape, UNPLACED, np.int32), np.full(shape, np.inf)
        violating, feasible = np.full(shape, np.iinfo(np.int64).max), np.zeros(len(rows), np.int64)
        pub, sub = (np.searchsorted(clients, part).astype(np.int32) for part in (ends.pub, ends.sub))
        step = max(1, AT_ONCE // max(len(clients), 1))
        for first in range(0, self.brokers if size else 0, step):
            some = np.arange(first, min(first + step, self.brokers), dtype=np.int32)
            times = np.nan_to_num(self.network.rtt_ms(clients, some), nan=np.inf, posinf=np.inf)
            _merge(ends.pub_begin, pub, ends.sub_begin, sub, self.leg * times, first, self.bound_ms[rows],
                   by_pairs, broker, worst, violating, feasible)  # fmt: skip
        return Ranked(broker, worst, violating, feasible)

    def at(self, broker: Rows, *, less_ms: Floats | None = None) -> Hosted:
        """Every topic at its broker. ``less_ms`` (T,) is subtracted from the latencies of pairs before they are counted
        as violating."""
        return self._at(self.ends, np.arange(len(self.bound_ms), dtype=np.int32), broker, less_ms)

    def some_at(self, topics: Rows, broker: Rows, *, less_ms: Floats | None = None) -> Hosted:
        """These topics at these brokers; a topic may be listed several times. Row t is the t-th of the list."""
        return self._at(self.ends.take(topics), topics, broker, less_ms)

    def _at(self, ends: Ends, topics: Rows, broker: Rows, less_ms: Floats | None) -> Hosted:
        placed = broker != UNPLACED
        times = []
        for begin, client in ((ends.pub_begin, ends.pub), (ends.sub_begin, ends.sub)):
            host = np.repeat(broker, np.diff(begin))
            rtt = self.network.pair_ms(client, np.maximum(host, 0)) if self.brokers else np.zeros(len(client))
            times.append(self.leg * np.nan_to_num(rtt, nan=np.inf, posinf=np.inf))
        bound = self.bound_ms[topics] + (0.0 if less_ms is None else less_ms)
        worst, violating, pairs = _at_host(ends.pub_begin, times[0], ends.sub_begin, times[1], bound)
        worst = np.where(placed & (pairs > 0), worst, np.nan)
        return Hosted(worst, np.where(placed, violating, pairs), pairs, self.unknown[topics])


@compiled
def _merge(
    pub_begin: Counts, pub: Rows, sub_begin: Counts, sub: Rows, leg_ms: Floats, first: int, bound: Floats,
    by_pairs: bool, broker: Rows, worst: Floats, violating: Counts, feasible: Counts,
) -> None:  # fmt: skip
    """Merge the brokers of the columns of ``leg_ms``, from ``first`` on, into the best of every topic."""
    columns, most = leg_ms.shape[1], broker.shape[1]
    to, away = np.zeros(columns), np.zeros(columns)
    for t in range(len(bound)):
        _furthest(leg_ms, pub, pub_begin[t], pub_begin[t + 1], to)
        _furthest(leg_ms, sub, sub_begin[t], sub_begin[t + 1], away)
        sizes = pub_begin[t + 1] - pub_begin[t], sub_begin[t + 1] - sub_begin[t]
        one, other = np.zeros(sizes[0]), np.zeros(sizes[1])
        for j in range(columns):
            latency = to[j] + away[j]
            late = 0
            if latency <= bound[t]:
                feasible[t] += 1
            elif violating[t, most - 1] == 0:
                continue  # enough brokers without violating pairs are known already
            elif not by_pairs:
                late = 1
            else:
                for i in range(sizes[0]):
                    one[i] = leg_ms[pub[pub_begin[t] + i], j]
                for i in range(sizes[1]):
                    other[i] = leg_ms[sub[sub_begin[t] + i], j]
                late = _late(one, other, bound[t])
            place = most
            while place > 0 and (
                late < violating[t, place - 1]
                or (late == violating[t, place - 1] and latency < worst[t, place - 1])
                or broker[t, place - 1] < 0
            ):
                place -= 1
            if place == most:
                continue
            for i in range(most - 1, place, -1):
                broker[t, i], worst[t, i], violating[t, i] = broker[t, i - 1], worst[t, i - 1], violating[t, i - 1]
            broker[t, place], worst[t, place], violating[t, place] = first + j, latency, late


@compiled
def _furthest(leg_ms: Floats, client: Rows, begin: int, end: int, most: Floats) -> None:
    """The longest leg of these clients to every broker; zero without clients."""
    most[:] = 0.0
    for i in range(begin, end):
        row = leg_ms[client[i]]
        for j in range(len(most)):
            most[j] = max(most[j], row[j])


@compiled
def _late(one: Floats, other: Floats, bound: float) -> int:
    """The number of pairs of a leg each whose sum is above the bound; a missing leg is zero."""
    if len(one) == 0:
        one = np.zeros(1)
    if len(other) == 0:
        other = np.zeros(1)
    late = 0
    if len(one) * len(other) <= FEW:
        for a in one:
            for b in other:
                late += a + b > bound
        return late
    rising, falling = np.sort(one), np.sort(other)
    within = len(falling)
    for a in rising:
        while within > 0 and a + falling[within - 1] > bound:
            within -= 1
        late += len(falling) - within
    return late


@compiled
def _at_host(
    pub_begin: Counts, to: Floats, sub_begin: Counts, away: Floats, bound: Floats
) -> tuple[Floats, Counts, Counts]:
    count = len(bound)
    worst, violating, pairs = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.int64)
    for t in range(count):
        one, other = to[pub_begin[t] : pub_begin[t + 1]], away[sub_begin[t] : sub_begin[t + 1]]
        if len(one) + len(other) == 0:
            continue
        longest = 0.0
        for a in one:
            longest = max(longest, a)
        further = 0.0
        for b in other:
            further = max(further, b)
        worst[t] = longest + further
        pairs[t] = max(len(one), 1) * max(len(other), 1)
        if worst[t] > bound[t]:
            violating[t] = _late(one, other, bound[t])
    return worst, violating, pairs
