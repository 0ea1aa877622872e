"""``topic/lfs`` and ``topic/lfs-ffd``: Algorithms 2 and 3 of Khare et al. (SEC'18, V-C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import networkx as nx  # type: ignore[import-untyped]
import numpy as np

from trimtab.errors import BadKnob, TooLarge
from trimtab.place.knobs import check, knob
from trimtab.place.stop import NO_LIMIT
from trimtab.place.topic.ffd import first_fit
from trimtab.place.topic.oracle import ByLatency
from trimtab.place.topic.policy import TopicPolicy

if TYPE_CHECKING:
    from trimtab.place.stop import Stop
    from trimtab.place.topic.instance import Instance
    from trimtab.place.topic.oracle import Oracle
    from trimtab.place.topic.policy import Groups
    from trimtab.predict.model import LatencyModel
    from trimtab.predict.sets import Ints

MOST_MATCHED: Final = 1500  # topics of a maximum matching, whose time grows with the cube


@dataclass(frozen=True, slots=True)
class Lfs(TopicPolicy):
    """Opens brokers with the largest feasible sets of topics; the last ones by maximum matching (Khare, Algorithm 2).

    The paper takes "any" feasible set; here it is the first one in lexicographic order of topics by decreasing latency,
    as in the authors' code. Supersets of infeasible sets are skipped (Property 1b). A search for sets of one size that
    needs more than ``max_tests`` tests ends, and smaller sets are searched instead. Line 9 lowers k before line 10
    tests for k = 2, so sets of two would be taken greedily when k is 2 at the start; it is read as "if k <= 2: maximum
    matching of the remaining topics, and stop", where unmatched topics get a broker each.
    """

    k: int = knob(6, "most topics on a broker", least=1)
    margin_ms: float = knob(
        0.0, "latencies must be below their bounds by this; the authors' code has 100, the paper 0", least=0.0
    )
    growth: float = knob(
        0.0, "share by which rates may grow before a bound is missed; the paper 0", least=0.0, most=10.0
    )
    max_tests: int = knob(400_000, "feasibility tests of one search for sets of one size", least=1)
    model: LatencyModel | None = None  # default: the queueing model of the problem's hardware
    stop: Stop = NO_LIMIT

    def __post_init__(self) -> None:
        check(self)

    def groups(self, instance: Instance) -> Groups:
        oracle = ByLatency(instance, self.margin_ms, self.growth)
        return Search(instance, oracle, self.max_tests, self.stop).largest(self.k)


@dataclass(frozen=True, slots=True)
class LfsFfd(TopicPolicy):
    """Opens brokers with feasible sets of ``k_prime`` topics and fills them up by first fit (Khare, Algorithm 3).

    Without a feasible set of that size, Algorithm 2 places the remaining topics, with sets of ``k_prime - 1`` at most.
    For ``k_prime`` = 1 the text says that this is Algorithm 1, but the pseudo-code fills one broker after the other;
    for ``k_prime`` = k it says that this is exactly Algorithm 2, but with k = 2 the pseudo-code takes pairs greedily,
    without a maximum matching. The text is followed. Line 8 runs over the topics that remained when the broker was
    opened.
    """

    k: int = knob(6, "most topics on a broker", least=1)
    k_prime: int = knob(3, "size of the sets that brokers are opened with, at most k; 1: the same as ffd", least=1)
    margin_ms: float = knob(
        0.0, "latencies must be below their bounds by this; the authors' code has 100, the paper 0", least=0.0
    )
    growth: float = knob(
        0.0, "share by which rates may grow before a bound is missed; the paper 0", least=0.0, most=10.0
    )
    max_tests: int = knob(400_000, "feasibility tests of one search for sets of one size", least=1)
    model: LatencyModel | None = None  # default: the queueing model of the problem's hardware
    stop: Stop = NO_LIMIT

    def __post_init__(self) -> None:
        check(self)
        if self.k_prime > self.k:
            raise BadKnob("topic/lfs-ffd", "k_prime", self.k_prime, f"at most k, which is {self.k}")

    def groups(self, instance: Instance) -> Groups:
        oracle = ByLatency(instance, self.margin_ms, self.growth)
        if self.k_prime == 1 < self.k:
            return first_fit(instance, oracle, instance.in_order_of_latency())
        search = Search(instance, oracle, self.max_tests, self.stop)
        if self.k_prime == self.k:  # pairs would be taken greedily if k is 2
            return search.largest(self.k)
        search.open_with(self.k_prime, fill=True)
        return search.largest(self.k_prime - 1)


def refuse_large_matching(topics: int) -> None:
    if topics > MOST_MATCHED:
        raise TooLarge(f"{topics:,} topics remain for the maximum matching of this policy, and it takes at most "
                       f"{MOST_MATCHED:,}: use topic/ffd or topic/trim, or a longer --time-limit")  # fmt: skip


def _with(chosen: list[int], candidates: Ints) -> Ints:
    """(len(candidates), len(chosen) + 1) the set with each of the candidates."""
    members = np.empty((len(candidates), len(chosen) + 1), np.int64)
    members[:, :-1], members[:, -1] = chosen, candidates
    return members


class Search:
    """Topics that remain, and brokers with their topics, while feasible sets are searched."""

    def __init__(self, instance: Instance, oracle: Oracle, max_tests: int, stop: Stop) -> None:
        self.instance, self.oracle, self.max_tests, self.stop = instance, oracle, max_tests, stop
        self.left = instance.in_order_of_latency()
        self.waiting = list(instance.order)
        self.found: Groups = []
        self.tests = 0

    def largest(self, size: int) -> Groups:
        """Algorithm 2 for the remaining topics."""
        while size > 2 and len(self.left):
            self.open_with(size)
            size -= 1
        self._match(size)
        return self.found

    def open_with(self, size: int, *, fill: bool = False) -> None:
        """Open a broker with every feasible set of this size, until there is none."""
        start, kind = 0, -1
        while self.waiting and len(self.left) >= size:
            if kind != self.instance.kind[self.waiting[0]]:
                start, kind = 0, int(self.instance.kind[self.waiting[0]])
            self.tests = 0
            chosen = self._first([], self.left[start:], size, kind)
            if chosen is None:
                return
            # No set with an earlier first topic was feasible, and removing topics makes none feasible.
            start = int(np.flatnonzero(self.left == chosen[0])[0])
            self.left = self.left[~np.isin(self.left, chosen)]
            if fill:
                chosen = self._filled(chosen, kind)
            self.found.append((self.waiting.pop(0), chosen))

    def _first(self, prefix: list[int], candidates: Ints, size: int, kind: int) -> list[int] | None:
        """The first feasible set that begins with ``prefix`` and continues with ``candidates``, in their order."""
        if self.tests > self.max_tests or self.stop.left_s() <= 0.0:
            return None
        self.tests += len(candidates)
        good = candidates[self.oracle.fit(_with(prefix, candidates), kind)]
        need = size - len(prefix)
        if need == 1:
            return [*prefix, int(good[0])] if len(good) else None
        for place in range(len(good) - need + 1):
            found = self._first([*prefix, int(good[place])], good[place + 1 :], size, kind)
            if found is not None:
                return found
        return None

    def _filled(self, chosen: list[int], kind: int) -> list[int]:
        """Lines 8 to 16 of Algorithm 3: the set with further topics, in order of latency."""
        position = 0
        while len(chosen) < self.instance.most and position < len(self.left):
            fits = self.oracle.fit(_with(chosen, self.left[position:]), kind)
            if not fits.any():
                break
            at = position + int(fits.argmax())
            chosen = [*chosen, int(self.left[at])]
            self.left = np.delete(self.left, at)
            position = at
        return chosen

    def _match(self, size: int) -> None:
        """Place the remaining topics in pairs, as many as possible, and then one by one (Theorem 1)."""
        while self.waiting and len(self.left):
            kind = int(self.instance.kind[self.waiting[0]])
            carried = self.left[self.instance.alone[self.left, kind]]
            sets: list[list[int]] = []
            if size >= 2 and len(carried) > 1:
                refuse_large_matching(len(carried))
                one, other = np.triu_indices(len(carried), 1)
                pairs = np.stack([carried[one], carried[other]], axis=1)
                graph = nx.Graph(map(tuple, pairs[self.oracle.fit(pairs, kind)].tolist()))
                sets = sorted(sorted(pair) for pair in nx.max_weight_matching(graph, maxcardinality=True))
            matched = {topic for pair in sets for topic in pair}
            sets += [[topic] for topic in carried.tolist() if topic not in matched]
            used: list[int] = []
            while self.waiting and self.instance.kind[self.waiting[0]] == kind:
                broker = self.waiting.pop(0)
                if sets:
                    self.found.append((broker, sets[0]))
                    used += sets.pop(0)
            self.left = self.left[~np.isin(self.left, used)]
