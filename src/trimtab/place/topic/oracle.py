"""Feasibility of sets of topics by predicted latency: the function F of Khare et al. (SEC'18, V-A)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from trimtab.place.topic.instance import Bools, Instance
    from trimtab.predict.sets import Ints


class Oracle(Protocol):
    """Which topics can share a broker."""

    def fit(self, members: Ints, kind: int) -> Bools:
        """(S,) whether the topics of each row of ``members`` can share a broker of this kind; -1 is no topic."""
        ...


@dataclass(frozen=True, eq=False)
class ByLatency:
    """A set is feasible if every topic's predicted p90 is at most its bound minus a margin.

    The prediction is for rates that are higher by the share ``growth``.

    A topic alone is feasible wherever an empty broker carries it, whatever the model predicts (Property 1a). Models
    that are trained for each size of sets need not be monotone: a subset of a feasible set can be infeasible.
    """

    instance: Instance
    margin_ms: float = 0.0
    growth: float = 0.0

    def fit(self, members: Ints, kind: int) -> Bools:
        instance = self.instance
        there = members >= 0
        size = there.sum(axis=1)
        feasible = np.asarray((~there | instance.alone[members, kind]).all(axis=1))
        several = np.flatnonzero(feasible & (size > 1))
        if len(several):
            rows = members[several]
            sets = instance.sets(rows, 1.0 + self.growth)
            late = instance.models[kind].p90_ms(sets) > instance.bound_ms[rows[rows >= 0]] - self.margin_ms
            feasible[several[sets.set_of[late]]] = False
        return feasible
