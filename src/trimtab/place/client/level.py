"""Level the load with few moves: an overloaded broker gives up its excess in as few and heavy clients as possible.

Moving the heaviest client to the least loaded broker (Nguyen's LDM) is as good as any greedy rule while there is much
to move, but its last moves are poor. Here, a client moves only if its old broker does not fall below the mean and its
new broker does not rise above it. A few well-fitting moves, preferably of clients that have moved anyway, and exchanges
of two clients do the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]
    Counts = NDArray[np.int32]

NOTHING: Final = 1 << 30  # result of ``exchange`` if no exchange was made
TRIED: Final = 8  # pairs tried for an exchange
LOOKED_AT: Final = 4_096  # clients of a broker considered for an exchange, about


@compiled
def enters(begin: Ints, topic: Rows, rate: Floats, weight: Floats, count: Counts, i: int, j: int) -> float:
    """Load that client ``i`` adds to broker ``j``: its copies out, and a copy in of every topic that is new there."""
    more: float = weight[i]
    for s in range(begin[i], begin[i + 1]):
        if not count[topic[s], j]:
            more += rate[topic[s]]
    return more


@compiled
def leaves(begin: Ints, topic: Rows, rate: Floats, weight: Floats, count: Counts, i: int, j: int) -> float:
    """Load that broker ``j`` loses when client ``i`` leaves it."""
    less: float = weight[i]
    for s in range(begin[i], begin[i + 1]):
        if count[topic[s], j] == 1:
            less += rate[topic[s]]
    return less


@compiled
def move(
    begin: Ints, topic: Rows, rate: Floats, weight: Floats, count: Counts, load: Floats, home: Rows, i: int, to: int
) -> None:
    at = home[i]
    load[at] -= leaves(begin, topic, rate, weight, count, i, at)
    load[to] += enters(begin, topic, rate, weight, count, i, to)
    for s in range(begin[i], begin[i + 1]):
        count[topic[s], at] -= 1
        count[topic[s], to] += 1
    home[i] = to


@compiled
def lightest(load: Floats, speed: Floats, but: int, many: int) -> Rows:
    """The ``many`` brokers with the least load relative to their strength, except ``but``; -1: no more."""
    chosen = np.full(many, -1, np.int32)
    for n in range(many):
        for j in range(len(load)):
            if speed[j] <= 0.0 or j == but:
                continue
            taken = False
            for before in range(n):
                taken |= chosen[before] == j
            if not taken and (chosen[n] < 0 or load[j] / speed[j] < load[chosen[n]] / speed[chosen[n]]):
                chosen[n] = j
    return chosen


@compiled
def fullest(load: Floats, speed: Floats) -> int:
    most = -1
    for j in range(len(load)):
        if speed[j] > 0.0 and (most < 0 or load[j] / speed[j] > load[most] / speed[most]):
            most = j
    return most


@compiled
def join(
    begin: Ints, topic: Rows, rate: Floats, weight: Floats, speed: Floats, order: Rows,
    home: Rows, count: Counts, load: Floats,
) -> None:  # fmt: skip
    """Give each client without a home, heaviest first, the broker whose level is least with it."""
    for i in order:
        if home[i] >= 0:
            continue
        best, least = -1, np.inf
        for j in range(len(speed)):
            if speed[j] > 0.0:
                level = (load[j] + enters(begin, topic, rate, weight, count, i, j)) / speed[j]
                if level < least:
                    best, least = j, level
        load[best] = least * speed[best]
        for s in range(begin[i], begin[i + 1]):
            count[topic[s], best] += 1
        home[i] = best


@compiled
def bulk(
    begin: Ints, topic: Rows, rate: Floats, weight: Floats, speed: Floats, order: Rows, start: Rows,
    home: Rows, count: Counts, load: Floats, tolerance: float, left: int,
) -> int:  # fmt: skip
    """Move heavy clients from brokers above the mean to the least loaded; returns the number of moves ``left``."""
    strength = speed.sum()
    at = np.zeros(len(speed), np.int64)  # place in ``order`` of each broker's next candidate
    done = speed <= 0.0
    while left > 0:
        mean = load.sum() / strength
        most = -1
        for j in range(len(speed)):
            if not done[j] and (most < 0 or load[j] / speed[j] > load[most] / speed[most]):
                most = j
        if most < 0 or load[most] <= mean * speed[most] * (1.0 + tolerance):
            return left
        to = lightest(load, speed, most, 1)[0]
        if to < 0:
            return left
        moved = False
        while at[most] < len(order) and not moved:
            i = order[at[most]]
            at[most] += 1
            if home[i] != most or start[i] != most:
                continue
            if weight[i] <= 0.0:
                break
            stays = load[most] - leaves(begin, topic, rate, weight, count, i, most)
            comes = load[to] + enters(begin, topic, rate, weight, count, i, to)
            if stays >= mean * speed[most] * (1.0 - tolerance) and comes <= mean * speed[to] * (1.0 + tolerance):
                move(begin, topic, rate, weight, count, load, home, i, to)
                left -= 1
                moved = True
        if not moved:
            done[most] = True
    return left


@compiled
def finish(
    begin: Ints, topic: Rows, rate: Floats, weight: Floats, speed: Floats, start: Rows,
    home: Rows, count: Counts, load: Floats, tolerance: float, left: int, steps: int,
) -> int:  # fmt: skip
    """Move and exchange clients of the fullest broker until it is above the mean by the tolerance at most.

    A client that has moved already may move again at no cost. Returns the number of moves ``left``.
    """
    strength = speed.sum()
    for _ in range(steps):
        mean = load.sum() / strength
        most = fullest(load, speed)
        if most < 0 or load[most] <= mean * speed[most] * (1.0 + tolerance):
            return left
        high = load[most] / speed[most]
        enough = mean * (1.0 + tolerance)
        best, best_i, best_to, best_cost = high, -1, -1, 0
        for to in lightest(load, speed, most, 3):
            if to < 0:
                continue
            wish = (load[most] * speed[to] - load[to] * speed[most]) / (speed[most] + speed[to])
            near = np.full(2, np.inf)  # distance to the wish of the best free move and of the best that costs one
            for i in range(len(home)):
                if home[i] != most or weight[i] <= 0.0:
                    continue
                cost = (to != start[i]) - (most != start[i])
                kind = 1 if cost > 0 else 0
                if cost > left or abs(weight[i] - wish) >= near[kind]:
                    continue
                stays = (load[most] - leaves(begin, topic, rate, weight, count, i, most)) / speed[most]
                comes = (load[to] + enters(begin, topic, rate, weight, count, i, to)) / speed[to]
                worse = max(stays, comes, enough)
                if worse < high:
                    near[kind] = abs(weight[i] - wish)
                    if worse < best or (worse == best and cost < best_cost):
                        best, best_i, best_to, best_cost = worse, i, to, cost
        if best > enough:
            to = lightest(load, speed, most, 1)[0]
            used = exchange(begin, topic, rate, weight, speed, start, home, count, load, most, to, best, left)
            if used < NOTHING:
                left -= used
                continue
        if best_i < 0 or best >= high * (1.0 - 1e-13):
            return left
        move(begin, topic, rate, weight, count, load, home, best_i, best_to)
        left -= best_cost
    return left


@compiled
def exchange(
    begin: Ints, topic: Rows, rate: Floats, weight: Floats, speed: Floats, start: Rows,
    home: Rows, count: Counts, load: Floats, most: int, to: int, below: float, left: int,
) -> int:  # fmt: skip
    """Exchange a client of ``most`` for one of ``to`` so that both levels are below ``below``; returns the moves used.

    Candidates are pairs whose difference in weight is nearest to the load that should leave, found by binary search.
    The few best pairs are tried out, since the topics they share with other clients also matter. Returns ``NOTHING`` if
    no pair is good enough.
    """
    if to < 0:
        return NOTHING
    wish = (load[most] * speed[to] - load[to] * speed[most]) / (speed[most] + speed[to])
    here = np.flatnonzero(home == most)
    there = np.flatnonzero(home == to)
    if not len(here) or not len(there):
        return NOTHING
    there = there[np.argsort(weight[there])]
    sorted_weight = weight[there]
    far = np.full(TRIED, np.inf)
    pairs = np.full((TRIED, 2), -1, np.int64)
    for at in range(0, len(here), max(1, len(here) // LOOKED_AT)):
        i = here[at]
        place = np.searchsorted(sorted_weight, weight[i] - wish)
        for slot in (place - 1, place):
            if slot < 0 or slot >= len(there):
                continue
            other = there[slot]
            cost = (to != start[i]) - (most != start[i]) + (most != start[other]) - (to != start[other])
            distance = abs(weight[i] - sorted_weight[slot] - wish)
            if cost > left or distance >= far[-1]:
                continue
            n = TRIED - 1
            while n > 0 and far[n - 1] > distance:
                far[n] = far[n - 1]
                pairs[n] = pairs[n - 1]
                n -= 1
            far[n] = distance
            pairs[n, 0], pairs[n, 1] = i, other
    best, chosen = below * (1.0 - 1e-13), -1
    for n in range(TRIED):
        i, other = pairs[n]
        if i < 0:
            break
        before_most, before_to = load[most], load[to]
        move(begin, topic, rate, weight, count, load, home, i, to)
        move(begin, topic, rate, weight, count, load, home, other, most)
        worse = max(load[most] / speed[most], load[to] / speed[to])
        if worse < best:
            best, chosen = worse, n
        move(begin, topic, rate, weight, count, load, home, other, to)
        move(begin, topic, rate, weight, count, load, home, i, most)
        load[most], load[to] = before_most, before_to  # undo rounding errors
    if chosen < 0:
        return NOTHING
    i, other = pairs[chosen]
    used: int = (to != start[i]) - (most != start[i]) + (most != start[other]) - (to != start[other])
    move(begin, topic, rate, weight, count, load, home, i, to)
    move(begin, topic, rate, weight, count, load, home, other, most)
    return used
