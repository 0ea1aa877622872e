"""Compiled search on counts: one broker filled exactly, two or three emptied and filled again, and prices.

Weights are whole numbers of grid cells: ``need[first[i] + n]`` is the weight of ``n`` links of topic ``i``, including
the copy that comes in. ``limit[i]`` is the largest number of its links that any broker can hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats

    Ints = NDArray[np.int64]
    Matrix = NDArray[np.int64]  # brokers x topics
    Table = NDArray[np.int16]  # topics x capacity


@compiled
def knapsack(
    first: Ints,
    need: Ints,
    profit: Floats,
    limit: Ints,
    order: Ints,
    capacity: int,
    best: Floats,
    taken: Table,
) -> None:
    """The best profit of one broker at every capacity: a knapsack in which each topic has a set-up.

    ``best[c]`` becomes the most that ``c`` cells can earn, ``taken[p, c]`` the links of topic ``order[p]`` in
    it. Exact; O(capacity * links).
    """
    best[: capacity + 1] = 0.0
    before = np.empty(capacity + 1)
    for p in range(len(order)):
        i = order[p]
        before[:] = best[: capacity + 1]
        row = taken[p]
        row[: capacity + 1] = 0
        for n in range(1, limit[i] + 1):
            w, gain = need[first[i] + n], n * profit[i]
            if w > capacity:
                break
            for c in range(capacity + 1 - w):
                if before[c] + gain > best[c + w]:
                    best[c + w] = before[c] + gain
                    row[c + w] = n


@compiled
def read_back(first: Ints, need: Ints, order: Ints, capacity: int, taken: Table, chosen: Ints) -> None:
    """The counts behind ``best[capacity]``, added to ``chosen``."""
    c = capacity
    for p in range(len(order) - 1, -1, -1):
        n = taken[p, c]
        if n > 0:
            chosen[order[p]] += n
            c -= need[first[order[p]] + n]


@compiled
def merged(first: Ints, need: Ints, value: Floats, limit: Ints, capacity: int) -> float:
    """The most that one broker of the whole fleet's capacity could carry: ``knapsack`` without the choices."""
    best = np.zeros(capacity + 1)
    before = np.empty(capacity + 1)
    for i in range(len(value)):
        before[:] = best
        for n in range(1, limit[i] + 1):
            w, gain = need[first[i] + n], n * value[i]
            if w > capacity:
                break
            for c in range(capacity + 1 - w):
                if before[c] + gain > best[c + w]:
                    best[c + w] = before[c] + gain
    return float(best[capacity])


@compiled
def fill(
    j: int,
    rate: Floats,
    profit: Floats,
    left: Ints,
    first: Ints,
    need: Ints,
    limit: Ints,
    cells: Ints,
    room: Floats,
    count: Matrix,
    free: Floats,
    order: Ints,
    atmost: Ints,
    best: Floats,
    taken: Table,
) -> None:
    """Fill the empty broker ``j`` with those of the links left that earn most under ``profit``."""
    size = 0
    for i in range(len(rate)):
        count[j, i] = 0
        if left[i] > 0 and profit[i] > 0.0:
            order[size] = i
            atmost[i] = min(left[i], limit[i])
            size += 1
    knapsack(first, need, profit, atmost, order[:size], cells[j], best, taken)
    for c in range(cells[j], -1, -1):
        # On a rounded grid, the best choice may slightly exceed the broker's room. Then one cell less is tried.
        read_back(first, need, order[:size], c, taken, count[j])
        free[j] = room[j]
        for p in range(size):
            if count[j, order[p]] > 0:
                free[j] -= rate[order[p]] * (count[j, order[p]] + 1.0)
        if free[j] >= 0.0:
            break
        for p in range(size):
            count[j, order[p]] = 0
    for p in range(size):
        left[order[p]] -= count[j, order[p]]


@compiled
def top_up(j: int, rate: Floats, left: Ints, count: Matrix, free: Floats) -> None:
    """Use the room left at broker ``j`` for more links of topics it carries: they need no further copy in."""
    for i in range(len(rate)):
        if count[j, i] > 0 and left[i] > 0 and free[j] >= rate[i]:
            n = min(left[i], int(np.floor(free[j] / rate[i])))
            count[j, i] += n
            left[i] -= n
            free[j] -= n * rate[i]


@compiled
def data_of(j: int, rate: Floats, count: Matrix) -> float:
    total = 0.0
    for i in range(len(rate)):
        total += rate[i] * count[j, i]
    return total


