"""Upper bounds on the data that any placement of links can carry, from the cheapest to the tightest.

The paper compares with ``min(sum of bandwidths, data offered)`` (Lambert & Sakellariou, Section V). This bound leaves
out the copies that come in and lies up to two thirds above the optimum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.model.placement import Bound
from trimtab.place.link.counts import Grid, Instance
from trimtab.place.link.packing import alike_value, merged, pack
from trimtab.place.link.patterns import PatternProgram
from trimtab.place.link.ranking import kinds_of, merged_lp_bound
from trimtab.place.stop import NO_LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats

PATTERN_STEPS: Final = 400
ALIKE_WORK: Final = 60_000  # table entries at most for one evaluation of the alike bound
GOLDEN: Final = (5**0.5 - 1) / 2


def quick(problem: Problem) -> Bound:
    """The merged linear bound, used for policies that prove no bound themselves."""
    return merged_lp(Instance.of(problem))


def paper(instance: Instance) -> Bound:
    """The bound of the paper's evaluation."""
    return Bound("paper", min(float(instance.room.sum()), instance.offered))


def merged_lp(instance: Instance) -> Bound:
    """All brokers merged into one, topics divisible. O(T log T)."""
    value = merged_lp_bound(instance.rate, instance.degree, instance.order, instance.room)
    if value >= instance.offered * (1.0 - 1e-12):
        return Bound("offered", instance.offered)
    return Bound("merged-lp", instance.floored(value))


def merged_exact(instance: Instance, grid: Grid | None = None) -> Bound:
    """All brokers merged into one, links indivisible: a knapsack with set-ups. O(links * total cells).

    A topic of which a broker holds at most ``p`` links pays a set-up for every ``p`` of them.
    """
    if not len(instance.order) or not len(instance.room):
        return Bound("merged", 0.0)
    grid = grid or Grid.of(instance, down=True)
    degree = instance.degree[grid.topic].astype(np.int64)
    per_broker = np.clip(np.floor(instance.room.max() / grid.rate) - 1.0, 1.0, degree).astype(np.int64)
    first = np.cumsum(degree + 1) - (degree + 1)
    links = np.arange(int((degree + 1).sum())) - np.repeat(first, degree + 1)
    copies = links + -(-links // np.repeat(per_broker, degree + 1))
    weight = np.repeat(grid.rate, degree + 1) * copies / grid.cell
    need = (np.rint(weight) if grid.exact else np.floor(weight * (1.0 + 1e-12))).astype(np.int64)
    total = int(grid.cells.sum()) if grid.exact else int(instance.room.sum() / grid.cell * (1.0 + 1e-12))
    value = min(merged(first, need, grid.rate, degree, total), instance.offered)
    return Bound("merged", instance.floored(value * (1.0 + 1e-12)))


def patterns(instance: Instance, grid: Grid | None = None) -> Bound:
    """Column generation over the patterns of one broker, run to its end: see ``patterns.py``."""
    if not len(instance.order) or not len(instance.room):
        return Bound("patterns", 0.0)
    grid = grid or Grid.of(instance, down=True)
    if not len(grid.topic):
        return Bound("patterns", 0.0)
    price = merged_prices(instance, grid)
    count = np.zeros((len(instance.room), len(grid.topic)), np.int64)
    left, room = instance.degree[grid.topic].astype(np.int64), instance.room
    pack(grid.rate, price, left, grid.first, grid.need, grid.limit, grid.cells, room, count, room.copy())
    program = PatternProgram(instance, grid)
    program.add_packing(count)  # prices make sense from the first step on
    result = program.bound(instance, price, 0.0, PATTERN_STEPS, NO_LIMIT)
    return Bound("patterns", min(result.value, instance.offered))


def merged_prices(instance: Instance, grid: Grid) -> Floats:
    """The worth of a link of each topic at the merged linear optimum.

    At these prices, a whole topic earns at most the marginal worth of its room. So each selected topic just pays for
    its room, and only slack, splits and small topics are penalised.
    """
    degree = instance.degree[grid.topic].astype(np.float64)
    price: Floats = grid.rate * np.maximum(1.0 - instance.worth * (degree + 1.0) / degree, 0.0)
    return price


def alike(instance: Instance) -> Bound | None:
    """The best of a two-parameter family of Lagrangian bounds, where topics fall into few kinds.

    Brokers that hold four topics each cannot all take the large ones. This bound accounts for that; the merged bound
    does not. Its cost depends only on the number of different rates and degrees. None if the rates share no unit or
    there are too many kinds.
    """
    topic = instance.order
    if instance.unit == 0.0 or not len(topic) or not len(instance.room):
        return None
    members, begin = kinds_of(instance.rate, instance.degree, topic)
    first = members[begin[:-1]]
    rate, degree = np.rint(instance.rate[first] / instance.unit), instance.degree[first].astype(np.int64)
    many = np.diff(begin)
    cells = np.floor(instance.room / instance.unit * (1.0 + 1e-12))
    fits = 2.0 * rate <= cells.max()
    by_rate = np.lexsort((-degree, rate))
    by_rate = by_rate[fits[by_rate]]
    rate, degree, many = rate[by_rate], degree[by_rate], many[by_rate]
    if not len(many) or cells.max() * len(np.unique(rate)) * degree.max() > ALIKE_WORK:
        return None
    capacity = cells.astype(np.int64)
    large = float(degree.max())

    def at(slope: float, offset: float) -> float:
        return alike_value(rate, degree, many, capacity, slope, offset)

    def best_slope(offset: float) -> float:
        return _least(lambda slope: at(slope, offset), 0.5, 1.0, 10)

    value = _least(best_slope, 0.0, large / 2.0, 7)
    return Bound("alike", instance.floored(min(value * (1.0 + 1e-12) * instance.unit, instance.offered)))


def _least(function: Callable[[float], float], low: float, high: float, steps: int) -> float:
    """The least value found by golden-section search. Any value is a valid bound, so no convexity is needed."""
    a, b = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_a, at_b = function(a), function(b)
    least = min(at_a, at_b)
    for _ in range(steps):
        if at_a <= at_b:
            high, b, at_b = b, a, at_a
            a = high - GOLDEN * (high - low)
            at_a = function(a)
        else:
            low, a, at_a = a, b, at_b
            b = low + GOLDEN * (high - low)
            at_b = function(b)
        least = min(least, at_a, at_b)
    return least
