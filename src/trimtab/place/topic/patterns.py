"""Column generation: the fewest brokers as a covering problem over the sets of topics that can share a broker.

Topics with equal columns are one *type*; a *pattern* is a multiset of types that is feasible on one kind of broker
(Gilmore & Gomory, Operations Research 1961, for cutting stock). Prices of types come from the linear program over the
patterns found so far, and new patterns from a search under these prices. If that search was exhaustive, the value of
the linear program divided by the highest worth of a pattern bounds the number of brokers from below (Farley, 1990).

By the queueing model, a topic that needs no more than another one can take its place (``exchanges``). So the linear
program has a column for each such pair of types, which hands a place on. It gives dearer prices to types that need
more from the first round on, and is solved in far fewer rounds (dual-optimal inequalities: Ben Amor, Desrosiers &
Valério de Carvalho, Operations Research 2006).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import highspy
import numpy as np

from trimtab.place.topic.exchanges import lighter, steps
from trimtab.place.topic.instance import NONE
from trimtab.place.topic.pricing import Pricing
from trimtab.place.topic.search import NEW, Search

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.model.workload import Floats
    from trimtab.place.stop import Stop
    from trimtab.place.topic.instance import Bools, Instance
    from trimtab.place.topic.policy import Groups
    from trimtab.place.topic.strain import Strain
    from trimtab.predict.sets import Ints

Pattern = tuple[int, tuple[int, ...]]  # kind of broker, sorted types
Column = tuple[list[int], list[int]]  # types of a pattern, and how often it has each
MANY: Final = 60  # brokers above which whole parts of the linear program's solution are kept
FIXED: Final = 1e-6  # tolerance of reduced costs


@dataclass(frozen=True, eq=False)
class Types:
    """Topics with equal columns together."""

    topic: Ints  # (Y,) one topic of each type
    count: Ints  # (Y,)
    members: list[Ints]  # topics of each type

    @classmethod
    def of(cls, instance: Instance) -> Types:
        topics = instance.topics
        columns = np.stack([instance.rate, instance.processing_ms, instance.bound_ms], axis=1)[topics]
        _, first, kind, count = np.unique(columns, axis=0, return_index=True, return_inverse=True, return_counts=True)
        kind = kind.reshape(-1)
        order = np.argsort(kind, kind="stable")
        return cls(topics[first], count, np.split(topics[order], np.cumsum(count)[:-1]))

    def __len__(self) -> int:
        return len(self.topic)


@dataclass(frozen=True, slots=True, eq=False)
class Relaxed:
    """A solution of the linear program."""

    value: float  # inf: there is none
    prices: Floats  # of types
    limits: Floats  # price of a broker of each kind, zero or more
    times: Floats  # of each pattern


@dataclass(slots=True)
class Pool:
    """Patterns, and the linear program over them."""

    instance: Instance
    oracle: Strain
    types: Types
    lighter: Bools  # (Y, Y) whether topics of the first type can take the places of the second
    exchanges: list[tuple[int, int]]  # pairs of types, the lighter one first, that imply all others
    patterns: dict[Pattern, Column] = field(default_factory=dict)
    tests: int = 0
    _program: highspy.Highs = field(init=False)
    _pricing: dict[int, Pricing] = field(default_factory=dict)  # by kind of broker, where the queueing model knows all

    @classmethod
    def of(cls, instance: Instance, oracle: Strain, groups: Groups) -> Pool:
        """With the sets of a placement, if they are feasible, and every topic alone."""
        types = Types.of(instance)
        less = lighter(oracle, types)
        pool = cls(instance, oracle, types, less, steps(less))
        for kind in pool.kinds():
            if Pricing.knows(oracle, kind):
                pool._pricing[kind] = Pricing.of(oracle, types, kind)
        pool._program = pool._covering(types.count, np.bincount(instance.kind, minlength=len(instance.machines)))
        for kind in pool.kinds():
            for each in np.flatnonzero(instance.alone[types.topic, kind]).tolist():
                pool.add(kind, (each,))
        type_of = np.zeros(len(instance.rate), np.int64)
        for each, members in enumerate(types.members):
            type_of[members] = each
        for broker, topics in groups:
            pool.add(int(instance.kind[broker]), tuple(sorted(type_of[topics].tolist())))
        return pool

    def add(self, kind: int, pattern: tuple[int, ...]) -> bool:
        """False: it was there."""
        if (kind, pattern) in self.patterns:
            return False
        often = Counter(pattern)
        self.patterns[kind, pattern] = (list(often), list(often.values()))
        self._add_column(self._program, (kind, pattern))
        return True

    def kinds(self) -> list[int]:
        return [int(kind) for kind in np.unique(self.instance.kind)]

    def exact(self) -> bool:
        """Whether patterns are searched by the queueing model's own bounds."""
        return len(self._pricing) == len(self.kinds())

    def relaxed(self) -> Relaxed:
        """The solution of the linear program."""
        highs = self._program
        highs.run()
        dual = np.asarray(highs.getSolution().row_dual)
        kinds = np.zeros(len(self.instance.machines))
        kinds[self.kinds()] = -dual[len(self.types) :]
        solved = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        value = float(highs.getInfo().objective_function_value) if solved else math.inf
        times = np.asarray(highs.getSolution().col_value)[len(self.exchanges) :]
        return Relaxed(value, np.maximum(dual[: len(self.types)], 0.0), np.maximum(kinds, 0.0), times)

    def integral(self, most: int, lowest: int, max_nodes: int, stop: Stop) -> list[Pattern] | None:
        """Fewer than ``most`` patterns that cover every topic, ``lowest`` if possible; None if none were found.

        Patterns whose reduced cost is above the room between the linear program and ``most`` are left out: a solution
        with one of them is not good enough (reduced-cost fixing). If there are many brokers, the whole parts of the
        linear program's solution are kept, and only the rest is searched.
        """
        relaxed = self.relaxed()
        room = most - 1.0 - relaxed.value + FIXED
        limits, prices = relaxed.limits, relaxed.prices
        cost = np.array([
            1.0 + limits[kind] - sum(prices[each] for each in pattern) for kind, pattern in self.patterns
        ])  # fmt: skip
        places = np.flatnonzero(cost <= room)
        every = list(self.patterns)
        patterns = [every[place] for place in places]
        kept = np.zeros(len(patterns), np.int64)
        if relaxed.value > MANY:
            kept = np.floor(relaxed.times[places] + FIXED).astype(np.int64)
        highs = self._left_to_cover(patterns, kept)
        first = len(self.exchanges)  # with whole numbers of patterns, exchanges are a flow, and flows can be whole
        every_pattern = np.arange(first, first + len(patterns), dtype=np.int32)
        whole = np.full(len(patterns), highspy.HighsVarType.kInteger.value, np.uint8)
        highs.changeColsIntegrality(len(patterns), every_pattern, whole)
        highs.setOptionValue("mip_max_nodes", max_nodes)
        highs.setOptionValue("objective_target", lowest - kept.sum() + 0.5)
        highs.setOptionValue("mip_abs_gap", 0.999)
        highs.setOptionValue("mip_rel_gap", 0.0)
        if math.isfinite(stop.left_s()):
            highs.setOptionValue("time_limit", max(stop.left_s(), 0.0))
        highs.cbMipInterrupt += lambda event: None  # lets signal handlers run
        highs.run()
        values = np.asarray(highs.getSolution().col_value)[first:]
        if len(values) != len(patterns) or highs.getInfo().primal_solution_status != 2:
            return None
        chosen = np.rint(values).astype(np.int64) + kept
        if chosen.sum() >= most:
            return None
        return [pattern for pattern, times in zip(patterns, chosen.tolist(), strict=True) for _ in range(times)]

    def _left_to_cover(self, patterns: list[Pattern], kept: Ints) -> highspy.Highs:
        """The covering program of these patterns, where ``kept`` of each are there already."""
        demand = self.types.count.copy()
        there = np.bincount(self.instance.kind, minlength=len(self.instance.machines))
        for times, pattern in zip(kept.tolist(), patterns, strict=True):
            if times:
                types, often = self.patterns[pattern]
                demand[types] -= times * np.array(often)
                there[pattern[0]] -= times
        highs = self._covering(demand, there)
        for pattern in patterns:
            self._add_column(highs, pattern)
        return highs

    def _covering(self, demand: Ints, brokers: Ints) -> highspy.Highs:
        """Cover every type so often, with at most so many brokers of each kind; columns of exchanges only.

        A demand below zero is coverage to spare, which exchanges can hand on.
        """
        highs = _silent()
        none, no_values = np.zeros(0, np.int32), np.zeros(0)
        for least in demand.tolist():
            highs.addRow(float(least), highspy.kHighsInf, 0, none, no_values)
        for kind in self.kinds():
            highs.addRow(-highspy.kHighsInf, float(brokers[kind]), 0, none, no_values)
        for pair in self.exchanges:
            highs.addCol(0.0, 0.0, highspy.kHighsInf, 2, np.array(pair, np.int32), np.array([1.0, -1.0]))
        return highs

    def _add_column(self, highs: highspy.Highs, pattern: Pattern) -> None:
        types, often = self.patterns[pattern]
        rows = np.array([*types, len(self.types) + self.kinds().index(pattern[0])], np.int32)
        highs.addCol(1.0, 0.0, highspy.kHighsInf, len(rows), rows, np.array([*often, 1.0]))

    def price(self, prices: Floats, kind: int, least: float, width: int) -> tuple[int, float]:
        """Add patterns of this kind of broker whose types are worth more than ``least`` together.

        Answers their number, and a bound on the worth of every pattern of this kind.
        """
        if kind in self._pricing:
            priced = self._pricing[kind].search(prices, least, width)
            self.tests += priced.tests
            return sum(self.add(kind, pattern) for pattern in self._feasible(priced.patterns, kind)), priced.at_most
        search = Search.of(self, prices, kind)
        found = search.run(least, width)
        self.tests += search.tests
        worth = max((each for each, _ in found), default=0.0)
        added = sum(self.add(kind, pattern) for _, pattern in sorted(found, reverse=True)[:NEW])
        return added, max(worth, least, search.left_out)

    def feasible(self, groups: Groups) -> bool:
        """Whether the model itself says so of each broker's topics."""
        for kind in self.kinds():
            here = [topics for broker, topics in groups if self.instance.kind[broker] == kind]
            if not self.oracle.fit(self._matrix(here), kind).all():
                return False
        return True

    def _matrix(self, sets: Sequence[Sequence[int]]) -> Ints:
        members = np.full((len(sets), self.instance.most), NONE, np.int64)
        for row, topics in enumerate(sets):
            members[row, : len(topics)] = topics
        return members

    def _feasible(self, patterns: list[tuple[int, ...]], kind: int) -> list[tuple[int, ...]]:
        """Those that the model itself says are feasible."""
        members = self._matrix([self.types.topic[list(pattern)].tolist() for pattern in patterns])
        good = self.oracle.fit(members, kind)
        return [pattern for pattern, fits in zip(patterns, good.tolist(), strict=True) if fits]


def _silent() -> highspy.Highs:
    highs = highspy.Highs()
    highs.silent()
    highs.setOptionValue("threads", 1)
    return highs
