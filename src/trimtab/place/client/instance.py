"""A client placement problem in columns: the subscriptions of each client, and the strength of each broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.compiled import compiled
from trimtab.errors import TooLarge
from trimtab.model.placement import UNPLACED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]
    Counts = NDArray[np.int32]

MOST_COUNTS: Final = 1 << 29  # most entries (brokers x topics) of the table of counts, four bytes each


@dataclass(frozen=True, slots=True, eq=False)
class Instance:
    """The input of a client policy. Client i subscribes to ``topic[begin[i]:begin[i + 1]]``."""

    begin: Ints  # (clients + 1,)
    topic: Rows  # (S,) grouped by client
    rate: Floats  # (K,) data/s: lambda of a backend subscription
    weight: Floats  # (clients,) data/s that a client receives: u
    speed: Floats  # (B,) strength of each broker, 1 on average; 0: it takes no clients

    @classmethod
    def of(cls, problem: Problem) -> Instance:
        size = problem.brokers * len(problem.data_rate)
        if size > MOST_COUNTS:
            raise TooLarge(
                f"{problem.brokers:,} brokers x {len(problem.data_rate):,} topics are {size:,} counts; "
                f"client policies keep at most {MOST_COUNTS:,}"
            )
        begin, topic = grouped(problem.client, problem.topic, problem.units)
        weight = weights(begin, topic, problem.data_rate)
        return cls(begin, topic, problem.data_rate, weight, problem.speed)

    @property
    def clients(self) -> int:
        return len(self.weight)

    @property
    def brokers(self) -> int:
        return len(self.speed)

    def by_weight(self) -> Rows:
        """Clients by falling weight; equal ones in row order."""
        return np.argsort(-self.weight, kind="stable").astype(np.int32)

    def shuffled(self) -> Rows:
        """Place all clients from scratch, heaviest first, each at the least loaded broker then (Nguyen, 5.3)."""
        return shuffled(self.begin, self.topic, self.rate, self.speed, self.by_weight())

    def counts(self, home: Rows) -> tuple[Counts, Floats]:
        """``count[k, j]``, Nguyen's n_jk (3), with a topic's counts contiguous; and the load of every broker (5)."""
        return tally(self.begin, self.topic, self.rate, home, self.brokers)


@compiled
def grouped(client: Rows, topic: Rows, clients: int) -> tuple[Ints, Rows]:
    """Topics grouped by client, in table order: a counting sort, one pass over each column."""
    begin = np.zeros(clients + 1, np.int64)
    for i in client:
        begin[i + 1] += 1
    for i in range(clients):
        begin[i + 1] += begin[i]
    free = begin[:-1].copy()
    grouped_topic = np.empty(len(topic), np.int32)
    for s in range(len(topic)):
        i = client[s]
        grouped_topic[free[i]] = topic[s]
        free[i] += 1
    return begin, grouped_topic


@compiled
def weights(begin: Ints, topic: Rows, rate: Floats) -> Floats:
    weight = np.zeros(len(begin) - 1)
    for i in range(len(weight)):
        for s in range(begin[i], begin[i + 1]):
            weight[i] += rate[topic[s]]
    return weight


@compiled
def tally(begin: Ints, topic: Rows, rate: Floats, home: Rows, brokers: int) -> tuple[Counts, Floats]:
    count = np.zeros((len(rate), brokers), np.int32)
    load = np.zeros(brokers)
    for i in range(len(home)):
        j = home[i]
        if j < 0:
            continue
        for s in range(begin[i], begin[i + 1]):
            k = topic[s]
            load[j] += rate[k] if count[k, j] else 2.0 * rate[k]
            count[k, j] += 1
    return count, load


@compiled
def shuffled(begin: Ints, topic: Rows, rate: Floats, speed: Floats, order: Rows) -> Rows:
    """O(links + clients x brokers)."""
    home = np.full(len(order), -1, np.int32)
    count = np.zeros((len(rate), len(speed)), np.int32)
    load = np.zeros(len(speed))
    for i in order:
        least = -1
        for j in range(len(speed)):
            if speed[j] > 0.0 and (least < 0 or load[j] / speed[j] < load[least] / speed[least]):
                least = j
        if least < 0:
            break
        home[i] = least
        for s in range(begin[i], begin[i + 1]):
            k = topic[s]
            load[least] += rate[k] if count[k, least] else 2.0 * rate[k]
            count[k, least] += 1
    return home


def homes_or(problem: Problem, otherwise: Rows) -> Rows:
    """The current home of each client; from ``otherwise`` for clients without one or at a broker that takes none."""
    if problem.current is None:
        return otherwise.copy()
    now = problem.current.broker
    usable = now != UNPLACED
    usable[usable] = problem.speed[now[usable]] > 0.0
    return np.where(usable, now, otherwise).astype(np.int32)
