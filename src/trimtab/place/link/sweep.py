"""One sweep over topics and brokers: the fast half of ``link/trim``, and the bound it is held against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.place.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]
    Ints2 = NDArray[np.int64]  # with two dimensions

HEADS = 14  # candidates from the front of the queue
MIXING = 1e-3  # preference for kinds of which most remain
MARGIN = 0.9
NEAR = 0.0002
STRIDED = 18  # candidates spread over the rest of what is selected: neighbours are alike, these are not


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
def next_alive(skip: Ints, p: int) -> int:
    root = p
    while skip[root] != root:
        root = skip[root]
    while skip[p] != root:
        skip[p], p = root, skip[p]
    return root


@compiled
def selected(rate: Floats, degree: Rows, order: Rows, capacity: float) -> int:
    """How many topics of ``order`` fill ``capacity`` if they could be divided at will."""
    weight = 0.0
    for p in range(len(order)):
        if weight >= capacity:
            return p
        weight += rate[order[p]] * (degree[order[p]] + 1.0)
    return len(order)


@compiled
def sweep(rate: Floats, degree: Rows, order: Rows, room: Floats) -> tuple[Rows, Rows, Rows]:
    """Fill the brokers one by one, roomiest first, with whole topics, heaviest first.

    Only topics that the merged bound selects are taken, while they last. The last ones of a broker are the
    subset of up to four candidates that fills its room best; what room remains takes part of one more
    topic. Returns allotments (topic, broker, links). O(topics log topics + brokers * candidates^2).
    """
    size, brokers = len(order), len(room)
    end = selected(rate, degree, order, room.sum())
    queue = order.copy()
    heavy = np.empty(end)
    for p in range(end):
        heavy[p] = -rate[order[p]] * (degree[order[p]] + 1.0)
    weight = -heavy.sum()  # of what is selected and still waits
    waiting = end
    carry = 0.0
    far = end  # beyond the selection, topics nearly as good widen the choice
    while end > 0 and far < size and degree[order[far]] >= MARGIN * degree[order[end - 1]]:
        far += 1

    left = degree.copy()
    skip = np.arange(size + 1)  # next position that still has links, as a union-find
    limit = size + 6 * brokers + 16
    of, on, links = np.empty(limit, np.int32), np.empty(limit, np.int32), np.empty(limit, np.int32)
    made = 0
    pool, w = np.empty(HEADS + STRIDED, np.int64), np.empty(HEADS + STRIDED)
    pairs = len(pool) * (len(pool) - 1) // 2
    sums, first, second = np.empty(pairs), np.empty(pairs, np.int64), np.empty(pairs, np.int64)
    picks = np.empty((5, 4), np.int64)
    wide_pool, wide_w, wide_picks = pool.copy(), w.copy(), picks.copy()
    worth = degree[order[end - 1]] / (degree[order[end - 1]] + 1.0) if end > 0 else 1.0
    for j in np.argsort(-room, kind="mergesort"):
        free = room[j]
        split = -1
        while True:
            p = next_alive(skip, 0)
            if p >= size:
                break
            k = queue[p]
            whole = rate[k] * (left[k] + 1.0)
            n = left[k]
            if whole > room[j] and free == room[j]:
                n = max(int(np.floor(free / rate[k])) - 1, 0)  # larger than a whole broker: fill this one
                if n == 0:
                    left[k] = 0  # not even one link fits, and the brokers to come are smaller
            elif whole > free or free - whole < 2.5 * weight / max(waiting, 1):
                break
            if n > 0:
                of[made], on[made], links[made] = k, j, n
                made += 1
                free -= rate[k] * (n + 1.0)
                left[k] -= n
            if p < end:
                weight -= whole
                waiting -= 1
            if left[k] == 0:
                skip[p] = p + 1
            else:
                if p < end:
                    weight += rate[k] * (left[k] + 1.0)
                    waiting += 1
                split = k
                break

        # First from what is selected; where that leaves room, from what is nearly as good, too.
        target = free / (weight / waiting) + carry if waiting > 0 else 4.0
        usable = gather(rate, queue, left, skip, end, split, pool, w)
        found = best_four(w[:usable], free, target, NEAR * room[j], sums, first, second, picks)
        filled = 0.0
        for f in range(found):
            filled += w[picks[found, f]]
        if filled < free - NEAR * room[j] and far > end:
            gain = 0.0
            for f in range(found):
                q = pool[picks[found, f]]
                gain += min(rate[queue[q]] * left[queue[q]], worth * w[picks[found, f]])
            usable = gather(rate, queue, left, skip, far, split, wide_pool, wide_w)
            wide_found = best_four(wide_w[:usable], free, target, NEAR * room[j], sums, first, second, wide_picks)
            for f in range(wide_found):
                q = wide_pool[wide_picks[wide_found, f]]
                gain -= min(rate[queue[q]] * left[queue[q]], worth * wide_w[wide_picks[wide_found, f]])
            if gain < 0.0:
                found = wide_found
                pool[:], w[:], picks[:] = wide_pool, wide_w, wide_picks
            else:
                usable = gather(rate, queue, left, skip, end, split, pool, w)
        if waiting > 0:
            carry = min(max(target - found, -1.0), 1.0)
        pick = picks[found]
        for f in range(found):
            q = pool[pick[f]]
            k = queue[q]
            of[made], on[made], links[made] = k, j, left[k]
            made += 1
            free -= w[pick[f]]
            left[k] = 0
            skip[q] = q + 1
            if q < end:
                weight -= w[pick[f]]
                waiting -= 1

        q, n = best_part(rate, queue, left, skip, pool[:usable], end, free, split)
        if n > 0:
            k = queue[q]
            of[made], on[made], links[made] = k, j, n
            made += 1
            left[k] -= n
            if q < end:
                weight -= rate[k] * n
            if left[k] == 0:
                skip[q] = q + 1
                if q < end:
                    weight -= rate[k]
                    waiting -= 1
    return of[:made], on[:made], links[:made]


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


@compiled
def sweep_kinds(
    rate: Floats, degree: Rows, order: Rows, room: Floats, unit: float, members: Rows, begin: Ints
) -> tuple[Rows, Rows, Rows]:
    """``sweep`` for topics that fall into few kinds: each broker is filled by an exact knapsack over kinds.

    Whole topics only, at the prices of the merged bound: what it selects earns its share of room, the rest
    its data. What room remains takes part of one more topic. O(brokers * kinds * cells), so for coarse
    rates only.
    """
    kinds, brokers = len(begin) - 1, len(room)
    cells = np.empty(brokers, np.int64)
    for j in range(brokers):
        cells[j] = int(np.floor(room[j] / unit * (1.0 + 1e-12)))
    end = selected(rate, degree, order, room.sum())
    worth = degree[order[end - 1]] / (degree[order[end - 1]] + 1.0) if end > 0 else 1.0
    waiting = np.empty(kinds, np.int64)  # whole topics of the kind that are not placed
    chosen = np.empty(kinds, np.int64)  # those of them that the merged bound selects
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
    made = 0
    widest = cells.max()
    best = np.empty(widest + 1)
    taken = np.empty((24 * kinds, widest + 1), np.bool_)
    item_kind, item_many = np.empty(24 * kinds, np.int64), np.empty(24 * kinds, np.int64)
    rest = np.zeros(kinds, np.int64)  # links left of the one topic of the kind that is placed in part
    rest_of = np.empty(kinds, np.int64)
    for j in np.argsort(-room, kind="mergesort"):
        capacity = cells[j]
        best[: capacity + 1] = 0.0
        items = 0
        for t in range(2 * kinds):
            # Selected ones first, by preference those of which most remain: rare weights are what makes the
            # common ones add up, and should not run out. Then the others.
            of_selected = t < kinds
            t %= kinds
            many = min(chosen[t] if of_selected else waiting[t] - chosen[t], capacity // weight[t])
            each = gain[t]
            if of_selected and many > 0:
                each *= 1.0 + MIXING * chosen[t] / at_first[t]
            copies = 1
            while many > 0:
                copies = min(copies, many)
                w, g = copies * weight[t], copies * each
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
                    of[made], on[made], links[made] = k, j, degree[k]
                    made += 1
        # part of one more topic: what is left of one that is split already, else a new one of the last kinds
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
            of[made], on[made], links[made] = rest_of[t], j, best_n
            made += 1
            rest[t] -= best_n
    return of[:made], on[:made], links[:made]


@compiled
def gather(rate: Floats, queue: Rows, left: Rows, skip: Ints, stop: int, split: int, pool: Ints, w: Floats) -> int:
    """Candidates: some from the front of the queue, some spread evenly up to ``stop``; their number."""
    size = len(queue)
    p, count = next_alive(skip, 0), 0
    while p < size and count < HEADS:
        if queue[p] != split:
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
        k = queue[pool[c]]
        w[c] = rate[k] * (left[k] + 1.0)
    return count


@compiled
def best_part(
    rate: Floats, queue: Rows, left: Rows, skip: Ints, pool: Ints, end: int, free: float, split: int
) -> tuple[int, int]:
    """The topic whose links use ``free`` best, and how many of them."""
    best_q, best_n, most = -1, 0, 0.0
    for q in pool:
        k = queue[q]
        if left[k] > 0 and k != split:
            n = min(left[k], int(np.floor(free / rate[k])) - 1)
            if n * rate[k] > most:
                best_q, best_n, most = q, n, n * rate[k]
    q = end
    for _ in range(STRIDED):
        q = next_alive(skip, min(q, len(queue)))
        if q >= len(queue):
            break
        k = queue[q]
        n = min(left[k], int(np.floor(free / rate[k])) - 1)
        if k != split and n * rate[k] > most:
            best_q, best_n, most = q, n, n * rate[k]
        q += 1
    return best_q, best_n


@compiled
def best_four(
    w: Floats, free: float, target: float, near: float, sums: Floats, first: Ints, second: Ints, picks: Ints2
) -> int:
    """Subsets of at most four of ``w`` with the largest sums that fit, one per size; the size to take.

    That is the size nearest ``target`` among those within ``near`` of the best: a broker that is filled
    exactly with three heavy topics or with four light ones should do what keeps the rest well mixed.
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
