"""The sweep for topics that fall into few kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]


MIXING = 1e-3  # weight of the preference for kinds with the largest remaining share


@compiled
def sweep_kinds(
    rate: Floats, degree: Rows, room: Floats, unit: float, members: Rows, begin: Ints, end: int, worth: float
) -> tuple[Rows, Rows, Rows]:
    """``sweep`` for topics that fall into few kinds: each broker is filled by an exact knapsack over kinds.

    Whole topics only, at the prices of the merged bound, which selects the first ``end`` topics: a topic
    earns its data, but at most the share ``worth`` of its room. What room remains takes part of one more
    topic. Returns allotments (topic, broker, links). O(brokers * kinds * cells), so for coarse rates only.
    """
    kinds, brokers = len(begin) - 1, len(room)
    cells = np.empty(brokers, np.int64)
    for j in range(brokers):
        cells[j] = int(np.floor(room[j] / unit * (1.0 + 1e-12)))
    waiting = np.empty(kinds, np.int64)  # whole topics of the kind that are not placed
    chosen = np.empty(kinds, np.int64)  # the waiting topics that the merged bound selects
    weight, gain = np.empty(kinds, np.int64), np.empty(kinds)
    for t in range(kinds):
        k = members[begin[t]]
        waiting[t] = begin[t + 1] - begin[t]
        weight[t] = int(np.rint(rate[k] * (degree[k] + 1.0) / unit))
        gain[t] = min(rate[k] * degree[k], worth * rate[k] * (degree[k] + 1.0))
        chosen[t] = min(max(end - begin[t], 0), waiting[t])
    at_first = chosen.copy()
    limit = len(members) + 2 * brokers + 16
    of, on, links = np.empty(limit, np.int32), np.empty(limit, np.int32), np.empty(limit, np.int32)
    rows = 0
    widest = cells.max()
    best = np.empty(widest + 1)
    # a kind comes twice, each time in bundles of 1, 2, 4, ... topics
    taken = np.empty((64 * kinds, widest + 1), np.bool_)
    item_kind, item_many = np.empty(64 * kinds, np.int64), np.empty(64 * kinds, np.int64)
    rest = np.zeros(kinds, np.int64)  # links left of the one topic of the kind that is placed in part
    rest_of = np.empty(kinds, np.int64)
    for j in np.argsort(-room, kind="mergesort"):
        capacity = cells[j]
        best[: capacity + 1] = 0.0
        items = 0
        for t in range(2 * kinds):
            # Selected topics first, with a preference for kinds of which most remain: rare weights complete sums of
            # common ones and should not run out. Then the topics that are not selected.
            of_selected = t < kinds
            t %= kinds
            many = min(chosen[t] if of_selected else waiting[t] - chosen[t], capacity // weight[t])
            profit = gain[t]
            if of_selected and many > 0:
                profit *= 1.0 + MIXING * chosen[t] / at_first[t]
            copies = 1
            while many > 0:
                copies = min(copies, many)
                w, g = copies * weight[t], copies * profit
                row = taken[items]
                row[: capacity + 1] = False
                for c in range(capacity, w - 1, -1):
                    if best[c - w] + g > best[c] * (1.0 + 1e-12):
                        best[c] = best[c - w] + g
                        row[c] = True
                item_kind[items], item_many[items] = t, copies
                items += 1
                many -= copies
                copies *= 2
        c = capacity
        for p in range(items - 1, -1, -1):
            if taken[p, c]:
                t = item_kind[p]
                c -= item_many[p] * weight[t]
                for _ in range(item_many[p]):
                    waiting[t] -= 1
                    chosen[t] = max(chosen[t] - 1, 0)
                    k = members[begin[t] + waiting[t]]
                    of[rows], on[rows], links[rows] = k, j, degree[k]
                    rows += 1
        # part of one more topic: of a topic that is split already, or else of a new topic of the last kinds
        most, best_t, best_n = 0.0, -1, 0
        for t in range(kinds):
            have = rest[t] if rest[t] > 0 else (degree[members[begin[t]]] if waiting[t] > 0 else 0)
            r = rate[members[begin[t]]]
            n = min(have, int(np.floor(c * unit / r * (1.0 + 1e-12))) - 1)
            if n > 0 and n * r >= most:
                most, best_t, best_n = n * r, t, n
        if best_n > 0:
            t = best_t
            if rest[t] == 0:
                waiting[t] -= 1
                chosen[t] = min(chosen[t], waiting[t])
                rest_of[t] = members[begin[t] + waiting[t]]
                rest[t] = degree[rest_of[t]]
            of[rows], on[rows], links[rows] = rest_of[t], j, best_n
            rows += 1
            rest[t] -= best_n
    return of[:rows], on[:rows], links[:rows]
