"""GreedyScheduler (Lambert & Sakellariou, Algorithm 1) on counts, and links from counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats, Rows

    Counts = NDArray[np.int64]


@compiled
def room_of(rate: Floats, bandwidth: Floats) -> Floats:
    """Bandwidth with a tiny slack if not all numbers are whole, so that 0.1 + 0.1 + 0.1 fits into 0.3."""
    whole = True
    for r in rate:
        whole &= r == np.floor(r)
    for b in bandwidth:
        whole &= b == np.floor(b)
    return bandwidth.copy() if whole else bandwidth * (1.0 + 1e-12)


@compiled
def degrees(topic: Rows, topics: int) -> Rows:
    """Subscriptions of every topic."""
    degree = np.zeros(topics, np.int32)
    for k in topic:
        degree[k] += 1
    return degree


@compiled
def fits(room: float, rate: float, wanted: int) -> int:
    """Number of links of a topic new to a broker that fit into ``room``: its copy in costs ``rate`` too."""
    if rate * (wanted + 1.0) <= room:
        return wanted
    return max(int(np.floor(room / rate)) - 1, 0)


@compiled
def greedy(rate: Floats, degree: Rows, room: Floats, strict: bool) -> tuple[Rows, Rows, Rows]:
    """Allotments (topic, broker, links), at most one per topic and broker, in the order they were made.

    The topic with the most links left goes to the broker with the most bandwidth left, as far as it fits.
    ``strict`` leaves the last slot of a broker empty ("while b_k > r_i"), as the printed numbers require.
    Ties go to the lower row. A step costs O(log brokers); topics wait in one bucket per degree.
    """
    topics, brokers = len(rate), len(room)
    most = 0
    for k in range(topics):
        most = max(most, degree[k])
    bucket = np.full(most + 1, -1, np.int32)  # head of the list of topics with so many links left
    behind = np.empty(topics, np.int32)
    left = degree.copy()
    for k in range(topics - 1, -1, -1):
        behind[k] = bucket[left[k]]
        bucket[left[k]] = k
    key, winner, leaves = tournament(room)

    size = topics + brokers + 1
    of, on, links = np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32)
    rows = 0
    level = most if brokers > 0 else 0
    while level > 0:
        k = bucket[level]
        if k < 0:
            level -= 1
            continue
        bucket[level] = behind[k]
        j, r, free = winner[1], rate[k], key[1]
        n = fits(free, r, left[k])
        if strict and n > 0 and r > 0.0 and free - r * (n + 1.0) <= 0.0:
            n -= 1
        if n == 0:
            continue  # corrected: the roomiest broker cannot take it, and room only shrinks, so no broker ever will
        if rows == size:
            size *= 2
            of, on, links = grown(of, size), grown(on, size), grown(links, size)
        of[rows], on[rows], links[rows] = k, j, n
        rows += 1
        left[k] -= n
        if left[k] > 0:
            behind[k] = bucket[left[k]]
            bucket[left[k]] = k
        replay(key, winner, leaves + j, free - r * (n + 1.0))
    return of[:rows], on[:rows], links[:rows]


@compiled
def grown(column: Rows, size: int) -> Rows:
    longer = np.empty(size, column.dtype)
    longer[: len(column)] = column
    return longer


@compiled
def tournament(room: Floats) -> tuple[Floats, Rows, int]:
    """A tournament tree over brokers: node 1 holds the roomiest, the leaf of broker ``j`` is ``leaves + j``."""
    leaves = 1
    while leaves < len(room):
        leaves *= 2
    key, winner = np.full(2 * leaves, -1.0), np.zeros(2 * leaves, np.int32)
    for j in range(len(room)):
        key[leaves + j], winner[leaves + j] = room[j], j
    for node in range(leaves - 1, 0, -1):
        best = 2 * node if key[2 * node] >= key[2 * node + 1] else 2 * node + 1
        key[node], winner[node] = key[best], winner[best]
    return key, winner, leaves


@compiled
def replay(key: Floats, winner: Rows, leaf: int, room: float) -> None:
    """Update the tree after the room of one broker has changed; ties go to the lower row.

    The opponents' places are known beforehand, so this is twice as fast as a heap.
    """
    key[leaf] = room
    node, best, chosen = leaf, room, winner[leaf]
    while node > 1:
        other = node ^ 1
        rival_key, rival = key[other], winner[other]
        # The winner is hard to predict, so this is arithmetic instead of a branch.
        loses = np.int32(rival_key > best) | (np.int32(rival_key == best) & np.int32(other < node))
        best = max(best, rival_key)
        chosen += (rival - chosen) * loses
        node >>= 1
        key[node], winner[node] = best, chosen


@compiled
def links_from_allotments(topic: Rows, topics: int, of: Rows, on: Rows, links: Rows) -> Rows:
    """A broker for every subscription: links of one topic are interchangeable. O(L)."""
    head = np.full(topics, -1, np.int32)
    behind = np.empty(len(of), np.int32)
    left = links.copy()
    for a in range(len(of) - 1, -1, -1):
        behind[a] = head[of[a]]
        head[of[a]] = a
    broker = np.empty(len(topic), np.int32)
    for s in range(len(topic)):
        a = head[topic[s]]
        if a < 0:
            broker[s] = -1
            continue
        broker[s] = on[a]
        left[a] -= 1
        if left[a] == 0:
            head[topic[s]] = behind[a]
    return broker


@compiled
def greedy_links(topic: Rows, rate: Floats, bandwidth: Floats, strict: bool) -> Rows:
    """The whole of Algorithm 1, from subscriptions to brokers, in one call."""
    of, on, links = greedy(rate, degrees(topic, len(rate)), room_of(rate, bandwidth), strict)
    return links_from_allotments(topic, len(rate), of, on, links)
