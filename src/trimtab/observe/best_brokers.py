"""The exact summary of a topic's latency, as its broker computes it: in plain Python, for agents without numpy.

``observe.summary`` computes the same for all topics of a workload, in columns.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.model.margin import MARGIN, MARGIN_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    Legs = Sequence[float]  # ms between one client and every broker, one way; inf: unknown

DIGITS: Final = 3  # of latencies in ms
LISTED: Final = 2  # brokers in a summary
KEPT: Final = 16  # best brokers in a report of a missed bound


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


class AtBrokers(msgspec.Struct, frozen=True):
    """The network latency of a topic whose bound is missed: its state at its broker, and at the best brokers.

    It has more brokers than a summary, so it is reported only while another broker is better, and once after that.
    """

    broker: str  # of the topic
    violating: int  # pairs that violate the bound there by more than the improvement that a move needs
    brokers: dict[str, tuple[float, int]]  # worst case in ms, and violating pairs: of its own and the best brokers
    at: float = 0.0  # time of arrival at the controller, seconds since 1970

    @property
    def worst_ms(self) -> float:
        """At the topic's broker."""
        return self.brokers[self.broker][0]

    def better(self) -> list[str]:
        """Brokers that are better by enough to be worth a move, the best first: fewer violating pairs, or as many and a
        smaller worst case."""
        most = (self.violating, self.worst_ms - gain_needed(self.worst_ms))
        ranked = sorted(((late, worst), name) for name, (worst, late) in self.brokers.items())
        return [name for rank, name in ranked if rank < most and name != self.broker]


class Pairs:
    """The publishers and the subscribers of a topic, each with the latency to every broker. A missing side counts as
    one client without latency; clients without any known latency are to be left out."""

    def __init__(self, publishers: Sequence[Legs], subscribers: Sequence[Legs], brokers: int) -> None:
        self._publishers, self._subscribers = publishers, subscribers
        to = [max(column) for column in zip(*publishers, strict=True)] if publishers else [0.0] * brokers
        away = [max(column) for column in zip(*subscribers, strict=True)] if subscribers else [0.0] * brokers
        self.worst_ms = [one + other for one, other in zip(to, away, strict=True)]
        self.located = bool(publishers or subscribers)

    def late(self, row: int, bound_ms: float) -> int:
        """The number of pairs above the bound at the broker of a row."""
        if self.worst_ms[row] <= bound_ms:
            return 0
        falling = sorted(legs[row] for legs in self._subscribers) or [0.0]
        rising = [legs[row] for legs in self._publishers] or [0.0]
        return sum(_above(falling, one, bound_ms) for one in rising)

    def late_by_more(self, row: int, bound_ms: float) -> int:
        """The number of pairs above the bound by more than the improvement that a move needs."""
        now = self.worst_ms[row]
        return self.late(row, bound_ms + gain_needed(now)) if self.located else 0


def gain_needed(worst_ms: float) -> float:
    """The improvement in ms that is worth a move: a topic would follow every change of an estimate without it."""
    return max(MARGIN_MS, MARGIN * worst_ms) if math.isfinite(worst_ms) else 0.0


def at_brokers(pairs: Pairs, bound_ms: float, home: int, brokers: Sequence[str]) -> AtBrokers | None:
    """The latencies of a topic at its own broker and at the best ones; None if that at its own is not known."""
    if not pairs.located or home < 0 or not math.isfinite(pairs.worst_ms[home]):
        return None
    ranked = sorted(
        (pairs.late(row, bound_ms), worst, row) for row, worst in enumerate(pairs.worst_ms) if math.isfinite(worst)
    )
    kept = [*ranked[:KEPT], *(rank for rank in ranked[KEPT:] if rank[2] == home)]
    known = {brokers[row]: (round(worst, DIGITS), late) for late, worst, row in kept}
    return AtBrokers(brokers[home], pairs.late_by_more(home, bound_ms), known)


def summarise(pairs: Pairs, bound_ms: float, home: int, brokers: Sequence[str]) -> BestBrokers:
    """The summary of a topic at the broker of row ``home``.

    Brokers are ranked by violating pairs, then by the worst case, then in their order. O(clients x brokers), and
    sorting for those brokers at which the bound is violated.
    """
    worst, every, located = pairs.worst_ms, range(len(brokers)), pairs.located
    feasible = sum(latency <= bound_ms for latency in worst)
    rows: list[tuple[int, float, int]] = []
    if located:
        rows = sorted((0, worst[row], row) for row in every if worst[row] <= bound_ms)
        if len(rows) < LISTED:
            rows += sorted((pairs.late(row, bound_ms), worst[row], row) for row in every if worst[row] > bound_ms)
    now = worst[home] if located and home >= 0 else math.inf
    violating = pairs.late_by_more(home, bound_ms) if home >= 0 else 0
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
