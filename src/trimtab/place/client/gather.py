"""Gather clients that want the same at the same broker: what they share comes in once.

A broker that carries a topic for anybody takes in one copy, so the total load falls with every (broker, topic) pair
that ends. This is hypergraph partitioning: clients are vertices, topics are nets, and what counts is how many brokers a
net touches. Whether a topic is at a broker says little about which way to go while every topic is everywhere, so the
search starts with a soft measure, a topic's cost at a broker falling with those who share it there as rho^n, and
hardens it (rho to 0), while the load that a broker may have is brought down to the mean.

A price on being away from where a client was keeps to a budget of moves: it is raised while too many are.
Nguyen et al. leave grouping of similar subscribers to future work (Section 7); SDM looks at one client at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.place.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]
    Counts = NDArray[np.int32]

CAPPED: Final = 256  # as many who share a topic as anybody looks at


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
    """Cost of each broker for client ``i``, who is ``at`` one, and the load it would bring; what it takes along."""
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
    """How many moves that takes of those allowed: less than none if it comes back."""
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
    """Everybody once, to the broker where the cost is least and the level stays below ``cap``.

    Nobody leaves where he was once no moves are ``left``; how many there are then.
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
    """Brokers above ``cap`` let those go who lose least for the load they take along; how many moves are ``left``."""
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
