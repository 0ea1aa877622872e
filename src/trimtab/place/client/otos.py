"""One topic, one server: ``client/otos`` and ``client/otos-centroid`` (Tanaka et al., RELOC, 7.2).

The home of a client with several topics is the server of its first topic in the tables. A topic that does not fit at
its server goes to the server with the smallest share in use; the paper gives this cooperation to this policy, too. The
paper does not say how a topic's server is chosen otherwise. A random choice reproduces the paper's figures ("more Y1
than RELOC constantly"). The server that is nearest to all members of a topic together is a stronger baseline.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimtab.compiled import compiled
from trimtab.model.distances import between
from trimtab.model.placement import UNPLACED
from trimtab.model.workload import PUB
from trimtab.place.client.policy import ClientPolicy
from trimtab.place.knobs import check, knob

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Otos(ClientPolicy):
    """Assigns every topic to a random broker, and its clients to that broker (Tanaka, 7.2, OTOS)."""

    seed: int = knob(0, "seed of the random draws", least=0)

    def __post_init__(self) -> None:
        check(self)

    def homes(self, problem: Problem) -> Rows:
        rng = np.random.default_rng(self.seed)
        server = rng.integers(0, problem.brokers, len(problem.workload.topics))
        alone = rng.integers(0, problem.brokers, problem.units)  # for clients without topics
        return _homes(problem, server, alone)


@dataclass(frozen=True, slots=True)
class OtosCentroid(ClientPolicy):
    """Assigns every topic to the broker nearest to its clients together, and these clients too (after Tanaka, 7.2)."""

    def homes(self, problem: Problem) -> Rows:
        load = problem.workload
        far = between(load)
        pair = np.unique(load.links.topic.astype(np.int64) * max(problem.units, 1) + load.links.client)
        together = np.zeros((len(load.topics), problem.brokers))
        np.add.at(together, pair // max(problem.units, 1), far[pair % max(problem.units, 1)])
        return _homes(problem, together.argmin(axis=1), far.argmin(axis=1))


def _homes(problem: Problem, server: Ints, alone: Ints) -> Rows:
    load = problem.workload
    endless, nothing = np.full(problem.brokers, np.inf), np.zeros(len(load.topics))
    for column in (endless, nothing):
        column.flags.writeable = False  # like columns of a workload, so that the kernel is compiled once
    order = np.argsort(load.links.topic, kind="stable")
    begin = np.searchsorted(load.links.topic[order], np.arange(len(load.topics) + 1)).astype(np.int64)
    home = one_each(
        begin, load.links.client[order], load.links.role[order] == PUB, server,
        nothing if load.topics.spool is None else load.topics.spool,
        endless if load.brokers.storage is None else load.brokers.storage,
        endless if load.brokers.compute is None else load.brokers.compute, problem.units,
    )  # fmt: skip
    return np.where(home == UNPLACED, alone, home).astype(np.int32)


@compiled
def one_each(
    begin: Ints, member: Rows, publishes: NDArray[np.bool_], server: Ints, spool: Floats, storage: Floats,
    compute: Floats, clients: int,
) -> Rows:  # fmt: skip
    """For each topic in turn, place its clients without a home at its server, or at the least used if that is full."""
    servers = len(storage)
    home = np.full(clients, -1, np.int32)
    kept, busy = np.zeros(servers), np.zeros(servers)
    for n in range(len(server)):
        new = 0
        for at in range(begin[n], begin[n + 1]):
            new += publishes[at] and home[member[at]] < 0
        to = server[n]
        if kept[to] + spool[n] > storage[to] or busy[to] + new * spool[n] > compute[to]:
            least = np.inf
            for j in range(servers):
                use = max(
                    kept[j] / storage[j] if storage[j] > 0.0 else np.inf,
                    busy[j] / compute[j] if compute[j] > 0.0 else np.inf,
                )
                if use < least:
                    to, least = j, use
        here = np.zeros(servers, np.bool_)
        for at in range(begin[n], begin[n + 1]):
            m = member[at]
            if home[m] < 0:
                home[m] = to
            if publishes[at]:
                j = home[m]
                busy[j] += spool[n]
                if not here[j]:
                    here[j] = True
                    kept[j] += spool[n]
    return home
