"""The least maximum load of a few clients, proved by trying all placements."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]


@compiled
def best_of_all(
    begin: Ints, topic: Rows, rate: Floats, weight: Floats, speed: Floats, order: Rows, start: Rows, level: float,
    nodes: int,
) -> tuple[Rows, bool]:  # fmt: skip
    """The best homes found, or ``start`` with its ``level`` of load if none is better; and whether all were tried.

    Depth-first search, heaviest client first. A branch whose level is no better than the best is cut, and of empty
    brokers of equal strength only the first is tried.
    """
    clients, brokers = len(order), len(speed)
    count = np.zeros((len(rate), brokers), np.int32)
    load = np.zeros(brokers)
    before = np.zeros(clients)  # load of the chosen broker without this client, to restore it exactly
    chosen = np.full(clients, -1, np.int32)
    best = start.copy()
    least = level * (1.0 - 1e-12)
    depth = 0
    while depth >= 0:
        i = order[depth]
        at = chosen[depth]
        if at >= 0:
            for s in range(begin[i], begin[i + 1]):
                count[topic[s], at] -= 1
            load[at] = before[depth]
        fits = False
        while not fits and at + 1 < brokers:
            at += 1
            if speed[at] <= 0.0:
                continue
            twin = False
            if load[at] == 0.0:
                for j in range(at):
                    twin |= load[j] == 0.0 and speed[j] == speed[at]
            if twin:
                continue
            more = weight[i]
            for s in range(begin[i], begin[i + 1]):
                if not count[topic[s], at]:
                    more += rate[topic[s]]
            fits = (load[at] + more) / speed[at] < least
        nodes -= 1
        if nodes < 0:
            return best, False
        if not fits:
            chosen[depth] = -1
            depth -= 1
            continue
        chosen[depth] = at
        before[depth] = load[at]
        load[at] += more
        for s in range(begin[i], begin[i + 1]):
            count[topic[s], at] += 1
        if depth + 1 < clients:
            depth += 1
            continue
        high = 0.0
        for j in range(brokers):
            if speed[j] > 0.0:
                high = max(high, load[j] / speed[j])
        least = high * (1.0 - 1e-12)
        for d in range(clients):
            best[order[d]] = chosen[d]
    return best, True
