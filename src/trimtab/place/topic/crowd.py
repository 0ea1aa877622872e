"""Topics with processing on their brokers, each with the bound that the network latency there leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.model.placement import UNPLACED
from trimtab.model.present import gain_needed
from trimtab.place.topic.instance import NONE
from trimtab.place.topic.probe import PROBES
from trimtab.place.topic.strain import IMPOSSIBLE
from trimtab.predict.queueing import Queueing

if TYPE_CHECKING:
    from trimtab.model.nearness import Nearness
    from trimtab.model.workload import Floats, Rows
    from trimtab.place.topic.instance import Bools
    from trimtab.place.topic.probe import Probe
    from trimtab.place.topic.room import Room
    from trimtab.place.topic.strain import Strain
    from trimtab.place.topic.trim import Trim
    from trimtab.predict.sets import Ints

CHUNK: Final = 16  # brokers that are tested at a time
NEAREST: Final = 16  # brokers at which room is made for a topic


class Crowd:
    """The homes of topics, and which sets of topics keep their promises where."""

    def __init__(self, strain: Strain, network_ms: Floats, room: Room, home: Rows) -> None:
        self.strain, self.room = strain, room
        self.network_ms = network_ms  # (T, B) worst network latency
        self.home = home.copy()
        self.used = room.used(home)
        instance = strain.instance
        self.members: list[list[int]] = [[] for _ in instance.kind]
        for topic in np.flatnonzero((home != UNPLACED) & (instance.processing_ms > 0.0)).tolist():
            self.members[home[topic]].append(topic)
        self.left_ms = _left(instance.bound_ms[:, None], network_ms)  # (T, B) for processing
        self.promised = np.zeros(network_ms.shape, np.bool_)  # (T, B) an empty broker keeps the promise
        self.late = np.zeros(len(home), np.bool_)  # topics whose promise is given up: their bound does not count
        self._judge_alone(np.arange(len(home)))

    @classmethod
    def of(cls, strain: Strain, nearness: Nearness, room: Room, home: Rows) -> Crowd:
        ranked = nearness.ranked(nearness.brokers, by_pairs=False)
        network = np.empty(ranked.broker.shape)
        np.put_along_axis(network, ranked.broker.astype(np.int64), ranked.worst_ms, axis=1)
        return cls(strain, network, room, home)

    def _judge_alone(self, topics: Ints) -> None:
        """Which empty brokers keep the promises of these topics, by the queueing model (Khare, Property 1a)."""
        instance = self.strain.instance
        for kind, machine in enumerate(instance.machines):
            model = Queueing(machine)
            use, time = model.solve(instance.sets(topics[:, None]))
            p90 = np.where(use < 1.0, model.latency(use, time), np.inf)
            brokers = np.flatnonzero(instance.kind == kind)
            kept = p90[:, None] <= self.left_ms[np.ix_(topics, brokers)]
            self.promised[np.ix_(topics, brokers)] = kept & instance.alone[topics, kind][:, None]

    def probe(self, topics: Ints, probe: Probe) -> None:
        """Replace the estimates of the most promising brokers of each topic by measurements."""
        if not len(topics):
            return
        key = np.where(self.promised[topics], self.network_ms[topics], np.inf)
        shown = np.lexsort((self.network_ms[topics], key), axis=1)[:, :PROBES].astype(np.int32)
        worst, _ = probe(topics.astype(np.int32), shown, np.zeros(shown.shape))
        self.network_ms[topics[:, None], shown] = worst
        self.left_ms[topics] = _left(self.strain.instance.bound_ms[topics, None], self.network_ms[topics])
        self._judge_alone(topics)

    def in_order_of_choice(self, topics: Ints) -> list[int]:
        """The topics with the fewest brokers first, of those the one with most work."""
        instance = self.strain.instance
        work = instance.rate[topics] * instance.processing_ms[topics]
        order = np.lexsort((-work, self.promised[topics].sum(axis=1)))
        return [int(topic) for topic in topics[order]]

    def in_order_of_gain(self, topics: Ints) -> Ints:
        """Topics with a nearer broker that would keep the promise, those with the largest difference first."""
        placed = topics[self.home[topics] != UNPLACED]
        best = np.where(self.promised[placed], self.network_ms[placed], np.inf).min(axis=1, initial=np.inf)
        gain = self.network_ms[placed, self.home[placed]] - best
        order = np.argsort(-gain, kind="stable")
        nearer: Ints = placed[order[gain[order] > 0.0]]
        return nearer

    def add(self, topic: int, broker: int) -> None:
        self.members[broker].append(topic)
        self.used[:, broker] += self.room.use[:, topic]
        self.home[topic] = broker

    def remove(self, topic: int) -> int:
        broker = int(self.home[topic])
        self.members[broker].remove(topic)
        self.used[:, broker] -= self.room.use[:, topic]
        self.home[topic] = UNPLACED
        return broker

    def strains(self, sets: list[list[int]], brokers: Ints, more_ms: Floats | None = None) -> Floats:
        """(S,) highest strain of the topics of each set at its broker. ``more_ms`` (T,) is added to bounds."""
        instance = self.strain.instance
        width = max((len(each) for each in sets), default=0)
        result = np.zeros(len(sets))
        if not width:
            return result
        rows = np.full((len(sets), width), NONE, np.int64)
        for row, each in enumerate(sets):
            rows[row, : len(each)] = each
        bound = np.where(self.late[rows], np.inf, self.left_ms[rows, brokers[:, None]])
        if more_ms is not None:
            bound = bound + more_ms[rows]
        for kind in np.unique(instance.kind[brokers]).tolist():
            mine = np.flatnonzero((instance.kind[brokers] == kind) & (rows >= 0).any(axis=1))
            result[mine] = self._of_kind(rows[mine], bound[mine], brokers[mine], kind)
        return result

    def _of_kind(self, rows: Ints, bound: Floats, brokers: Ints, kind: int) -> Floats:
        there = rows >= 0
        sets = self.strain.instance.sets(rows, 1.0 + self.strain.growth)
        with np.errstate(divide="ignore"):
            topic = self.strain.of_topics(sets, np.maximum(bound[there], 0.0), kind)
        size = there.sum(axis=1)
        highest = np.maximum.reduceat(topic, sets.begin[:-1])
        kept = self.promised[rows[:, 0], brokers] | self.late[rows[:, 0]]
        alone = (size == 1) & kept & self.strain.instance.alone[rows[:, 0], kind]
        highest = np.where(alone, np.minimum(highest, 1.0), highest)
        return np.where((there & (bound <= 0.0)).any(axis=1), IMPOSSIBLE, highest)

    def settle(self, topics: Ints, margin_ms: Floats) -> None:
        """Take topics off brokers that cannot keep all their promises, those whose departure helps most first.

        Bounds are longer by ``margin_ms`` (len(topics),) here, so that a topic at the limit does not come and go.
        """
        more = np.zeros(len(self.home))
        more[topics] = margin_ms
        instance = self.strain.instance
        work = instance.rate * instance.processing_ms
        for broker, members in enumerate(self.members):
            while len(members) > instance.most:
                self.remove(max(members, key=lambda topic: work[topic]))
            while members and (self._full(broker) or self.strains([members], np.array([broker]), more)[0] > 1.0):
                without = [[other for other in members if other != topic] for topic in members]
                strain = self.strains(without, np.full(len(without), broker), more)
                key = np.lexsort((-work[members], np.maximum(strain, 1.0)))
                self.remove(members[int(key[0])])

    def _full(self, broker: int) -> bool:
        return bool((self.used[:, broker] > self.room.limit[:, broker]).any())

    def _open(self, topic: int, brokers: Ints) -> Bools:
        """(len(brokers),) whether a broker has a place and resources for one more topic."""
        count = np.array([len(self.members[broker]) for broker in brokers.tolist()], np.int64)
        fits = (self.used[:, brokers] + self.room.use[:, [topic]] <= self.room.limit[:, brokers]).all(axis=0)
        return np.asarray(fits & (count < self.strain.instance.most))

    def nearest(self, topic: int, *, promised: bool = True) -> Ints:
        """Brokers in the order of network latency; only those that would keep the promise alone."""
        order = np.argsort(self.network_ms[topic], kind="stable")
        return order[self.promised[topic, order]] if promised else order

    def first_fit(self, topic: int, brokers: Ints) -> int:
        """The first of these brokers where the topic and all others keep their promises, or -1."""
        brokers = brokers[self._open(topic, brokers)]
        for begin in range(0, len(brokers), CHUNK):
            some = brokers[begin : begin + CHUNK]
            strain = self.strains([[*self.members[broker], topic] for broker in some.tolist()], some)
            if (strain <= 1.0).any():
                return int(some[(strain <= 1.0).argmax()])
        return -1

    def insert(self, topic: int) -> bool:
        """Put the topic on the nearest broker where all promises are kept."""
        broker = self.first_fit(topic, self.nearest(topic))
        if broker >= 0:
            self.add(topic, broker)
        return broker >= 0

    def make_room(self, topic: int) -> bool:
        """Put the topic on a near broker, one of whose topics finds another broker."""
        for broker in self.nearest(topic)[:NEAREST].tolist():
            members = self.members[broker]
            without = [[other for other in members if other != gone] + [topic] for gone in members]
            strain = self.strains(without, np.full(len(without), broker))
            for gone in [members[row] for row in np.flatnonzero(strain <= 1.0).tolist()]:
                self.remove(gone)
                if self._open(topic, np.array([broker]))[0]:
                    others = self.nearest(gone)
                    target = self.first_fit(gone, others[others != broker])
                    if target >= 0:
                        self.add(gone, target)
                        self.add(topic, broker)
                        return True
                self.add(gone, broker)
        return False

    def insert_late(self, topic: int) -> None:
        """Give up the topic's promise: put it where the others keep theirs, or else where the fewest are broken by it.

        Without a place on any broker, the topic has no broker.
        """
        self.late[topic] = True
        near = self.nearest(topic, promised=False)
        broker = self.first_fit(topic, near)
        if broker >= 0:
            self.add(topic, broker)
            return
        instance = self.strain.instance
        near = near[self._open(topic, near) & instance.alone[topic, instance.kind[near]]]
        if len(near):
            kept = [sum(not self.late[other] for other in self.members[broker]) for broker in near.tolist()]
            broker = int(near[int(np.argmin(kept))])
            self.late[self.members[broker]] = True
            self.add(topic, broker)

    def bring_nearer(self, topic: int, knobs: Trim | None) -> bool:
        """Move the topic to a nearer broker; with ``knobs``, only for an improvement above their margin."""
        now = self.network_ms[topic, self.home[topic]]
        needed = 0.0 if knobs is None else float(gain_needed(np.array(now), knobs.margin, knobs.margin_ms))
        near = self.nearest(topic)
        near = near[self.network_ms[topic, near] < now - needed]
        if not len(near):
            return False
        broker = self.remove(topic)
        target = self.first_fit(topic, near)
        self.add(topic, broker if target < 0 else target)
        return target >= 0


def _left(bound_ms: Floats, network_ms: Floats) -> Floats:
    """What the network leaves of a bound; nothing at a broker whose latency is unknown."""
    left: Floats = np.full(network_ms.shape, -np.inf)
    np.subtract(bound_ms, network_ms, out=left, where=np.isfinite(network_ms))
    return left
