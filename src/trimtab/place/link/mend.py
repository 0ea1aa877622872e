"""Repair of a sweep: two brokers at a time are refilled with whole topics, from their own topics and some others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]
    Rows2 = NDArray[np.int32]  # with two dimensions
    Bools2 = NDArray[np.bool_]

SPARE = 16  # other topics added to those of the two brokers
POOL = 96  # most topics to choose from


@compiled
def mend(
    rate: Floats,
    degree: Rows,
    room: Floats,
    of: Rows,
    on: Rows,
    links: Rows,
    worth: float,
    near: Rows,
    cell: float,
    rounds: int,
    rng: np.random.Generator,
) -> tuple[Rows, Rows, Rows]:
    """Refill pairs of brokers, the most wasteful first, and keep results that carry no less.

    ``worth`` is the density of the critical topic in the merged bound. Whole topics earn at most that share of the room
    they take, so that large ones are not wasted on slack. ``near`` lists topics about as good as the critical one; some
    of them join the choice. Rooms are cut into cells, weights rounded up. Returns allotments. O(rounds * pool * cells).
    """
    brokers = len(room)
    size = np.zeros(brokers, np.int64)
    for j in on:
        size[j] += 1
    slots = size.max() + 8
    topic = np.empty((brokers, slots), np.int32)
    count = np.empty((brokers, slots), np.int32)
    size[:] = 0
    left = degree.copy()
    for a in range(len(of)):
        j = on[a]
        topic[j, size[j]], count[j, size[j]] = of[a], links[a]
        size[j] += 1
        left[of[a]] -= links[a]
    cells = int(np.floor(room.max() / cell * (1.0 + 1e-12)))
    data, waste = np.empty(brokers), np.empty(brokers)
    for j in range(brokers):
        data[j], waste[j] = measure(j, rate, room, topic, count, size, worth)

    pool, have = np.empty(POOL, np.int32), np.empty(POOL, np.int32)
    new_topic, new_count = np.empty((2, slots), np.int32), np.empty((2, slots), np.int32)
    new_size = np.empty(2, np.int64)
    best, taken = np.empty(cells + 1), np.empty((POOL, cells + 1), np.bool_)
    for _ in range(rounds):
        a = int(rng.integers(0, brokers))
        for _ in range(3):
            other = int(rng.integers(0, brokers))
            if waste[other] > waste[a]:
                a = other
        b = int(rng.integers(0, brokers))
        if a == b or size[a] + size[b] + SPARE > POOL:
            continue
        n = 0
        for j in (a, b):
            for s in range(size[j]):
                p = position(pool, n, topic[j, s])
                if p == n:
                    pool[n], have[n] = topic[j, s], left[topic[j, s]]
                    n += 1
                have[p] += count[j, s]
        for _ in range(SPARE):
            k = near[rng.integers(0, len(near))]
            if left[k] > 0 and position(pool, n, k) == n:
                pool[n], have[n] = k, left[k]
                n += 1
        after = 0.0
        fits = True
        for side in range(2):
            j = a if side == 0 else b
            free = choose(side, rate, pool[:n], have, room[j], cell, worth, new_topic, new_count, new_size, best, taken)
            fits &= new_size[side] < slots
            if fits:
                add_part(side, rate, pool[:n], have, free, new_topic, new_count, new_size)
                for s in range(new_size[side]):
                    after += rate[new_topic[side, s]] * new_count[side, s]
        if not fits or after < (data[a] + data[b]) * (1.0 - 1e-12):
            continue
        for p in range(n):
            left[pool[p]] = have[p]
        for side in range(2):
            j = a if side == 0 else b
            size[j] = new_size[side]
            topic[j], count[j] = new_topic[side], new_count[side]
            data[j], waste[j] = measure(j, rate, room, topic, count, size, worth)

    total = size.sum()
    of, on, links = np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total, np.int32)
    rows = 0
    for j in range(brokers):
        for s in range(size[j]):
            of[rows], on[rows], links[rows] = topic[j, s], j, count[j, s]
            rows += 1
    return of, on, links


@compiled
def measure(
    j: int, rate: Floats, room: Floats, topic: Rows2, count: Rows2, size: Ints, worth: float
) -> tuple[float, float]:
    """Data that broker ``j`` carries, and its shortfall against the data that its room should earn."""
    data, earned = 0.0, 0.0
    for s in range(size[j]):
        r, n = rate[topic[j, s]], count[j, s]
        data += r * n
        earned += min(r * n, worth * r * (n + 1.0))
    return data, worth * room[j] - earned


@compiled
def position(pool: Rows, n: int, k: int) -> int:
    for p in range(n):
        if pool[p] == k:
            return p
    return n


@compiled
def choose(
    side: int,
    rate: Floats,
    pool: Rows,
    have: Rows,
    room: float,
    cell: float,
    worth: float,
    new_topic: Rows2,
    new_count: Rows2,
    new_size: Ints,
    best: Floats,
    taken: Bools2,
) -> float:
    """A knapsack of whole topics for one broker; the topics chosen are removed from ``have``. Returns the room left."""
    capacity = int(np.floor(room / cell * (1.0 + 1e-12)))
    best[: capacity + 1] = 0.0
    for p in range(len(pool)):
        row = taken[p]
        row[: capacity + 1] = False
        r, n = rate[pool[p]], have[p]
        if n == 0:
            continue
        w = int(np.ceil(r * (n + 1.0) / cell * (1.0 - 1e-12)))
        # the second broker is the last to choose, so there data counts in full
        gain = min(r * n, worth * r * (n + 1.0)) if side == 0 else r * n
        for c in range(capacity, w - 1, -1):
            if best[c - w] + gain > best[c]:
                best[c] = best[c - w] + gain
                row[c] = True
    new_size[side] = 0
    c, free = capacity, room
    for p in range(len(pool) - 1, -1, -1):
        if taken[p, c] and new_size[side] < new_topic.shape[1]:
            r, n = rate[pool[p]], have[p]
            new_topic[side, new_size[side]], new_count[side, new_size[side]] = pool[p], n
            new_size[side] += 1
            have[p] = 0
            free -= r * (n + 1.0)
            c -= int(np.ceil(r * (n + 1.0) / cell * (1.0 - 1e-12)))
    return free


@compiled
def add_part(
    side: int,
    rate: Floats,
    pool: Rows,
    have: Rows,
    free: float,
    new_topic: Rows2,
    new_count: Rows2,
    new_size: Ints,
) -> None:
    """Add part of the topic whose links use ``free`` best."""
    most, best_p, best_n = 0.0, -1, 0
    for p in range(len(pool)):
        r = rate[pool[p]]
        if have[p] > 0:
            n = min(have[p], int(np.floor(free / r)) - 1)
            if n * r > most:
                most, best_p, best_n = n * r, p, n
    if best_n > 0:
        new_topic[side, new_size[side]], new_count[side, new_size[side]] = pool[best_p], best_n
        new_size[side] += 1
        have[best_p] -= best_n
