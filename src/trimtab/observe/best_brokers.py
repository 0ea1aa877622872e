"""The exact summary of a topic's latency, as its broker computes it: in plain Python, for agents without numpy.

``observe.summary`` computes the same for all topics of a workload, in columns.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    Legs = Sequence[float]  # ms between one client and every broker, one way; inf: unknown

DIGITS: Final = 3  # of latencies in ms
LISTED: Final = 2  # brokers in a summary
MARGIN: Final = 0.05  # improvement that is worth a move, as a share of the present latency
MARGIN_MS: Final = 2.0  # least such improvement


class BestBrokers(msgspec.Struct, array_like=True, frozen=True):
    """The exact summary of a topic: its state at its broker, and the two best brokers for it."""

    worst_ms: float | None  # E(t), the worst case at its broker; None if it is unknown
    violating: int  # pairs that violate the bound at its broker by more than the improvement that a move needs
    feasible: int  # brokers that keep the bound for every pair
    broker: str  # the best broker; empty if no latency of a client is known
    broker_ms: float | None  # the worst case there
    broker_violating: int  # violating pairs there
    second: str  # the second-best broker; empty without one
    second_ms: float | None


def summarise(
    publishers: Sequence[Legs], subscribers: Sequence[Legs], bound_ms: float, home: int, brokers: Sequence[str]
) -> BestBrokers:  # fmt: skip
    """The summary of a topic at the broker of row ``home``. Clients without any known latency are to be left out.

    Brokers are ranked by violating pairs, then by the worst case, then in their order. O(clients x brokers), and
    sorting for those brokers at which the bound is violated.
    """
    count = len(brokers)
    to = [max(column) for column in zip(*publishers, strict=True)] if publishers else [0.0] * count
    away = [max(column) for column in zip(*subscribers, strict=True)] if subscribers else [0.0] * count
    worst = [one + other for one, other in zip(to, away, strict=True)]
    located = bool(publishers or subscribers)
    feasible = sum(latency <= bound_ms for latency in worst)

    def late(row: int, bound: float) -> int:
        if worst[row] <= bound:
            return 0
        falling = sorted(legs[row] for legs in subscribers) or [0.0]
        rising = [legs[row] for legs in publishers] or [0.0]
        return sum(_above(falling, one, bound) for one in rising)

    rows: list[tuple[int, float, int]] = []
    if located:
        rows = sorted((0, worst[row], row) for row in range(count) if worst[row] <= bound_ms)
        if len(rows) < LISTED:
            rows += sorted((late(row, bound_ms), worst[row], row) for row in range(count) if worst[row] > bound_ms)
    now = worst[home] if located and home >= 0 else math.inf
    less = max(MARGIN_MS, MARGIN * now) if math.isfinite(now) else 0.0
    violating = late(home, bound_ms + less) if located and home >= 0 else 0
    best, second = [*rows, (0, math.inf, -1), (0, math.inf, -1)][:LISTED]
    return BestBrokers(
        _rounded(now), violating, feasible, brokers[best[2]] if best[2] >= 0 else "", _rounded(best[1]), best[0],
        brokers[second[2]] if second[2] >= 0 else "", _rounded(second[1]),
    )  # fmt: skip


def _above(rising: list[float], one: float, bound: float) -> int:
    """How many of the sorted values, each added to ``one``, are above the bound.

    A search for the difference may be wrong by the rounding of a sum, so the values beside its result are checked.
    """
    if math.isinf(one):
        return len(rising)
    at = bisect_right(rising, bound - one)
    while at > 0 and one + rising[at - 1] > bound:
        at -= 1
    while at < len(rising) and one + rising[at] <= bound:
        at += 1
    return len(rising) - at


def _rounded(value: float) -> float | None:
    """An infinite value is None: JSON has no number for it."""
    return round(value, DIGITS) if math.isfinite(value) else None
