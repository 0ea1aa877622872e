"""The order in which the keys of a placement move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.compiled import compiled
from trimtab.model.placement import UNPLACED
from trimtab.place.client.instance import Instance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.control.view import View
    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]


def in_order(view: View, target: Rows, most: int) -> Rows:
    """Order the keys to move, and keep at most ``most`` of them.

    Each time, the next key comes from the fullest broker that has keys to give. It goes to the emptiest of the brokers
    that keys of this broker go to; of its keys for that target, the heaviest is next. So a plan that is stopped, or cut
    off by its budget, has gained as much as that number of moves can. O(moves x brokers).
    """
    home = view.current
    movers = np.flatnonzero((home != target) & (home != UNPLACED))
    if not len(movers) or most <= 0:
        return movers[:0].astype(np.int32)
    problem = view.problem
    weight = Instance.of(problem).weight
    level = view.load().levels.copy()
    speed = np.where(problem.speed > 0.0, problem.speed, 1e-9)
    brokers = len(level)
    route = home[movers].astype(np.int64) * brokers + target[movers]
    movers = movers[np.lexsort((weight[movers], route))]  # of each route, the heaviest is last
    begin = np.searchsorted(np.sort(route), np.arange(brokers * brokers + 1))
    chosen = _chosen(begin, weight[movers] / speed[home[movers]], weight[movers] / speed[target[movers]], level, most)
    return np.asarray(movers[chosen], np.int32)


@compiled
def _chosen(begin: Ints, relief: Floats, burden: Floats, level: Floats, most: int) -> Ints:
    """Rows of the chosen moves, in order. Rows of the route from j to l are begin[j * brokers + l] and those after it;
    a move takes relief from the level of its source and adds burden to that of its target."""
    brokers = len(level)
    waiting = begin[1:] - begin[:-1]
    left = waiting.reshape(brokers, brokers).sum(axis=1)
    chosen = np.empty(min(most, len(relief)), np.int64)
    for i in range(len(chosen)):
        source = to = -1
        for j in range(brokers):
            if left[j] and (source < 0 or level[j] > level[source]):
                source = j
        for j in range(brokers):
            if waiting[source * brokers + j] and (to < 0 or level[j] < level[to]):
                to = j
        row = source * brokers + to
        waiting[row] -= 1
        left[source] -= 1
        chosen[i] = begin[row] + waiting[row]
        level[source] -= relief[chosen[i]]
        level[to] += burden[chosen[i]]
    return chosen
