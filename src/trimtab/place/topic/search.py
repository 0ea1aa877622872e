"""Patterns that are worth most under prices, for any latency model: sets of topics grow level by level, in batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.place.topic.instance import capacity

if TYPE_CHECKING:
    from trimtab.model.workload import Floats
    from trimtab.place.topic.instance import Bools
    from trimtab.place.topic.patterns import Pool
    from trimtab.predict.sets import Ints

PRICED: Final = 1e-7  # price above which a type takes part
NEW: Final = 300  # patterns found in one search, at most


@dataclass(slots=True, eq=False)
class Level:
    """Feasible sets of one size, in order of their parent (the set without its last type) and their last type."""

    sets: Ints  # (N, size) places in the order of prices, rising
    parent: Ints  # (N,)
    worth: Floats  # (N,)
    work: Floats  # (N,)
    open: Bools  # (N,) whether the set may become worth enough with types after its last one


@dataclass(slots=True, eq=False)
class Search:
    """Feasible patterns of one kind of broker that are worth most under given prices.

    Sets grow type by type, in the order of prices. A set is extended by types that are feasible in place of its last
    one too, since a set is feasible only if its subsets are. At most ``width`` sets of each size are tested, the most
    promising ones; ``left_out`` is the most that another one could have been worth.
    """

    pool: Pool
    kind: int
    order: Ints  # types with a price, the dearest first
    price: Floats  # of these
    work: Floats  # (Y',) cores
    most: int
    room: float  # cores that a broker has
    weight: float  # price of a core
    surplus: Floats  # (Y',) highest price above the worth of the work, of this type and later ones
    tests: int = 0
    left_out: float = 0.0

    @classmethod
    def of(cls, pool: Pool, prices: Floats, kind: int) -> Search:
        instance, types = pool.instance, pool.types
        usable = np.flatnonzero((prices > PRICED) & instance.alone[types.topic, kind])
        order = usable[np.argsort(-prices[usable], kind="stable")]
        machine, topic = instance.machines[kind], types.topic[order]
        work = instance.rate[topic] * machine.message_ms(instance.processing_ms[topic], np.ones(len(topic))) / 1000.0
        price, room = prices[order], capacity(machine, instance.most) * max(1.0, pool.oracle.use)
        weight = _price_of_work(price, work, instance.most, room)
        surplus = np.maximum.accumulate(np.maximum(price - weight * work, 0.0)[::-1])[::-1]
        return cls(pool, kind, order, price, work, instance.most, room, weight, surplus)

    def run(self, least: float, width: int) -> list[tuple[float, tuple[int, ...]]]:
        found: list[tuple[float, tuple[int, ...]]] = []
        every = np.arange(len(self.order))
        everything = np.ones(len(every), np.bool_)
        level = Level(every[:, None], np.zeros(len(every), np.int64), self.price, self.work, everything)
        for size in range(2, self.most + 1):
            parent, place, promise, opens = self._extensions(level, size, least + PRICED)
            if len(parent) > width:
                order = np.argpartition(-promise, width)
                self.left_out = max(self.left_out, float(promise[order[width:]].max()))
                keep = np.sort(order[:width])
                parent, place, opens = parent[keep], place[keep], opens[keep]
            if not len(parent):
                break
            sets = np.concatenate([level.sets[parent], place[:, None]], axis=1)
            self.tests += len(sets)
            fits = self.pool.oracle.fit(self.pool.types.topic[self.order[sets]], self.kind)
            sets, parent, place = sets[fits], parent[fits], place[fits]
            worth, work = level.worth[parent] + self.price[place], level.work[parent] + self.work[place]
            level = Level(sets, parent, worth, work, opens[fits])
            good = np.flatnonzero(level.worth > least + PRICED)
            good = good[np.argsort(-level.worth[good], kind="stable")[:NEW]]
            for row in good.tolist():
                found.append((float(level.worth[row]), tuple(sorted(self.order[sets[row]].tolist()))))
        return found

    def _extensions(self, level: Level, size: int, least: float) -> tuple[Ints, Ints, Floats, Bools]:
        """Sets and types to add; the most that a set with both can be worth, if that is more than ``least``; and
        whether it can be worth that much with types that come after the added one."""
        if not len(level.sets):
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.bool_)
        others = self.most - size  # places that are still free after this one
        last, types = level.sets[:, -1], len(self.order)
        count = self.pool.types.count[self.order]
        again = (level.sets == last[:, None]).sum(axis=1) < count[last]
        begin = np.arange(len(last)) + ~again
        family = np.searchsorted(level.parent, level.parent, side="right")
        # Worth of the dearest types that may follow, each as often as it has topics: sums over the rows of the family.
        times = np.concatenate([[0.0], np.cumsum(count[last])])
        priced = np.concatenate([[0.0], np.cumsum(count[last] * self.price[last])])

        def dearest(start: Floats, stop: Ints) -> Floats:
            return np.asarray(np.interp(np.minimum(start + others, times[stop]), times, priced)
                              - np.interp(np.minimum(start, times[stop]), times, priced))  # fmt: skip

        top = dearest(times[begin], family)
        cut = np.searchsorted(-self.price, -(least - level.worth - top), side="left")
        end = np.searchsorted(level.parent * types + last, level.parent * types + cut)
        many = np.where(level.open, np.maximum(end - begin, 0), 0)
        row = np.repeat(np.arange(len(last)), many)
        at = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many) + begin[row]  # row of the other type
        place = last[at]
        now = level.worth[row] + self.price[place]
        by_work = self.weight * (self.room - level.work[row] - self.work[place])
        widest = now + np.minimum(top[row], by_work + others * self.surplus[last[row]])
        later = now + np.minimum(dearest(times[at] + 1.0, family[row]), by_work + others * self.surplus[place])
        good = widest > least
        return row[good], place[good], widest[good], later[good] > least


def _price_of_work(price: Floats, work: Floats, most: int, room: float) -> float:
    """The price of a core that makes the bound on a broker's worth lowest: a Lagrange multiplier."""
    ratio = np.unique(price / np.maximum(work, 1e-9))
    tried = np.concatenate([[0.0], ratio[:: max(1, len(ratio) // 32)]])
    bound = [weight * room + most * float(np.maximum(price - weight * work, 0.0).max(initial=0.0)) for weight in tried]
    return float(tried[int(np.argmin(bound))])
