"""The strain of sets of topics: how close the busiest or slowest topic of a set is to its limit.

The *strain* of a topic is the larger of two ratios: the share of time in which its worker is busy to the share that
may be busy, and the upper end of its predicted p90 to its bound. Both are predicted for rates that are higher by a
share, the *growth*. A set is feasible if no strain is above 1.

A margin on latency protects from little: near a use of 1, 2 % more load takes the latency from 200 ms to 2 s. A margin
on use does not protect sets of several busy topics, whose workers slow each other down: if all of them have a backlog
by chance, they process less together than arrives, so that a use of 0.94 may end in a collapse. A little more load
takes the use of such a set far beyond 1, so a margin on load finds it (docs/internals/topics.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.predict.model import Structured
from trimtab.predict.queueing import Queueing

if TYPE_CHECKING:
    from trimtab.model.workload import Floats
    from trimtab.place.topic.instance import Bools, Instance
    from trimtab.predict.sets import Ints, Sets

IMPOSSIBLE: Final = 1e9  # strain of a set with a topic that an empty broker does not carry


@dataclass(frozen=True, eq=False)
class Strain:
    """Strains of sets by the instance's models."""

    instance: Instance
    use: float  # share of time in which a worker may be busy
    growth: float  # share by which all rates are higher than given
    coverage: float  # of the prediction interval whose upper end is compared with bounds

    def of(self, members: Ints, kind: int) -> Floats:
        """(S,) highest strain of the topics in each row of ``members`` on a broker of this kind; -1 is no topic."""
        instance = self.instance
        there = members >= 0
        size = there.sum(axis=1)
        strain = np.zeros(len(members))
        rows = members[there]
        if not len(rows):
            return strain
        sets = instance.sets(members, 1.0 + self.growth)
        topic = self.of_topics(sets, instance.bound_ms[rows], kind)
        begin = sets.begin[:-1][size > 0]
        strain[size > 0] = np.maximum.reduceat(topic, begin)
        np.minimum(strain, 1.0, out=strain, where=size == 1)  # alone: as the model of empty brokers says, below
        carried = instance.alone[rows, kind]
        if not carried.all():
            strain[sets.set_of[~carried]] = IMPOSSIBLE
        return strain

    def fit(self, members: Ints, kind: int) -> Bools:
        return np.asarray(self.of(members, kind) <= 1.0)

    def of_topics(self, sets: Sets, bound: Floats, kind: int) -> Floats:
        """(M,) strain of every topic of the sets, for bounds (M,)."""
        model = self.instance.models[kind]
        if isinstance(model, Queueing):
            use, time = model.solve(sets)
            upper = model.latency(use, time) * np.exp(model.spread.limits(use, self.coverage)[1])
            return np.maximum(use / self.use, upper / bound)
        upper = model.interval_ms(sets, self.coverage)[1]
        if isinstance(model, Structured):
            return np.maximum(model.use(sets) / self.use, upper / bound)
        return np.asarray(upper / bound)
