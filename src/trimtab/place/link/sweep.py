"""One sweep over topics and brokers: the fast half of ``link/trim``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]
    Ints2 = NDArray[np.int64]  # with two dimensions


HEADS = 14  # candidates from the front of the queue
STRIDED = 18  # candidates spread over the other selected topics: neighbours are alike, these are not
POOL = HEADS + STRIDED
MARGIN = 0.9  # topics with this share of the critical topic's links are nearly as good
NEAR = 0.0002  # share of a broker that may stay empty for the sake of a better mix


@compiled
def next_alive(skip: Ints, p: int) -> int:
    root = p
    while skip[root] != root:
        root = skip[root]
    while skip[p] != root:
        skip[p], p = root, skip[p]
    return root


@compiled
def sweep(rate: Floats, degree: Rows, order: Rows, room: Floats, end: int, worth: float) -> tuple[Rows, Rows, Rows]:
    """Fill the brokers one by one, roomiest first, with whole topics, most links first.

    The merged bound selects the first ``end`` topics of ``order``. A topic earns its data, but at most the share
    ``worth`` of its room. The last topics of a broker are the subset of up to four candidates that fills its room best;
    the remaining room takes part of one more topic. Returns allotments (topic, broker, links).
    O(topics + brokers * candidates^2).
    """
    size, brokers = len(order), len(room)
    far = end  # beyond the selection, topics nearly as good widen the choice
    while end > 0 and far < size and degree[order[far]] >= MARGIN * degree[order[end - 1]]:
        far += 1
    left = degree.copy()
    skip = np.arange(size + 1)  # next position that still has links, as a union-find
    weight, waiting = 0.0, end  # weight and number of the selected topics that are not placed yet
    for p in range(end):
        weight += rate[order[p]] * (degree[order[p]] + 1.0)

    most = size + 3 * brokers  # a topic ends once; a broker begins at most two that do not
    of, on, links = np.empty(most, np.int32), np.empty(most, np.int32), np.empty(most, np.int32)
    rows = 0
    pool, wide_pool = np.empty(POOL, np.int64), np.empty(POOL, np.int64)
    w, wide_w = np.empty(POOL), np.empty(POOL)
    picks, wide_picks = np.empty((5, 4), np.int64), np.empty((5, 4), np.int64)
    pairs = POOL * (POOL - 1) // 2
    sums, first, second = np.empty(pairs), np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    carry = 0.0  # number of topics by which earlier brokers took less than their share
    for j in np.argsort(-room, kind="mergesort"):
        free, split = room[j], -1
        while True:  # from the front of the queue, until a few more topics fill the broker
            p = next_alive(skip, 0)
            if p >= size:
                break
            k, n = order[p], left[order[p]]
            whole = rate[k] * (n + 1.0)
            if whole > room[j] and free == room[j]:  # larger than the broker: it gets all of it
                n = max(int(np.floor(free / rate[k])) - 1, 0)
                if n == 0:
                    left[k] = 0  # not one link fits, and the brokers to come are no larger
            elif whole > free or free - whole < 2.5 * weight / max(waiting, 1):
                break
            if n > 0:
                of[rows], on[rows], links[rows] = k, j, n
                rows += 1
                free -= rate[k] * (n + 1.0)
                left[k] -= n
            if p < end:
                weight -= whole
            if left[k] > 0:
                if p < end:
                    weight += rate[k] * (left[k] + 1.0)
                split = k
                break
            skip[p] = p + 1
            if p < end:
                waiting -= 1

        # The last few topics are chosen together: from the selected ones, and if that leaves room, also from others
        # that are nearly as good.
        target = free / (weight / waiting) + carry if waiting > 0 else 4.0
        count = gather(rate, order, left, skip, end, split, pool, w)
        picked = best_four(w[:count], free, target, NEAR * room[j], sums, first, second, picks)
        filled, gain = earned(rate, order, left, worth, pool, w, picks[picked, :picked])
        if filled < free - NEAR * room[j] and far > end:
            wide_count = gather(rate, order, left, skip, far, split, wide_pool, wide_w)
            wide = best_four(wide_w[:wide_count], free, target, NEAR * room[j], sums, first, second, wide_picks)
            if earned(rate, order, left, worth, wide_pool, wide_w, wide_picks[wide, :wide])[1] > gain:
                count, picked = wide_count, wide
                pool[:], w[:], picks[:] = wide_pool, wide_w, wide_picks
        if waiting > 0:
            carry = min(max(target - picked, -1.0), 1.0)
        for f in range(picked):
            p = pool[picks[picked, f]]
            k = order[p]
            of[rows], on[rows], links[rows] = k, j, left[k]
            rows += 1
            free -= w[picks[picked, f]]
            left[k] = 0
            skip[p] = p + 1
            if p < end:
                weight -= w[picks[picked, f]]
                waiting -= 1

        p, n = best_part(rate, order, left, skip, pool[:count], end, free, split)
        if n > 0:
            k = order[p]
            of[rows], on[rows], links[rows] = k, j, n
            rows += 1
            left[k] -= n
            if p < end:
                weight -= rate[k] * n
            if left[k] == 0:
                skip[p] = p + 1
                if p < end:
                    weight -= rate[k]
                    waiting -= 1
    return of[:rows], on[:rows], links[:rows]


@compiled
def earned(
    rate: Floats, order: Rows, left: Rows, worth: float, pool: Ints, w: Floats, pick: Ints
) -> tuple[float, float]:
    """Room that the picked candidates take, and the data they earn there."""
    filled, gain = 0.0, 0.0
    for c in pick:
        k = order[pool[c]]
        filled += w[c]
        gain += min(rate[k] * left[k], worth * w[c])
    return filled, gain


@compiled
def gather(rate: Floats, order: Rows, left: Rows, skip: Ints, stop: int, split: int, pool: Ints, w: Floats) -> int:
    """Candidates: some from the front of the order, some spread evenly up to ``stop``; their number."""
    size = len(order)
    p, count = next_alive(skip, 0), 0
    while p < size and count < HEADS:
        if order[p] != split:
            pool[count] = p
            count += 1
        p = next_alive(skip, p + 1)
    step = max((stop - p) / STRIDED, 1.0)
    for s in range(STRIDED):
        q = next_alive(skip, min(max(int(p + s * step), pool[count - 1] + 1 if count > 0 else 0), size))
        if q >= size or (q >= stop and stop - p > 0):
            break
        pool[count] = q
        count += 1
    for c in range(count):
        k = order[pool[c]]
        w[c] = rate[k] * (left[k] + 1.0)
    return count


@compiled
def best_part(
    rate: Floats, order: Rows, left: Rows, skip: Ints, pool: Ints, end: int, free: float, split: int
) -> tuple[int, int]:
    """The topic whose links use ``free`` best, and the number of these links."""
    best_q, best_n, most = -1, 0, 0.0
    for q in pool:
        k = order[q]
        if left[k] > 0 and k != split:
            n = min(left[k], int(np.floor(free / rate[k])) - 1)
            if n * rate[k] > most:
                best_q, best_n, most = q, n, n * rate[k]
    q = end
    for _ in range(STRIDED):
        q = next_alive(skip, min(q, len(order)))
        if q >= len(order):
            break
        k = order[q]
        n = min(left[k], int(np.floor(free / rate[k])) - 1)
        if k != split and n * rate[k] > most:
            best_q, best_n, most = q, n, n * rate[k]
        q += 1
    return best_q, best_n


@compiled
def best_four(
    w: Floats, free: float, target: float, near: float, sums: Floats, first: Ints, second: Ints, picks: Ints2
) -> int:
    """Find the subsets of at most four of ``w`` with the largest sums that fit, one per size. Returns the size to take.

    That is the size nearest ``target`` among those within ``near`` of the best sum. If three heavy topics and four
    light ones fill a broker equally well, this choice keeps the remaining topics well mixed.
    """
    n = len(w)
    best = np.zeros(5)
    for a in range(n):
        if best[1] < w[a] <= free:
            best[1], picks[1, 0] = w[a], a
    m = 0
    for a in range(n):
        for b in range(a):
            s = w[a] + w[b]
            if s <= free:
                sums[m], first[m], second[m] = s, a, b
                m += 1
                if s > best[2]:
                    best[2], picks[2, 0], picks[2, 1] = s, a, b
    rank = np.argsort(sums[:m])
    for a in range(n):
        lo = search(sums, rank, m, free - w[a])
        while lo >= 0 and sums[rank[lo]] + w[a] > best[3]:
            i = rank[lo]
            if first[i] != a and second[i] != a:
                best[3] = sums[i] + w[a]
                picks[3, 0], picks[3, 1], picks[3, 2] = first[i], second[i], a
                break
            lo -= 1
    hi = m - 1
    for lo in range(m):
        i = rank[lo]
        while hi >= 0 and sums[rank[hi]] + sums[i] > free:
            hi -= 1
        q = hi
        while q > lo and sums[rank[q]] + sums[i] > best[4]:
            h = rank[q]
            if first[h] != first[i] and first[h] != second[i] and second[h] != first[i] and second[h] != second[i]:
                best[4] = sums[h] + sums[i]
                picks[4, 0], picks[4, 1], picks[4, 2], picks[4, 3] = first[h], second[h], first[i], second[i]
                break
            q -= 1
    most = best.max()
    size = 0
    for c in range(1, 5):
        if best[c] > 0.0 and best[c] >= most - near and (size == 0 or abs(c - target) < abs(size - target)):
            size = c
    return size


@compiled
def search(sums: Floats, rank: Ints, m: int, limit: float) -> int:
    """The last position whose sum is at most ``limit``; -1 if none."""
    lo, hi = 0, m
    while lo < hi:
        mid = (lo + hi) // 2
        if sums[rank[mid]] <= limit:
            lo = mid + 1
        else:
            hi = mid
    return lo - 1
