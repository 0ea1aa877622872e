"""Topics in the order the merged bound takes them, the bound itself, and kinds of topics that are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]


@compiled
def by_degree(degree: Rows) -> Rows:
    """Topics that have links, most links first; ties in row order. Counting sort."""
    most = 0
    for d in degree:
        most = max(most, d)
    start = np.zeros(most + 2, np.int64)
    for d in degree:
        start[most - d + 1] += 1
    for d in range(most + 1):
        start[d + 1] += start[d]
    order = np.empty(len(degree), np.int32)
    for k in range(len(degree)):
        slot = most - degree[k]
        order[start[slot]] = k
        start[slot] += 1
    size = len(degree)
    while size > 0 and degree[order[size - 1]] == 0:
        size -= 1
    return order[:size]


@compiled
def selected(rate: Floats, degree: Rows, order: Rows, capacity: float) -> int:
    """Number of topics of ``order`` that fill ``capacity`` if they are divisible."""
    weight = 0.0
    for p in range(len(order)):
        if weight >= capacity:
            return p
        weight += rate[order[p]] * (degree[order[p]] + 1.0)
    return len(order)


@compiled
def merged_lp_bound(rate: Floats, degree: Rows, order: Rows, room: Floats) -> float:
    """Upper bound: all brokers merged into one, topics divisible. O(topics), order from ``by_degree``.

    Carrying ``n`` of a topic's ``d`` links takes at least ``n * (1 + max(1/d, 1/p))`` rates, with ``p`` the
    most links of it that fit on one broker: one copy goes in wherever links go out.
    """
    widest, total = 0.0, 0.0
    for b in room:
        widest = max(widest, b)
        total += b
    share = np.empty(len(order))
    for p in range(len(order)):
        k = order[p]
        r, d = rate[k], degree[k]
        if r == 0.0:
            share[p] = 1.0
            continue
        per = np.floor(widest / r) - 1.0
        share[p] = 1.0 / (1.0 + max(1.0 / d, 1.0 / per)) if per >= 1.0 else 0.0
    ranked = np.argsort(-share, kind="mergesort")
    left, received = total, 0.0
    for p in ranked:
        if share[p] == 0.0:
            break
        k = order[p]
        data = rate[k] * degree[k]
        weight = data / share[p]
        if weight <= left:
            left -= weight
            received += data
        else:
            return float(received + left * share[p])
    return received


@compiled
def kinds_of(rate: Floats, degree: Rows, order: Rows) -> tuple[Rows, Ints]:
    """Topics of equal rate and degree, as positions in ``order`` that is sorted by falling degree.

    Returns the members, kind after kind, and where each kind begins; kinds by falling degree, then rate.
    """
    ranked = np.argsort(rate[order], kind="mergesort")
    ranked = ranked[np.argsort(-degree[order[ranked]], kind="mergesort")]
    members = order[ranked]
    begin = np.empty(len(members) + 1, np.int64)
    kinds = 0
    for m in range(len(members)):
        k, before = members[m], members[m - 1]
        if m == 0 or rate[k] != rate[before] or degree[k] != degree[before]:
            begin[kinds] = m
            kinds += 1
    begin[kinds] = len(members)
    return members, begin[: kinds + 1]
