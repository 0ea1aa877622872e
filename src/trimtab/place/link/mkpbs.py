"""``link/mkpbs``: the scheduler built on multiple knapsacks (Lambert & Sakellariou, Algorithms 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.compiled import compiled
from trimtab.model.placement import Placement
from trimtab.place.link.counts import Allotments, Instance

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

CELLS: Final = 1 << 20  # most cells of a knapsack over links; finer units are rounded up


@dataclass(frozen=True, slots=True)
class Mkpbs:
    """Places whole topics by a greedy multiple knapsack, then parts of others (Lambert, Algorithms 2 and 3).

    In the second phase, topics are assigned to brokers at the weight of one link, and an exact knapsack decides how
    many links of each topic a broker takes. Corrected: Algorithm 3 must lower the capacity by the weight it takes, and
    a topic that a broker carries already does not pay for its copy again. The knapsack is exact if rates share a unit
    and a broker holds at most 2^20 of these units; finer rates are rounded up. O(T B) a pass, plus the knapsacks.
    """

    may_leave_unplaced: ClassVar[bool] = True
    keeps_limits: ClassVar[bool] = True

    def place(self, problem: Problem) -> Placement:
        instance = Instance.of(problem)
        widest = float(instance.room.max(initial=0.0))
        cell = max(instance.unit, widest / CELLS)
        allotments = Allotments(*mkpbs(instance.rate, instance.degree, instance.order, instance.room, cell))
        allotments = instance.with_free_topics(allotments)
        return Placement("link", instance.links(problem, allotments))


@compiled
def greedy_multiple_knapsack(items: Rows, weight: Floats, room: Floats, given: Rows) -> int:
    """Algorithm 3 (GreedyMKP): broker after broker, roomiest first, each takes what fits of ``items`` in order.

    ``given[p]`` becomes the broker of ``items[p]``, or -1. Returns how many were given.
    """
    given[:] = -1
    count = 0
    smallest = np.inf
    for p in range(len(items)):
        smallest = min(smallest, weight[p])
    for k in np.argsort(-room, kind="mergesort"):
        free = room[k]
        for p in range(len(items)):
            if free < smallest:
                break
            if given[p] < 0 and weight[p] <= free:
                given[p] = k
                free -= weight[p]
                count += 1
    return count


@compiled
def fullest(weights: NDArray[np.int64], copies: Rows, cells: int, chosen: Rows) -> None:
    """Exact bounded knapsack in which profit is weight: how many of each fill ``cells`` best. O(items * cells)."""
    last = np.full(cells + 1, -1, np.int32)  # the item that first reached this sum
    used = np.zeros(cells + 1, np.int32)
    last[0] = len(weights)
    chosen[:] = 0
    for p in range(len(weights)):
        used[:] = 0
        w = weights[p]
        for c in range(w, cells + 1):
            if last[c] < 0 and last[c - w] >= 0 and used[c - w] < copies[p]:
                last[c] = p
                used[c] = used[c - w] + 1
        if last[cells] >= 0:
            break
    c = cells
    while last[c] < 0:
        c -= 1
    while c > 0:
        chosen[last[c]] += 1
        c -= weights[last[c]]


@compiled
def mkpbs(rate: Floats, degree: Rows, order: Rows, room: Floats, cell: float) -> tuple[Rows, Rows, Rows]:
    """Algorithm 2 on counts; ``order`` lists topics with links by falling degree."""
    topics, brokers = len(rate), len(room)
    left, room = degree.copy(), room.copy()
    size = len(order) + 4 * brokers + 16
    of, on, links = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32)
    behind = np.empty(size, np.int32)  # next allotment at the same broker
    head = np.full(brokers, -1, np.int32)
    rows = 0

    given = np.empty(len(order), np.int32)
    weight = np.empty(len(order))
    for p in range(len(order)):
        weight[p] = rate[order[p]] * (left[order[p]] + 1.0)
    greedy_multiple_knapsack(order, weight, room, given)
    for p in range(len(order)):
        if given[p] >= 0:
            k = order[p]
            of[rows], on[rows], links[rows] = k, given[p], left[k]
            rows += 1
            room[given[p]] -= weight[p]
            left[k] = 0

    slot = np.full(topics, -1, np.int32)  # allotment of a topic at the broker at hand
    while True:
        waiting = order[left[order] > 0]
        waiting = waiting[np.argsort(-left[waiting], kind="mergesort")]
        weight = 2.0 * rate[waiting]
        given = np.empty(len(waiting), np.int32)
        if brokers == 0 or greedy_multiple_knapsack(waiting, weight, room, given) == 0:
            break
        by_broker = np.argsort(given, kind="mergesort")
        start = 0
        while start < len(waiting) and given[by_broker[start]] < 0:
            start += 1
        while start < len(waiting):
            j = given[by_broker[start]]
            end = start
            while end < len(waiting) and given[by_broker[end]] == j:
                end += 1
            own = waiting[by_broker[start:end]]
            start = end
            a = head[j]
            while a >= 0:
                slot[of[a]] = a
                a = behind[a]
            free = room[j]
            for k in own:
                if slot[k] < 0:
                    free -= rate[k]
            weights = np.empty(len(own), np.int64)
            for p in range(len(own)):
                weights[p] = int(np.ceil(rate[own[p]] / cell * (1.0 - 1e-12)))
            chosen = np.empty(len(own), np.int32)
            fullest(weights, left[own], max(int(np.floor(free / cell * (1.0 + 1e-12))), 0), chosen)
            for p in range(len(own)):
                # Rounded to cells, no link may fit although one does. That one is taken; otherwise the loop never ends.
                if chosen.any():
                    break
                if rate[own[p]] * (1.0 + (slot[own[p]] < 0)) <= room[j]:
                    chosen[p] = 1
            for p in range(len(own)):
                k = own[p]
                if chosen[p] == 0:
                    continue
                if slot[k] < 0:
                    if rows == len(of):
                        of, on, links, behind = longer(of), longer(on), longer(links), longer(behind)
                    of[rows], on[rows], links[rows] = k, j, 0
                    behind[rows] = head[j]
                    head[j] = slot[k] = rows
                    rows += 1
                    room[j] -= rate[k]
                links[slot[k]] += chosen[p]
                left[k] -= chosen[p]
                room[j] -= rate[k] * chosen[p]
            # a topic that got no link from the knapsack frees its copy: topics carried here take more links
            a = head[j]
            while a >= 0:
                k = of[a]
                n = min(left[k], int(np.floor(room[j] / rate[k])))
                if n > 0:
                    links[a] += n
                    left[k] -= n
                    room[j] -= n * rate[k]
                slot[k] = -1
                a = behind[a]
    return of[:rows], on[:rows], links[:rows]


@compiled
def longer(column: Rows) -> Rows:
    grown = np.empty(2 * len(column), np.int32)
    grown[: len(column)] = column
    return grown
