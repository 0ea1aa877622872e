"""What no placement of clients can beat."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.model.judgement import TOLERANCE
from trimtab.model.placement import UNPLACED, Bound
from trimtab.place.client.delays import Field
from trimtab.place.client.instance import Instance

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats
    from trimtab.place.client.instance import Counts


def least_load(problem: Problem) -> Bound:
    """For the level of load: every subscription goes out once, every topic comes in at least once.

    All that is shared by the brokers' strength; and a client takes both of what it wants at whichever broker it is.
    """
    strength = problem.speed[problem.speed > 0.0]
    if not len(strength):
        return Bound("nothing can be placed", 0.0, "max_load")
    rate = problem.data_rate
    degree = np.bincount(problem.topic, minlength=len(rate))
    shared = float((rate * (degree + (degree > 0))).sum() / strength.sum())
    weight = np.bincount(problem.client, weights=rate[problem.topic], minlength=1)
    alone = 2.0 * float(weight.max()) / float(strength.max())
    return Bound("one copy in", shared, "max_load") if shared >= alone else Bound("one client", alone, "max_load")


def least_load_within(problem: Problem, moves: int) -> Bound:
    """The same where at most so many clients may leave their brokers.

    A copy that comes in for n clients of a broker ends only if all of them leave: each may end its part, 1/n, and no
    set of clients ends more than the largest parts there are. What comes in anew elsewhere only adds.
    """
    assert problem.current is not None
    anyhow = least_load(problem)
    strength = float(problem.speed[problem.speed > 0.0].sum())
    if strength == 0.0 or (problem.current.broker == UNPLACED).any():
        return anyhow
    instance = Instance.of(problem)
    count, load = instance.counts(problem.current.broker)
    parts = np.sort(_relief(problem, instance, count) - instance.weight)[::-1]
    value = float(load.sum() - parts[:moves].sum()) / strength * (1.0 - TOLERANCE)
    return Bound("so few moves", value, "max_load") if value > anyhow.value else anyhow


def least_delay(problem: Problem) -> Bound:
    """Everybody at the nearest broker, all brokers at one place, and room for everything."""
    field = Field.of(problem)
    nearest = field.home_ms.min(axis=1) if field.servers else np.zeros(field.clients)
    return Bound("nearest homes", float(field.near @ nearest), "delay")


def least_moves(problem: Problem, level: float) -> int:
    """Moves without which no placement of clients has a level of load of at most ``level``.

    Whoever leaves broker b takes his copies along, and the copy that came in for them only if all of them leave: a set
    of clients frees at most the sum of lambda_k (1 + 1/n_bk) over theirs. What is too much must leave, the largest
    first. Clients without a broker must get one.
    """
    assert problem.current is not None
    now = problem.current.broker
    instance = Instance.of(problem)
    count, load = instance.counts(now)
    relief = _relief(problem, instance, count)
    moves = int(np.count_nonzero(now == UNPLACED)) if (problem.speed > 0.0).any() else 0
    for j in range(problem.brokers) if np.isfinite(level) else ():
        excess = load[j] - level * problem.speed[j] * (1.0 + TOLERANCE)
        if excess > 0.0:
            freed = np.cumsum(np.sort(relief[now == j])[::-1])
            moves += min(int(np.searchsorted(freed * (1.0 + TOLERANCE), excess)) + 1, len(freed))
    return moves


def _relief(problem: Problem, instance: Instance, count: Counts) -> Floats:
    """Of each client, what its leaving may free at most."""
    assert problem.current is not None
    broker = problem.current.broker[problem.client]
    here = broker != UNPLACED
    topic = problem.topic[here]
    share = problem.data_rate[topic] * (1.0 + 1.0 / count[topic, broker[here]])
    return np.bincount(problem.client[here], weights=share, minlength=instance.clients).astype(np.float64)
