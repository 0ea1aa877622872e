"""Gather clients with common topics at the same broker, so that a shared topic enters the broker once.

A broker that carries a topic takes in one copy, however many clients subscribe there, so the total load falls with
every (broker, topic) pair that disappears. This is hypergraph partitioning: clients are vertices, topics are nets, and
the cost of a net is the number of brokers it touches. While every topic is at every broker, this cost gives no
direction. The search therefore starts with a soft cost: a topic with n subscribers at a broker costs rho^n there. Then
rho falls to 0, which gives the exact cost, while the limit on the load of a broker falls to the mean.

A price for every client away from its original broker keeps the search within a budget of moves: the price rises
while there are too many moves. Nguyen et al. leave grouping of similar subscribers to future work (Section 7); SDM
looks at one client at a time.
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

CAPPED: Final = 256  # number of subscribers at a broker above which the soft cost stays the same


@compiled
def powers(rho: float) -> Floats:
    power = np.empty(CAPPED)
    power[0] = 1.0
    for n in range(1, CAPPED):
        power[n] = power[n - 1] * rho
    return power


@compiled
def weigh(
    begin: Ints, topic: Rows, rate: Floats, weight: Floats, count: Counts, start: Rows, power: Floats, price: float,
    i: int, at: int, cost: Floats, more: Floats,
) -> float:  # fmt: skip
    """Fill in the cost of each broker for client ``i`` and the load it would add there.

    Returns the load that its current broker ``at`` would lose.
    """
    cost[:] = price
    if start[i] >= 0:
        cost[start[i]] = 0.0
    more[:] = weight[i]
    less: float = weight[i]
    for s in range(begin[i], begin[i + 1]):
        k = topic[s]
        r = rate[k]
        for j in range(len(cost)):
            n = count[k, j]
            if j == at:
                n -= 1
                if n == 0:
                    less += r
            elif n == 0:
                more[j] += r
            cost[j] += r * power[min(n, CAPPED - 1)]
    return less


@compiled
def move(
    begin: Ints, topic: Rows, count: Counts, load: Floats, home: Rows, start: Rows, i: int, to: int, less: float,
    more: float,
) -> int:  # fmt: skip
    """Move client ``i``; returns the moves used of the budget: -1 if it returns to its original broker."""
    at = home[i]
    for s in range(begin[i], begin[i + 1]):
        count[topic[s], at] -= 1
        count[topic[s], to] += 1
    load[at] -= less
    load[to] += more
    home[i] = to
    used: int = (to != start[i]) - (at != start[i])
    return used


@compiled
def sweep(
    begin: Ints, topic: Rows, rate: Floats, weight: Floats, speed: Floats, order: Rows, start: Rows,
    home: Rows, count: Counts, load: Floats, rho: float, cap: float, price: float, left: int,
) -> int:  # fmt: skip
    """Move each client once to the broker of least cost whose level stays below ``cap``.

    When no moves are ``left``, clients stay at their original broker. Returns the number of moves left.
    """
    power, cost, more = powers(rho), np.empty(len(speed)), np.empty(len(speed))
    for i in order:
        at = home[i]
        if left <= 0 and at == start[i]:
            continue
        less = weigh(begin, topic, rate, weight, count, start, power, price, i, at, cost, more)
        best = at
        for j in range(len(speed)):
            if j != at and cost[j] < cost[best] * (1.0 - 1e-12) and load[j] + more[j] <= cap * speed[j]:
                best = j
        if best != at:
            left -= move(begin, topic, count, load, home, start, i, best, less, more[best])
    return left


@compiled
def shed(
    begin: Ints, topic: Rows, rate: Floats, weight: Floats, speed: Floats, start: Rows,
    home: Rows, count: Counts, load: Floats, rho: float, cap: float, price: float, left: int,
) -> int:  # fmt: skip
    """Move clients away from brokers above ``cap``, least added cost per load first; returns the moves ``left``."""
    power, cost, more = powers(rho), np.empty(len(speed)), np.empty(len(speed))
    for full in range(len(speed)):
        if speed[full] <= 0.0 or load[full] <= cap * speed[full]:
            continue
        here = np.flatnonzero(home == full)
        loss = np.full(len(here), np.inf)
        for at in range(len(here)):
            i = here[at]
            if weight[i] <= 0.0 or (left <= 0 and full == start[i]):
                continue
            weigh(begin, topic, rate, weight, count, start, power, price, i, full, cost, more)
            least = np.inf
            for j in range(len(speed)):
                if j != full and load[j] < cap * speed[j]:
                    least = min(least, cost[j])
            loss[at] = (least - cost[full]) / weight[i]
        for at in np.argsort(loss):
            if load[full] <= cap * speed[full] or loss[at] == np.inf:
                break
            i = here[at]
            if left <= 0 and full == start[i]:
                continue
            less = weigh(begin, topic, rate, weight, count, start, power, price, i, full, cost, more)
            best = -1
            for j in range(len(speed)):
                if j != full and load[j] + more[j] <= cap * speed[j] and (best < 0 or cost[j] < cost[best]):
                    best = j
            if best >= 0:
                left -= move(begin, topic, count, load, home, start, i, best, less, more[best])
    return left
