"""Patterns that are worth most under prices, by the queueing model: a compiled depth-first search with a bound.

Sets grow by topics of falling load, so the first one is the heaviest. Two bounds end a branch. A set that is not
feasible has no feasible superset. And the load that a set can still take limits the worth of all that may be added: a
table has the most that so many of the lighter types are worth within so much load (Martello & Toth, *Knapsack
Problems*, 1990, 2.6, with a limit on their number).

How much load a set P can take: let x be the solution of the queueing model for P, M the number of busy workers, and v
the speed. If topics A are added, every x rises. Worker t of P keeps its limit X_t only if the mean speed that it sees
stays at ``rho_t / X_t`` or above. A worker a of A is busy for at least ``rho_a / E[v(1 + M)]``, and each such share
takes at least ``E[d(1 + M_-t)]`` of that mean speed, where d(m) is the least of the differences ``v(n) - v(n + 1)`` for
n from m on to as many as A may bring. So the loads rho of A sum up to at most

    (E[v(1 + M_-t)] - rho_t / X_t) * E[v(1 + M)] / E[d(1 + M_-t)].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.compiled import compiled
from trimtab.place.topic.instance import capacity
from trimtab.predict.queueing import CLOSE, ROUNDS, Queueing

if TYPE_CHECKING:
    from trimtab.model.workload import Floats
    from trimtab.place.topic.instance import Bools
    from trimtab.place.topic.patterns import Types
    from trimtab.place.topic.strain import Strain
    from trimtab.predict.sets import Ints

MOST_TOPICS: Final = 16  # on a broker; for more, the table of worths would be too large
KEPT: Final = 100  # patterns found in one search, at most
RISE: Final = 0.5  # of the worth that a pattern must have, towards the highest worth found
CELLS: Final = 1500  # of load in the table of worths
TABLE: Final = 4_000_000  # entries of that table, at most
GRID: Final = 401  # shares of busy time at which latencies are compared with bounds
HALVINGS: Final = 40


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """What a search found."""

    patterns: list[tuple[int, ...]]  # types; the dearest first
    at_most: float  # no pattern is worth more
    tests: int  # of feasibility
    complete: bool  # nothing was left out


@dataclass(frozen=True, slots=True, eq=False)
class Pricing:
    """The columns of types on one kind of broker, heaviest first, a type once for each of its topics up to k."""

    types: Ints  # (R,)
    again: Bools  # (R,) the same type as the row before
    rate: Floats  # (R,) messages/ms, with the growth
    service: Floats  # (R,) ms
    limit: Floats  # (R,) share of time in which a worker may be busy so that the bound is kept
    speed: Floats  # (k + 2,) by busy workers
    drop: Floats  # (k + 1, k + 2) least loss of speed by one more busy worker, by free places and busy workers
    room: float  # cores' worth of work that the broker does at most
    most: int  # k

    @staticmethod
    def knows(oracle: Strain, kind: int) -> bool:
        """Whether strains are those of the queueing model with the same speeds for all sets."""
        instance, machine = oracle.instance, oracle.instance.machines[kind]
        plain = isinstance(instance.models[kind], Queueing) and machine.overhead_ms == 0.0
        return plain and instance.most <= MOST_TOPICS

    @classmethod
    def of(cls, oracle: Strain, types: Types, kind: int) -> Pricing:
        instance, machine = oracle.instance, oracle.instance.machines[kind]
        rate = (1.0 + oracle.growth) * instance.rate[types.topic] / 1000.0
        service = machine.message_ms(instance.processing_ms[types.topic], np.ones(len(types)))
        order = np.lexsort((-service, -rate * service))
        order = order[instance.alone[types.topic[order], kind]]
        rows = np.repeat(order, np.minimum(types.count[order], instance.most))
        again = np.concatenate([[False], rows[1:] == rows[:-1]])[: len(rows)]
        limit = limits(oracle, rate, instance.bound_ms[types.topic], kind)
        most = instance.most
        speed = machine.speeds(most + 1)
        drop = np.zeros((most + 1, most + 2))
        for free in range(1, most + 1):
            for busy in range(1, most):
                losses = -np.diff(speed[busy : min(busy + free, most) + 1])
                drop[free, busy] = float(losses.min())
        room = capacity(machine, most) * max(1.0, oracle.use)
        return cls(rows, again, rate[rows], service[rows], limit[rows], speed, drop, room, most)

    def search(self, prices: Floats, least: float, width: int) -> Priced:
        """Patterns worth more than ``least``. At most ``width`` sets with the same heaviest topic are tested."""
        rows = np.flatnonzero(prices[self.types] > 0.0)
        if not len(rows):
            return Priced([], least, 0, complete=True)
        price = prices[self.types[rows]]
        load = self.rate[rows] * self.service[rows]
        cells = max(10, min(CELLS, TABLE // ((len(rows) + 1) * (self.most + 1))))
        cell = self.room / cells
        table = _worths(price, load, self.most, cell, cells)
        members, worth, best, left_out, tests = _search(
            self.rate[rows], self.service[rows], load, self.limit[rows], price, self.again[rows], self.speed, self.drop,
            self.room, least, RISE, KEPT, width, cell, table, CLOSE, ROUNDS,
        )  # fmt: skip
        order = np.argsort(-worth, kind="stable")
        types = self.types[rows]
        found = [tuple(sorted(types[row[row >= 0]].tolist())) for row in members[order]]
        return Priced(found, max(least, best, left_out), tests, left_out <= least)


def limits(oracle: Strain, rate: Floats, bound_ms: Floats, kind: int) -> Floats:
    """(Y,) the share of time in which a worker may be busy so that the upper end of its latency is within its bound.

    A worker that is busy for the share x has messages of ``x / rate``, so its latency depends on x alone. If it does
    not rise with x everywhere, as intervals may be narrower for more load, the limit is the one without a bound: then
    too many sets count as feasible, and a lower bound on the number of brokers is lower than it could be.
    """
    model = oracle.instance.models[kind]
    assert isinstance(model, Queueing)

    def upper(use: Floats, rate: Floats) -> Floats:
        return np.asarray(model.latency(use, use / rate) * np.exp(model.spread.limits(use, oracle.coverage)[1]))

    grid = np.broadcast_to(np.linspace(0.0, oracle.use, GRID), (len(rate), GRID))
    latency = upper(grid, np.maximum(rate, 1e-12)[:, None])
    rises = (np.diff(latency, axis=1) >= 0.0).all(axis=1)
    inside = (latency <= bound_ms[:, None]).sum(axis=1)  # points of the grid
    low = grid[0, np.maximum(inside - 1, 0)]
    high = grid[0, np.minimum(inside, GRID - 1)]
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        good = upper(middle, np.maximum(rate, 1e-12)) <= bound_ms
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return np.where(rises & (rate > 0.0), high, oracle.use)


@compiled
def _worths(price: Floats, load: Floats, most: int, cell: float, cells: int) -> Floats:
    """[i, s, c]: the most that up to s rows from i on are worth, if their loads, each rounded down to whole cells, sum
    up to at most c cells."""
    table = np.zeros((len(price) + 1, most + 1, cells + 1))
    for i in range(len(price) - 1, -1, -1):
        weight = int(load[i] / cell)
        for s in range(1, most + 1):
            for c in range(cells + 1):
                best = table[i + 1, s, c]
                if c >= weight:
                    best = max(best, price[i] + table[i + 1, s - 1, c - weight])
                table[i, s, c] = best
    return table


@compiled
def _busy(chance: Floats, use: Floats, count: int) -> None:
    """The distribution of the number of busy workers."""
    chance[0] = 1.0
    for t in range(count):
        busy = min(use[t], 1.0)
        chance[t + 1] = chance[t] * busy
        for m in range(t, 0, -1):
            chance[m] = chance[m] * (1.0 - busy) + chance[m - 1] * busy
        chance[0] *= 1.0 - busy


@compiled
def _mean(chance: Floats, count: int, busy: float, values: Floats) -> float:
    """E[values(1 + M)], where M does not count the worker that asks and is busy with chance ``busy``."""
    mean = 0.0
    if busy < 0.5:
        left = 0.0
        for m in range(count):
            left = (chance[m] - busy * left) / (1.0 - busy)
            mean += left * values[m + 1]
    else:
        left = 0.0
        for m in range(count - 1, -1, -1):
            left = (chance[m + 1] - (1.0 - busy) * left) / busy
            mean += left * values[m + 1]
    return mean


@compiled
def _fits(
    members: Ints, count: int, rate: Floats, service: Floats, limit: Floats, speed: Floats, use: Floats, chance: Floats,
    close: float, rounds: int,
) -> bool:  # fmt: skip
    """Whether no worker is busier than its limit: the fixed point of ``predict.queueing``, with the same rounds.

    Shares of busy time rise from round to round, so one that is above its limit ends the search for the fixed point.
    """
    for t in range(count):
        use[t] = 0.0
    for _ in range(rounds):
        _busy(chance, use, count)
        furthest = 0.0
        for t in range(count):
            # The distribution is that of the last round; each worker divides out its own share of that round.
            busier = rate[members[t]] * (service[members[t]] / _mean(chance, count, min(use[t], 1.0), speed))
            furthest = max(furthest, busier - use[t])
            use[t] = busier
            if busier > limit[members[t]]:
                return False
        if furthest <= close:
            break
    return True


@compiled
def _room_left(
    members: Ints, count: int, load: Floats, limit: Floats, speed: Floats, drop: Floats, use: Floats, chance: Floats
) -> float:
    """The most load that topics can have together that are added to this set."""
    _busy(chance, use, count)
    own = 0.0
    for m in range(count + 1):
        own += chance[m] * speed[m + 1]
    room = 1e300
    for t in range(count):
        busy = min(use[t], 1.0)
        slack = _mean(chance, count, busy, speed) - load[members[t]] / limit[members[t]]
        loss = _mean(chance, count, busy, drop)
        if loss > 0.0:
            room = min(room, max(slack, 0.0) * own / loss)
    return room


@compiled
def _search(
    rate: Floats, service: Floats, load: Floats, limit: Floats, price: Floats, again: Bools, speed: Floats,
    drop: Floats, room: float, least: float, rise: float, kept: int, width: int, cell: float, table: Floats,
    close: float, rounds: int,
) -> tuple[Ints, Floats, float, float, int]:  # fmt: skip
    """Up to ``kept`` patterns and their worths, the highest worth, the most that a pattern left out may be worth, and
    the number of tests."""
    most, cells = table.shape[1] - 1, table.shape[2] - 1
    at, following = np.zeros(most + 1, np.int64), np.zeros(most + 1, np.int64)
    worth, rooms = np.zeros(most + 1), np.zeros(most + 1)
    use, chance = np.zeros(most + 1), np.zeros(most + 2)
    found, worth_of = np.full((kept, most), -1, np.int64), np.full(kept, -1.0)
    count, best, left_out, tests, spent = 0, 0.0, 0.0, 0, 0
    asked = least
    rooms[0] = room
    depth = 0
    while depth >= 0:
        i = following[depth]
        if i == len(price) or depth == most:
            depth -= 1
            continue
        widest = worth[depth] + table[i, most - depth, min(int(rooms[depth] / cell), cells)]
        if widest <= least:
            depth -= 1
            continue
        if depth == 0:
            spent = 0
        elif spent >= width:
            left_out = max(left_out, widest)
            depth -= 1
            continue
        following[depth] = i + 1
        if load[i] > rooms[depth] or (again[i] and (depth == 0 or at[depth - 1] != i - 1)):
            continue
        together = worth[depth] + price[i]
        rest = rooms[depth] - load[i]
        if together + table[i + 1, most - depth - 1, min(int(rest / cell), cells)] <= least:
            continue
        at[depth] = i
        tests += 1
        spent += 1
        fits = _fits(at, depth + 1, rate, service, limit, speed, use, chance, close, rounds)
        if not fits and depth > 0:  # alone, a topic fits wherever an empty broker carries it
            continue
        if together > least:
            place = count
            if count < kept:
                count += 1
            else:
                place = int(worth_of.argmin())
            if together > worth_of[place]:
                worth_of[place] = together
                found[place] = -1
                found[place, : depth + 1] = at[: depth + 1]
            best = max(best, together)
            least = max(least, asked + rise * (best - asked))
        if not fits or depth + 1 == most:
            continue
        left = min(rest, _room_left(at, depth + 1, load, limit, speed, drop[most - depth - 1], use, chance))
        depth += 1
        worth[depth], rooms[depth], following[depth] = together, left, i + 1
    return found[:count], worth_of[:count], best, left_out, tests
