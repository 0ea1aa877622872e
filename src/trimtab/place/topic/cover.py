"""Whole patterns that cover all topics: column generation, then a search for whole numbers, then topics for types."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.model.placement import Bound
from trimtab.place.topic.exchanges import taken
from trimtab.place.topic.patterns import Pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.place.stop import Stop
    from trimtab.place.topic.instance import Instance
    from trimtab.place.topic.patterns import Pattern
    from trimtab.place.topic.policy import Groups
    from trimtab.place.topic.strain import Strain

ROUNDING: Final = 1e-6
ROUNDS: Final = 500  # of column generation
PART: Final = 0.2  # of the relative distance between bound and value: worth above a broker's price that is searched for
LEAST_EXCESS: Final = 1e-6  # of that worth
MOST_EXCESS: Final = 0.1
CLEAR: Final = 1e-4  # brokers by which a bound must exceed a whole number to round up


@dataclass(frozen=True, slots=True)
class Effort:
    """How long is searched."""

    widths: Sequence[int]  # of the searches for patterns, one after the other
    nodes: int  # of the search for whole numbers of patterns
    tests: float = math.inf  # of feasibility, after which searches become no wider


@dataclass(slots=True, eq=False)
class Cover:
    """The patterns of an instance, and the lower bound that was proved with them."""

    instance: Instance
    pool: Pool
    all_topics: int
    least: float = 0.0  # proved: no placement of all topics uses fewer brokers
    value: float = math.inf  # of the linear program

    @classmethod
    def of(cls, instance: Instance, strain: Strain, groups: Groups) -> Cover:
        return cls(instance, Pool.of(instance, strain, groups), len(instance.topics))

    def solve(self, groups: Groups, effort: Effort, stop: Stop) -> tuple[Groups, Bound]:
        """Better groups than these, if there are any, and the bound."""
        complete = sum(len(topics) for _, topics in groups) == self.all_topics
        most = len(groups) if complete else len(self.instance.kind) + 1  # brokers to stay below
        for converged in (False, True):  # where whole numbers of patterns miss the bound, search with more patterns
            self.improve(effort.widths, stop, effort.tests, converged)
            lowest = max(1, math.ceil(max(self.least, self.value) - ROUNDING)) if self.value < math.inf else 1
            if lowest >= most:
                break
            chosen = self.pool.integral(most, lowest, effort.nodes, stop)
            found = None if chosen is None else self.groups(chosen)
            if found is not None:
                groups, most = found, len(found)
            if most <= math.ceil(self.least - ROUNDING):
                break
        return groups, Bound("patterns", float(math.ceil(self.least - ROUNDING)), "brokers_used")

    def improve(self, widths: Sequence[int], stop: Stop, most_tests: float, converged: bool) -> None:
        """Column generation: narrow searches first, wider ones where they find nothing more but left something out.

        It ends when the bound rounds up to as many brokers as the value of the linear program, or goes on to the last
        pattern that improves this value: then the linear program has more patterns of use for whole numbers.
        After ``most_tests`` feasibility tests, searches become no wider, and those by the queueing model end.
        """
        at = 0
        for _ in range(ROUNDS):
            if stop.left_s() <= 0.0:
                return
            relaxed = self.pool.relaxed()
            if not math.isfinite(relaxed.value):
                return
            self.value = relaxed.value
            excess = self._excess(converged)
            added, ratio = 0, 1.0 + excess
            for kind in self.pool.kinds():
                limit = float(relaxed.limits[kind])
                new, at_most = self.pool.price(relaxed.prices, kind, 1.0 + excess + limit, widths[at])
                added += new
                ratio = max(ratio, at_most - limit)
            self.least = max(self.least, self.value / ratio)
            if not converged and math.ceil(self.least - ROUNDING) >= math.ceil(self.value - ROUNDING):
                return
            spent = self.pool.tests > most_tests
            if not added and ratio > 1.0 + excess + ROUNDING:
                at += 1
                if at == len(widths) or spent:
                    return
            elif self.pool.exact() and (spent or (not added and excess <= LEAST_EXCESS)):
                return

    def _excess(self, converged: bool) -> float:
        """What a pattern must be worth above the price of a broker to be searched for.

        If there is none, the bound is the value over ``1 + excess``. That is enough where it rounds up to as many
        brokers as the value does; otherwise the excess is a part of the distance between bound and value.
        """
        if not self.pool.exact():
            return 0.0
        if converged:
            return LEAST_EXCESS
        enough = self.value / max(math.ceil(self.value - ROUNDING) - 1.0 + CLEAR, 1.0) - 1.0
        part = PART * (self.value / self.least - 1.0) if self.least > 0.0 else MOST_EXCESS
        return min(max(enough, part, LEAST_EXCESS), MOST_EXCESS)

    def groups(self, chosen: Sequence[Pattern]) -> Groups | None:
        """Topics for the types of the chosen patterns, or lighter ones; a place that no topic needs stays empty.

        None if the model finds a set infeasible after exchanges.
        """
        pool, types = self.pool, len(self.pool.types)
        places = np.bincount([each for _, pattern in chosen for each in pattern], minlength=types)
        flow = taken(places, pool.types.count, pool.lighter)
        if flow is None:
            return None
        left = [members.tolist() for members in pool.types.members]
        queue = [[each for each in np.flatnonzero(row) for _ in range(row[each])] for row in flow]
        free: dict[int, list[int]] = {}
        for broker in self.instance.order:
            free.setdefault(int(self.instance.kind[broker]), []).append(broker)
        found: Groups = []
        for kind, pattern in chosen:
            topics = [left[queue[each].pop(0)].pop() for each in pattern if queue[each]]
            if topics:
                found.append((free[kind].pop(0), topics))
        return found if pool.feasible(found) else None