@compiled
def pack(
    rate: Floats,
    price: Floats,
    left: Ints,
    first: Ints,
    need: Ints,
    limit: Ints,
    cells: Ints,
    room: Floats,
    count: Matrix,
    free: Floats,
) -> None:
    """Fill all brokers in turn. A link costs its ``price``, its worth at other brokers; at the last broker nothing."""
    topics = len(rate)
    best, taken = np.empty(cells.max() + 1), np.empty((topics, cells.max() + 1), np.int16)
    order, atmost = np.empty(topics, np.int64), np.empty(topics, np.int64)
    for j in range(len(cells)):
        profit = rate - price if j < len(cells) - 1 else rate
        fill(j, rate, profit, left, first, need, limit, cells, room, count, free, order, atmost, best, taken)


@compiled
def ruin_and_recreate(
    rate: Floats,
    price: Floats,
    left: Ints,
    first: Ints,
    need: Ints,
    limit: Ints,
    cells: Ints,
    room: Floats,
    count: Matrix,
    free: Floats,
    rounds: int,
    goal: float,
    rng: np.random.Generator,
) -> tuple[float, int]:
    """Empty two or three random brokers, fill them again one after the other, and keep results that are not worse.

    All but the last are filled under slightly perturbed prices, so that no two rounds are alike. Accepting slightly
    worse results was tried and gained nothing. Ends early when ``goal`` is reached. Returns the data carried and the
    number of rounds.
    """
    brokers, topics = count.shape
    best, taken = np.empty(cells.max() + 1), np.empty((topics, cells.max() + 1), np.int16)
    order, atmost, profit = np.empty(topics, np.int64), np.empty(topics, np.int64), np.empty(topics)
    data = np.empty(brokers)
    for j in range(brokers):
        data[j] = data_of(j, rate, count)
    total = data.sum()
    chosen, old_free, old_count = np.empty(3, np.int64), np.empty(3), np.empty((3, topics), np.int64)
    for done in range(rounds):
        if total >= goal:
            return total, done
        several = min(3 if rng.random() < 0.5 else 2, brokers)
        for s in range(several):
            chosen[s] = rng.integers(0, brokers)
            while (chosen[:s] == chosen[s]).any():
                chosen[s] = rng.integers(0, brokers)
        before = 0.0
        for s in range(several):
            j = chosen[s]
            before += data[j]
            old_free[s] = free[j]
            old_count[s] = count[j]
            left += count[j]
        for s in range(several):
            for i in range(topics):
                cost = price[i] * (0.9 + 0.2 * rng.random()) if s < several - 1 else 0.0
                profit[i] = rate[i] - cost
            j = chosen[s]
            fill(
                j,
                rate,
                profit,
                left,
                first,
                need,
                limit,
                cells,
                room,
                count,
                free,
                order,
                atmost,
                best,
                taken,
            )
        after = 0.0
        for s in range(several):
            top_up(chosen[s], rate, left, count, free)
            after += data_of(chosen[s], rate, count)
        if after >= before * (1.0 - 1e-12):
            for s in range(several):
                data[chosen[s]] = data_of(chosen[s], rate, count)
            total = data.sum()
        else:
            for s in range(several):
                j = chosen[s]
                left += count[j] - old_count[s]
                count[j] = old_count[s]
                free[j] = old_free[s]
    return total, rounds


@compiled
def alike_value(rate: Floats, degree: Ints, many: Ints, cells: Ints, slope: float, offset: float) -> float:
    """Lagrangian bound under prices of two parameters, for topics in kinds of equal rate and degree.

    A link of a topic of degree ``d`` costs ``rate * max(0, 1 - slope (d+1)/d - offset/d)``, so that a whole
    topic earns at most ``rate * (slope (d+1) + offset)``. At offset 0 this is the merged linear bound; a
    positive offset makes large topics dear where brokers hold only a few. Kinds must be sorted by rate, then
    by falling degree; a broker may take a kind any number of times, which keeps the bound valid.
    """
    capacity = cells.max()
    best = np.zeros(capacity + 1)
    bound, t = 0.0, 0
    while t < len(rate):
        r, end, n, top = int(rate[t]), t, degree[t], 0.0
        while end < len(rate) and rate[end] == rate[t]:
            end += 1
        while t < end or n > 0:
            while t < end and degree[t] >= n:
                d = float(degree[t])
                price = max(0.0, 1.0 - slope * (d + 1.0) / d - offset / d)
                bound += rate[t] * price * d * many[t]
                top = max(top, rate[t] * (1.0 - price))
                t += 1
            w, gain = r * (n + 1), top * n
            for c in range(capacity + 1 - w):
                if best[c] + gain > best[c + w]:
                    best[c + w] = best[c] + gain
            n -= 1
        t = end
    for b in cells:
        bound += best[b]
    return bound
