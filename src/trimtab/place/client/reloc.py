"""``client/reloc``: relation and locality conscious, cooperative homes (Tanaka et al., RELOC, Section 6, Algorithm 1).

Our reading where the paper is open or has an error: A client belongs to the cluster whose centre, by K-means over the
servers, is nearest. A client that has a home keeps it when its next topic is handled; otherwise it would have two homes
(5). Line 23: the nearest server of the cluster that has room, or else the nearest. Line 28: the search ends at the
first relative whose server has room, not at the first relative. Line 38: the server whose larger share in use is the
smallest; if the client is there, it stays. Cooperation moves all publishers of the topic that are at that server, as in
the text (``cooperation="group"``), or only the client, as printed (``"client"``). With them move those of their topics
that have been handled. Relatives are the clients with the most topics in common. With ``rank``, they are computed from
a factorisation of that matrix into ``rank`` factors, as in the paper, which adds noise where many clients tie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.compiled import compiled
from trimtab.errors import TooLarge
from trimtab.model.distances import apart, places
from trimtab.model.placement import UNPLACED
from trimtab.place.client.delays import Field
from trimtab.place.client.policy import ClientPolicy
from trimtab.place.knobs import check, knob

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]

COOPERATION: Final = ("group", "client")
FACTORED: Final = 5_000  # most clients for which a dense matrix is factored
STARTS: Final = 20  # random starts of K-means
ROUNDS: Final = 100


@dataclass(frozen=True, slots=True)
class Reloc(ClientPolicy):
    """Assigns clients to near brokers, beside clients with common topics, within storage and compute (Tanaka, 6)."""

    clusters: int = knob(4, "number of clusters of brokers (K of the paper)", least=1)
    relatives: int = knob(100, "clients with the most common topics that are considered (M' of the paper)", least=0)
    cooperation: str = knob(
        "group", "who leaves a full broker: all publishers of the topic there, or one client", choices=COOPERATION
    )
    rank: int = knob(0, "factors of the matrix of common topics; 0 uses the matrix itself", least=0)
    seed: int = knob(0, "seed of the random draws of K-means", least=0)

    def __post_init__(self) -> None:
        check(self)

    def homes(self, problem: Problem) -> Rows:
        field = Field.of(problem)
        load = problem.workload
        client, server = places(load)
        of_server, centre = k_means(server, min(self.clusters, len(server)), np.random.default_rng(self.seed))
        of_client = apart(load, client, centre).argmin(axis=1).astype(np.int32)
        begin, member = members(field)
        if self.rank:
            kin = self._factored(field, begin, member)
        else:
            kin = related(field.begin, field.topic, begin, member, min(self.relatives, field.clients))
        home = assigned(
            field.begin, field.topic, field.needs, begin, member, kin, of_server, of_client, field.home_ms,
            field.spool, field.storage, field.compute, self.cooperation == "group",
        )  # fmt: skip
        lonely = home == UNPLACED  # no topic at all
        home[lonely] = field.home_ms[lonely].argmin(axis=1)
        return home

    def _factored(self, field: Field, begin: Ints, member: Rows) -> Rows:
        if field.clients > FACTORED:
            raise TooLarge(f"{field.clients:,} clients are too many to factor their relations; at most {FACTORED:,}")
        takes_part = np.zeros((field.clients, len(field.spool)))
        takes_part[member, np.repeat(np.arange(len(field.spool)), np.diff(begin))] = 1.0
        value, vector = np.linalg.eigh(takes_part @ takes_part.T)
        close = (vector[:, -self.rank :] * value[-self.rank :]) @ vector[:, -self.rank :].T
        np.fill_diagonal(close, -np.inf)
        order: Rows = np.argsort(-close, axis=1, kind="stable")[:, : self.relatives].astype(np.int32)
        return order


def members(field: Field) -> tuple[Ints, Rows]:
    """Clients of every topic, in the order of their rows."""
    client = np.repeat(np.arange(field.clients), np.diff(field.begin))
    order = np.argsort(field.topic, kind="stable")
    begin = np.searchsorted(field.topic[order], np.arange(len(field.spool) + 1)).astype(np.int64)
    return begin, client[order].astype(np.int32)


def k_means(points: Floats, clusters: int, rng: np.random.Generator) -> tuple[Rows, Floats]:
    """Cluster of every point, and the centres (Lloyd, 1982): the tightest of several runs, started by k-means++."""
    best, tightest = np.inf, None
    for _ in range(STARTS):
        centre = points[[rng.integers(len(points))]]
        while len(centre) < clusters:
            far = _squares(points, centre).min(axis=1)
            chance = far / far.sum() if far.any() else np.full(len(points), 1.0 / len(points))
            centre = np.concatenate([centre, points[[rng.choice(len(points), p=chance)]]])
        for _ in range(ROUNDS):
            cluster = _squares(points, centre).argmin(axis=1)
            own = [points[cluster == c] for c in range(clusters)]
            moved = np.array([group.mean(axis=0) if len(group) else centre[c] for c, group in enumerate(own)])
            if np.array_equal(moved, centre):
                break
            centre = moved
        spread = float(_squares(points, centre).min(axis=1).sum())
        if spread < best * (1.0 - 1e-9):
            best, tightest = spread, (cluster, centre)
    assert tightest is not None
    used, cluster = np.unique(tightest[0], return_inverse=True)  # drop empty clusters
    return cluster.astype(np.int32), tightest[1][used]


def _squares(points: Floats, centre: Floats) -> Floats:
    squares: Floats = ((points[:, None] - centre[None]) ** 2).sum(axis=2)
    return squares


@compiled
def related(begin: Ints, topic: Rows, member_begin: Ints, member: Rows, many: int) -> Rows:
    """For every client, the ``many`` others with most topics in common (Z), ties in row order; -1: no more."""
    clients = len(begin) - 1
    relatives = np.full((clients, many), -1, np.int32)
    common = np.zeros(clients, np.int32)
    for m in range(clients):
        others = np.empty(0, np.int32)
        most = 0
        for e in range(begin[m], begin[m + 1]):
            most += member_begin[topic[e] + 1] - member_begin[topic[e]]
        others = np.empty(most, np.int32)
        met = 0
        for e in range(begin[m], begin[m + 1]):
            for at in range(member_begin[topic[e]], member_begin[topic[e] + 1]):
                other = member[at]
                if other == m:
                    continue
                if common[other] == 0:
                    others[met] = other
                    met += 1
                common[other] += 1
        order = np.argsort(-common[others[:met]], kind="mergesort")
        for n in range(min(many, met)):
            relatives[m, n] = others[order[n]]
        for n in range(met):
            common[others[n]] = 0
    return relatives


@compiled
def assigned(
    begin: Ints, topic: Rows, needs: NDArray[np.int8], member_begin: Ints, member: Rows, kin: Rows,
    of_server: Rows, of_client: Rows, home_ms: Floats, spool: Floats, storage: Floats, compute: Floats, group: bool,
) -> Rows:  # fmt: skip
    """Algorithm 1, from line 20 on."""
    clients, servers = len(begin) - 1, len(storage)
    home = np.full(clients, -1, np.int32)
    here = np.zeros((len(spool), servers), np.int32)  # publishers of a topic at a server
    dealt = np.zeros(len(topic), np.bool_)  # links that have been handled
    kept, busy = np.zeros(servers), np.zeros(servers)  # storage and compute in use
    for n in range(len(spool)):
        for at in range(member_begin[n], member_begin[n + 1]):
            m = member[at]
            link = -1
            for e in range(begin[m], begin[m + 1]):
                if topic[e] == n:
                    link = e
            if home[m] < 0:
                chosen, any_near = -1, -1
                for j in range(servers):
                    if of_server[j] != of_client[m]:
                        continue
                    if any_near < 0 or home_ms[m, j] < home_ms[m, any_near]:
                        any_near = j
                    room = kept[j] <= storage[j] and busy[j] <= compute[j]
                    if room and (chosen < 0 or home_ms[m, j] < home_ms[m, chosen]):
                        chosen = j
                if chosen < 0:
                    chosen = any_near
                for other in kin[m]:
                    if other < 0:
                        break
                    j = home[other]
                    if j >= 0 and of_server[j] == of_client[m] and kept[j] <= storage[j] and busy[j] <= compute[j]:
                        chosen = j
                        break
                home[m] = chosen
            dealt[link] = True
            if not needs[link]:
                continue
            j = home[m]
            if here[n, j] == 0:
                kept[j] += spool[n]
            here[n, j] += 1
            busy[j] += spool[n]
            if kept[j] <= storage[j] and busy[j] <= compute[j]:
                continue
            to, least = -1, np.inf
            for other in range(servers):
                if of_server[other] == of_client[m]:
                    use = max(
                        kept[other] / storage[other] if storage[other] > 0.0 else np.inf,
                        busy[other] / compute[other] if compute[other] > 0.0 else np.inf,
                    )
                    if use < least:
                        to, least = other, use
            if to < 0 or to == j:
                continue
            first, last = (member_begin[n], at + 1) if group else (at, at + 1)
            for who in range(first, last):
                c = member[who]
                if home[c] != j:
                    continue
                publishes = False
                for e in range(begin[c], begin[c + 1]):
                    publishes |= topic[e] == n and needs[e] == 1
                if not publishes:
                    continue
                for e in range(begin[c], begin[c + 1]):
                    if dealt[e] and needs[e]:
                        k = topic[e]
                        here[k, j] -= 1
                        busy[j] -= spool[k]
                        if here[k, j] == 0:
                            kept[j] -= spool[k]
                        if here[k, to] == 0:
                            kept[to] += spool[k]
                        here[k, to] += 1
                        busy[to] += spool[k]
                home[c] = to
    return home
