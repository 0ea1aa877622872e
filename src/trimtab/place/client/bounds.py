"""Lower bounds on load, delay and moves that hold for every placement of clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.compiled import compiled
from trimtab.model.judgement import TOLERANCE
from trimtab.model.placement import UNPLACED, Bound
from trimtab.place.client.delays import Field
from trimtab.place.client.instance import Instance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows
    from trimtab.place.client.instance import Counts

    Ints = NDArray[np.int64]

SWEEPS: Final = 30  # sweeps of ``parted``


def least_load(problem: Problem) -> Bound:
    """A bound on the level of load: every subscription goes out once, every subscribed topic comes in at least once.

    Either the brokers share this total in proportion to their strength, or the heaviest client decides: its topics come
    in and go out at one broker.
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
    """A bound on the level of load if at most ``moves`` clients may leave their brokers.

    A copy that comes in for n clients of a broker disappears only if all of them leave. Divide its rate among them in
    any way: then a set of clients removes at most the sum of its parts, so ``moves`` clients remove at most the sum of
    the ``moves`` largest parts. ``parted`` makes the largest parts small by shifting rate from clients with large parts
    to clients with small ones. (It is the dual of a linear program whose optimum a minimum cut would find.) Copies that
    come in at new brokers only add load.
    """
    assert problem.current is not None
    anyhow = least_load(problem)
    strength = float(problem.speed[problem.speed > 0.0].sum())
    if strength == 0.0 or (problem.current.broker == UNPLACED).any():
        return anyhow
    instance = Instance.of(problem)
    _, load = instance.counts(problem.current.broker)
    parts = np.sort(_parts(problem))[::-1]
    value = float(load.sum() - parts[:moves].sum()) / strength * (1.0 - TOLERANCE)
    return Bound("so few moves", value, "max_load") if value > anyhow.value else anyhow


def least_delay(problem: Problem) -> Bound:
    """A bound on the delay: every client at its nearest broker, no delay between brokers, unlimited room."""
    field = Field.of(problem)
    nearest = field.home_ms.min(axis=1) if field.servers else np.zeros(field.clients)
    return Bound("nearest homes", float(field.near @ nearest), "delay")


def least_moves(problem: Problem, level: float) -> int:
    """The fewest moves that any placement with a level of load of at most ``level`` needs.

    A client that leaves broker b removes its copies out. The copy of a topic that comes in disappears only if all
    subscribers of the topic leave b. So a set of clients frees at most the sum of lambda_k (1 + 1/n_bk) over its
    subscriptions. The excess of each broker must leave, counted with the largest clients first. Clients without a
    broker count as moves, too.
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
    """For each client, the most load that its leaving can free."""
    assert problem.current is not None
    broker = problem.current.broker[problem.client]
    here = broker != UNPLACED
    topic = problem.topic[here]
    share = problem.data_rate[topic] * (1.0 + 1.0 / count[topic, broker[here]])
    return np.bincount(problem.client[here], weights=share, minlength=instance.clients).astype(np.float64)


def _parts(problem: Problem) -> Floats:
    """For each client, the sum of its parts of the copies that come in for it."""
    assert problem.current is not None
    pair = problem.current.broker[problem.client].astype(np.int64) * max(len(problem.data_rate), 1) + problem.topic
    order = np.argsort(pair, kind="stable")
    begin = np.flatnonzero(np.diff(pair[order], prepend=-1, append=-1)).astype(np.int64)
    rate = problem.data_rate[problem.topic[order[begin[:-1]]]] if len(order) else np.zeros(0)
    return parted(begin, problem.client[order], rate, problem.units, SWEEPS)


@compiled
def parted(begin: Ints, holder: Rows, rate: Floats, clients: int, sweeps: int) -> Floats:
    """Divide the rate of each (broker, topic) pair among its holders so that their totals are nearly equal.

    Starts with equal parts. In each sweep, every holder of a pair gives to the holder with the least total, until both
    totals are equal or its part of this pair is used up.
    """
    part = np.empty(len(holder))
    total = np.zeros(clients)
    for p in range(len(rate)):
        for at in range(begin[p], begin[p + 1]):
            part[at] = rate[p] / (begin[p + 1] - begin[p])
            total[holder[at]] += part[at]
    for _ in range(sweeps):
        for p in range(len(rate)):
            if begin[p + 1] - begin[p] < 2:
                continue
            least = begin[p]
            for at in range(begin[p], begin[p + 1]):
                if total[holder[at]] < total[holder[least]]:
                    least = at
            for at in range(begin[p], begin[p + 1]):
                given = min(part[at], (total[holder[at]] - total[holder[least]]) / 2.0)
                if given > 0.0:
                    part[at] -= given
                    part[least] += given
                    total[holder[at]] -= given
                    total[holder[least]] += given
    return total
