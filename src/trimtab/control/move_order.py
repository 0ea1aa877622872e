"""The order in which the keys of a placement move."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.model.placement import UNPLACED
from trimtab.place.client.instance import Instance

if TYPE_CHECKING:
    from trimtab.control.view import View
    from trimtab.model.workload import Rows


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
    waiting: dict[tuple[int, int], list[int]] = {}
    count = np.zeros((len(level), len(level)), np.int64)  # waiting keys, by source and target
    for key in movers[np.argsort(weight[movers], kind="stable")].tolist():
        route = int(home[key]), int(target[key])
        waiting.setdefault(route, []).append(key)  # the heaviest is last
        count[route] += 1
    chosen: list[int] = []
    for _ in range(min(most, len(movers))):
        source = int(np.argmax(np.where(count.any(axis=1), level, -np.inf)))
        to = int(np.argmin(np.where(count[source] > 0, level, np.inf)))
        key = waiting[source, to].pop()
        count[source, to] -= 1
        chosen.append(key)
        level[source] -= weight[key] / speed[source]
        level[to] += weight[key] / speed[to]
    return np.array(chosen, np.int32)
