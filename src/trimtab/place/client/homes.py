"""Homes of clients that join, leave and change their subscriptions, updated one at a time without a new solution.

The counts and loads of all brokers are kept, so a change costs O(its topics x brokers), however many clients there are.
Other clients are not moved. When the levels have drifted apart, ``client/trim`` with the current placement levels them
with few moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.compiled import compiled
from trimtab.errors import BadInput
from trimtab.model.placement import UNPLACED, Placement
from trimtab.place.client.instance import Instance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

    Counts = NDArray[np.int32]


class Homes:
    """Starts with the clients of a problem; clients that join later get the next numbers."""

    def __init__(self, problem: Problem, placement: Placement) -> None:
        problem.refuse_unless_mine(placement)
        instance = Instance.of(problem)
        if not (instance.speed > 0.0).any():
            raise BadInput("there is no broker that takes clients")
        self._rate, self._speed = instance.rate, instance.speed
        self._count, self._load = instance.counts(placement.broker)
        self._home = placement.broker.tolist()
        self._topics: list[Rows] = [
            instance.topic[instance.begin[i] : instance.begin[i + 1]] for i in range(instance.clients)
        ]

    def __len__(self) -> int:
        """The number of clients so far, including those that have left; a client keeps its number."""
        return len(self._home)

    def home(self, client: int) -> int:
        return int(self._home[client])

    @property
    def load(self) -> Floats:
        """The load of every broker, as the judge computes it."""
        return self._load.copy()

    def join(self, topics: Iterable[int]) -> tuple[int, int]:
        """A new client's number and home: where the level of load is least with it."""
        wanted = self._check_topics(topics)
        client = len(self._home)
        self._topics.append(wanted)
        self._home.append(UNPLACED)
        self._home[client] = settle(wanted, self._rate, self._speed, self._count, self._load)
        return client, self._home[client]

    def settle(self, clients: Iterable[int]) -> None:
        """Give a home to each of these clients that has none, heaviest first."""
        waiting = [client for client in clients if self._home[client] == UNPLACED]
        weight = {client: float(self._rate[self._topics[client]].sum()) for client in waiting}
        for client in sorted(waiting, key=lambda client: (-weight[client], client)):
            self._home[client] = settle(self._topics[client], self._rate, self._speed, self._count, self._load)

    def leave(self, client: int) -> None:
        """Remove a client from its home."""
        if self._home[client] != UNPLACED:
            remove(self._topics[client], self._rate, self._count, self._load, self._home[client])
            self._home[client] = UNPLACED

    def change(self, client: int, topics: Iterable[int]) -> int:
        """Replace a client's subscriptions; returns its home, which may be another one now."""
        wanted = self._check_topics(topics)
        self.leave(client)
        self._topics[client] = wanted
        self._home[client] = settle(wanted, self._rate, self._speed, self._count, self._load)
        return int(self._home[client])

    def _check_topics(self, topics: Iterable[int]) -> Rows:
        wanted = np.unique(np.fromiter(topics, np.int32))
        if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < len(self._rate):
            raise BadInput(f"topics are numbered 0 to {len(self._rate) - 1}, but {wanted.tolist()} were asked for")
        return wanted


@compiled
def settle(topics: Rows, rate: Floats, speed: Floats, count: Counts, load: Floats) -> int:
    """Add a client to the broker whose level is least with it; returns that broker."""
    best, least = -1, np.inf
    for j in range(len(speed)):
        if speed[j] <= 0.0:
            continue
        then = load[j]
        for k in topics:
            then += rate[k] if count[k, j] else 2.0 * rate[k]
        if then / speed[j] < least:
            best, least = j, then / speed[j]
    for k in topics:
        load[best] += rate[k] if count[k, best] else 2.0 * rate[k]
        count[k, best] += 1
    return best


@compiled
def remove(topics: Rows, rate: Floats, count: Counts, load: Floats, j: int) -> None:
    for k in topics:
        count[k, j] -= 1
        load[j] -= rate[k] if count[k, j] else 2.0 * rate[k]
