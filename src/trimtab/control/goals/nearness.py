"""Goal 6, nearness: shorter ways through the network where no earlier goal is harmed (Tanaka et al., RELOC).

The *way* of a key is the network latency between its clients and its broker, one way, of all messages that cross it per
second. Keys whose messages would be nearer elsewhere by enough to be worth a move go there, those that gain most first.
The proposal is halved until the earlier goals accept it, so a key stays where it keeps the fleet level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.control.goals.goal import Change, Finding, Goal
from trimtab.model.margin import MARGIN, MARGIN_MS
from trimtab.model.network import AT_ONCE, Network
from trimtab.model.placement import UNPLACED
from trimtab.model.present import gain_needed
from trimtab.model.problem import ONE_WAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.control.settings import Settings
    from trimtab.control.verdict import Verdict
    from trimtab.control.view import View
    from trimtab.fleet.protocol.plans import Plan, Question
    from trimtab.model.workload import Floats, Rows

DISTANT: Final = "distant"
NEARER: Final = "nearer"
ENOUGH: Final = 0.05  # share by which all ways together must become shorter to be worth a plan


class Nearness(Goal):
    name: ClassVar[str] = "nearness"
    counts_cordoned: ClassVar[bool] = False
    in_use_only: ClassVar[bool] = True
    pause_s: ClassVar[float] = 30.0

    def find(self, view: View, settings: Settings) -> Iterator[Finding]:
        if not settings.nearness:
            return
        ways = key_ways(view)
        nearer = _nearest(view, ways, view.current)
        now, then = _total(ways, view.current), _total(ways, nearer)
        if then < (1.0 - ENOUGH) * now:
            count = int(np.count_nonzero(nearer != view.current))
            yield Finding(
                DISTANT, f"messages would spend {1.0 - then / now:.0%} less time between clients and brokers if "
                f"{count:,} keys were nearer to their clients", aim=NEARER,
            )  # fmt: skip

    def propose(self, view: View, settled: Rows, question: Question) -> Iterator[Change | str]:
        if question.aims.get(self.name) != NEARER:
            return
        ways = key_ways(view)
        target = _nearest(view, ways, settled)
        frozen = set(question.frozen)
        movers = np.flatnonzero((target != settled) & (settled != UNPLACED))
        movers = np.array([row for row in movers.tolist() if view.keys[row] not in frozen], np.int64)
        gain = ways[movers, settled[movers]] - ways[movers, target[movers]]
        movers = movers[np.argsort(-gain, kind="stable")][: question.most]
        while len(movers):
            placement = settled.copy()
            placement[movers] = target[movers]
            if _total(ways, placement) > (1.0 - ENOUGH) * _total(ways, settled):
                break
            yield Change(placement, movers.astype(np.int32), NEARER, int((target != settled).sum()) - len(movers))
            movers = movers[: len(movers) // 2]
        yield "no key can be nearer to its clients without harm to an earlier goal"

    def accept(self, view: View, placement: Rows, question: Question) -> str:
        return ""

    def mends(self, view: View, placement: Rows, question: Question) -> bool:
        return True

    def still_helps(self, view: View, plan: Plan, then: Rows, settings: Settings) -> bool:
        ways = key_ways(view)
        return _total(ways, then) < _total(ways, view.current)

    def helped(self, verdict: Verdict, view: View, settings: Settings) -> bool:
        """Whether the ways of the keys that were moved are shorter than at their former brokers."""
        ways = key_ways(view)
        before = view.placed({step.key: step.source for step in verdict.plan.steps})
        return _total(ways, view.current) < _total(ways, before)


def key_ways(view: View) -> Floats:
    """(keys, B) ms of network latency per second between the clients of a key and a broker; 0 where it is not known.

    A broker whose latency to a client is not known is taken to be as far as the furthest known one.
    O(links x brokers).
    """
    measured = view.snapshot.workload
    ways = np.zeros((len(view.keys), len(view.brokers)))
    workload = view.workload
    network = Network.of(workload)
    if network is None or not ways.size:
        return ways
    links, rate = measured.links, _rates(view)
    row = np.flatnonzero((view.owner >= 0) & network.known()[links.client])
    every, step = np.arange(len(view.brokers), dtype=np.int32), max(1, AT_ONCE // max(len(view.brokers), 1))
    for first in range(0, len(row), step):
        part = row[first : first + step]
        clients, at = np.unique(links.client[part], return_inverse=True)
        times = network.rtt_ms(clients.astype(np.int32), every)
        times = np.where(np.isnan(times), np.nanmax(times, axis=1, keepdims=True), times)
        np.add.at(ways, view.owner[part], ONE_WAY * rate[part, None] * times[at])
    return ways


def _nearest(view: View, ways: Floats, placement: Rows) -> Rows:
    """The broker with the shortest way for every key that gains enough by a move; the present one for the others."""
    target = placement.copy()
    placed = np.flatnonzero((placement != UNPLACED) & (ways.max(axis=1, initial=0.0) > 0.0))
    if not len(placed):
        return target
    best = ways[placed].argmin(axis=1).astype(np.int32)
    now, then = ways[placed, placement[placed]], ways[placed, best]
    messages = _messages(view)[placed]  # the improvement that is worth a move is one per message
    enough = now - then >= messages * gain_needed(now / np.maximum(messages, 1e-9), MARGIN, MARGIN_MS)
    target[placed[enough]] = best[enough]
    return target


def _messages(view: View) -> Floats:
    """(keys,) messages/s that cross the way of each key."""
    owned = view.owner >= 0
    rates = np.bincount(view.owner[owned], weights=_rates(view)[owned], minlength=len(view.keys))
    return np.asarray(rates, np.float64)


def _rates(view: View) -> Floats:
    """(L,) messages/s of every link."""
    traffic = view.in_messages
    rate = np.where(traffic.publishes, traffic.published[traffic.topic], traffic.delivered[traffic.topic])
    return np.asarray(rate * traffic.weight)


def _total(ways: Floats, placement: Rows) -> float:
    placed = np.flatnonzero(placement != UNPLACED)
    return float(ways[placed, placement[placed]].sum())
