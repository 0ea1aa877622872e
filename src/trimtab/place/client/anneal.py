"""Search for homes of the least delay: simulated annealing (Kirkpatrick et al., 1983) on the exact objective.

The state holds the terms of the objective (``delays``), so a move costs O(its topics x servers). There are three kinds
of moves: a client moves to the home of another client of one of its topics; all clients of a topic at a server move
together (storage is freed only when the last publisher has left); a client moves to any server. Tanaka et al. leave a
comparison with better solutions to future work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]
    Flags = NDArray[np.int8]


@compiled
def shift(
    begin: Ints, topic: Rows, publishes: Floats, spreads: Floats, subscribes: Flags, needs: Flags, near: Floats,
    home_ms: Floats, server_ms: Floats, spool: Floats, rate: Floats,
    home: Rows, subs: Rows, pubs: Rows, far: Floats, sums: Floats, m: int, to: int,
) -> None:  # fmt: skip
    """Move client ``m`` to server ``to``, and update counts and sums.

    Rows of ``sums``, for each server: weight W, delays Q, storage and compute in use, Y1 (all in the first), load.
    """
    at = home[m]
    sums[4, 0] += near[m] * (home_ms[m, to] - home_ms[m, at])
    for e in range(begin[m], begin[m + 1]):
        n = topic[e]
        if subscribes[e]:
            for j in range(len(server_ms)):
                if pubs[n, j]:
                    sums[1, j] += far[n, j] * (server_ms[j, to] - server_ms[j, at])
            subs[n, at] -= 1
            sums[5, at] -= rate[n] if subs[n, at] else 2.0 * rate[n]
            sums[5, to] += rate[n] if subs[n, to] else 2.0 * rate[n]
            subs[n, to] += 1
        if needs[e]:
            left, comes = 0.0, 0.0
            for j in range(len(server_ms)):
                if subs[n, j]:
                    left += subs[n, j] * server_ms[at, j]
                    comes += subs[n, j] * server_ms[to, j]
            sums[1, at] -= spreads[e] * left
            sums[1, to] += spreads[e] * comes
            far[n, at] -= spreads[e]
            far[n, to] += spreads[e]
            sums[0, at] -= publishes[e]
            sums[0, to] += publishes[e]
            pubs[n, at] -= 1
            if pubs[n, at] == 0:
                sums[2, at] -= spool[n]
            if pubs[n, to] == 0:
                sums[2, to] += spool[n]
            pubs[n, to] += 1
            sums[3, at] -= spool[n]
            sums[3, to] += spool[n]
    home[m] = to


@compiled
def begun(
    begin: Ints, topic: Rows, publishes: Floats, spreads: Floats, subscribes: Flags, needs: Flags, near: Floats,
    home_ms: Floats, server_ms: Floats, spool: Floats, rate: Floats, home: Rows,
) -> tuple[Rows, Rows, Floats, Floats]:  # fmt: skip
    """Counts and sums of a placement; see ``shift``."""
    topics, servers = len(spool), len(server_ms)
    subs, pubs = np.zeros((topics, servers), np.int32), np.zeros((topics, servers), np.int32)
    far, sums = np.zeros((topics, servers)), np.zeros((6, max(servers, 1)))
    for m in range(len(home)):
        at = home[m]
        sums[4, 0] += near[m] * home_ms[m, at]
        for e in range(begin[m], begin[m + 1]):
            n = topic[e]
            if subscribes[e]:
                sums[5, at] += rate[n] if subs[n, at] else 2.0 * rate[n]
                subs[n, at] += 1
            if needs[e]:
                if pubs[n, at] == 0:
                    sums[2, at] += spool[n]
                pubs[n, at] += 1
                far[n, at] += spreads[e]
                sums[0, at] += publishes[e]
                sums[3, at] += spool[n]
    for n in range(topics):
        for j in range(servers):
            if pubs[n, j]:
                for to in range(servers):
                    sums[1, j] += far[n, j] * subs[n, to] * server_ms[j, to]
    return subs, pubs, far, sums


@compiled
def kept_share(storage: float, compute: float, stored: float, busy: float) -> float:
    """theta (2); 1 where nothing is needed."""
    share = 1.0
    if stored > storage:
        share = storage / stored
    if busy > compute:
        share = min(share, compute / busy)
    return share


@compiled
def delay(sums: Floats, storage: Floats, compute: Floats, cloud_ms: float) -> float:
    """Y."""
    total: float = sums[4, 0]
    for j in range(len(storage)):
        share = kept_share(storage[j], compute[j], sums[2, j], sums[3, j])
        total += 2.0 * cloud_ms * (1.0 - share) * sums[0, j] + share * sums[1, j]
    return total


@compiled
def best_delay(
    begin: Ints, topic: Rows, publishes: Floats, spreads: Floats, subscribes: Flags, needs: Flags, near: Floats,
    home_ms: Floats, server_ms: Floats, spool: Floats, rate: Floats, storage: Floats, compute: Floats, cloud_ms: float,
) -> float:  # fmt: skip
    """The least delay of all placements, found by trying all of them."""
    clients, servers = len(near), len(storage)
    home = np.zeros(clients, np.int32)
    subs, pubs, far, sums = begun(
        begin, topic, publishes, spreads, subscribes, needs, near, home_ms, server_ms, spool, rate, home
    )
    best = delay(sums, storage, compute, cloud_ms)
    while True:
        m = 0
        while m < clients:  # the next number, a digit for each client
            to = home[m] + 1 if home[m] + 1 < servers else 0
            shift(
                begin, topic, publishes, spreads, subscribes, needs, near, home_ms, server_ms, spool, rate,
                home, subs, pubs, far, sums, m, to,
            )  # fmt: skip
            if to:
                break
            m += 1
        if m == clients:
            return best
        best = min(best, delay(sums, storage, compute, cloud_ms))


@compiled
def settle(
    begin: Ints, topic: Rows, publishes: Floats, spreads: Floats, subscribes: Flags, needs: Flags, near: Floats,
    home_ms: Floats, server_ms: Floats, spool: Floats, rate: Floats, storage: Floats, compute: Floats, cloud_ms: float,
    home: Rows, newcomers: Rows,
) -> None:  # fmt: skip
    """Move each of the ``newcomers`` from its provisional home to the home of least delay; other clients stay."""
    subs, pubs, far, sums = begun(
        begin, topic, publishes, spreads, subscribes, needs, near, home_ms, server_ms, spool, rate, home
    )
    for m in newcomers:
        best, least = home[m], np.inf
        for to in range(len(storage)):
            shift(
                begin, topic, publishes, spreads, subscribes, needs, near, home_ms, server_ms, spool, rate,
                home, subs, pubs, far, sums, m, to,
            )  # fmt: skip
            then = delay(sums, storage, compute, cloud_ms)
            if then < least:
                best, least = to, then
        shift(
            begin, topic, publishes, spreads, subscribes, needs, near, home_ms, server_ms, spool, rate,
            home, subs, pubs, far, sums, m, best,
        )  # fmt: skip


@compiled
def anneal(
    begin: Ints, topic: Rows, publishes: Floats, spreads: Floats, subscribes: Flags, needs: Flags, near: Floats,
    home_ms: Floats, server_ms: Floats, spool: Floats, rate: Floats, storage: Floats, compute: Floats, cloud_ms: float,
    member_begin: Ints, member: Rows, start: Rows, origin: Rows, allowed: int, most: Floats, steps: int, hot: float,
    cold: float, rng: np.random.Generator,
) -> tuple[Rows, float]:  # fmt: skip
    """The best placement found, and its delay.

    ``hot`` and ``cold`` are the first and last temperature, as shares of the delay divided by the number of clients.
    At most ``allowed`` clients are away from their ``origin`` (-1: none) at any time, and no client moves to a server
    whose load would exceed ``most``.
    """
    clients, servers = len(start), len(storage)
    home = start.copy()
    subs, pubs, far, sums = begun(
        begin, topic, publishes, spreads, subscribes, needs, near, home_ms, server_ms, spool, rate, home
    )
    now = delay(sums, storage, compute, cloud_ms)
    best, best_home = now, home.copy()
    group = np.empty(clients, np.int32)
    left = allowed
    for m in range(clients):
        left -= origin[m] >= 0 and home[m] != origin[m]
    for step in range(steps):
        heat = hot * (cold / hot) ** (step / steps) * now / clients
        m = int(rng.integers(0, clients))
        links = begin[m + 1] - begin[m]
        draw = rng.random()
        at = home[m]
        many = 1
        group[0] = m
        to = int(rng.integers(0, servers))
        if links and draw < 0.8:
            n = topic[begin[m] + rng.integers(0, links)]
            size = member_begin[n + 1] - member_begin[n]
            if draw < 0.7 or rng.random() < 0.7:
                to = home[member[member_begin[n] + rng.integers(0, size)]]
            if draw >= 0.5:
                many = 0
                for p in range(member_begin[n], member_begin[n + 1]):
                    if home[member[p]] == at:
                        group[many] = member[p]
                        many += 1
        if to == at:
            continue
        used = 0
        for g in range(many):
            if origin[group[g]] >= 0:
                used += (to != origin[group[g]]) - (at != origin[group[g]])
        if used > left:
            continue
        for g in range(many):
            shift(
                begin, topic, publishes, spreads, subscribes, needs, near, home_ms, server_ms, spool, rate,
                home, subs, pubs, far, sums, group[g], to,
            )  # fmt: skip
        then = delay(sums, storage, compute, cloud_ms)
        if sums[5, to] <= most[to] and (then <= now or rng.random() < np.exp((now - then) / heat)):
            now = then
            left -= used
            if now < best * (1.0 - 1e-12):
                best = now
                best_home[:] = home
        else:
            for g in range(many):
                shift(
                    begin, topic, publishes, spreads, subscribes, needs, near, home_ms, server_ms, spool, rate,
                    home, subs, pubs, far, sums, group[g], at,
                )  # fmt: skip
    return best_home, best
