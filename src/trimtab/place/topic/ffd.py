"""``topic/ffd``: First Fit Decreasing, Algorithm 1 of Khare et al. (SEC'18, V-C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.place.knobs import check, knob
from trimtab.place.topic.instance import NONE
from trimtab.place.topic.oracle import ByLatency
from trimtab.place.topic.policy import TopicPolicy

if TYPE_CHECKING:
    from trimtab.place.topic.instance import Instance
    from trimtab.place.topic.oracle import Oracle
    from trimtab.place.topic.policy import Groups
    from trimtab.predict.model import LatencyModel
    from trimtab.predict.sets import Ints

CHUNK: Final = 32  # brokers that are tested at a time at first; twice as many each time after that


@dataclass(frozen=True, slots=True)
class Ffd(TopicPolicy):
    """Places topics in decreasing order of latency, on the first broker that keeps all bounds (Khare, Algorithm 1).

    Latencies are those of an empty broker. Brokers are opened one by one, the strongest first.
    """

    k: int = knob(6, "most topics on a broker", least=1)
    margin_ms: float = knob(
        0.0, "latencies must be below their bounds by this; the authors' code has 100, the paper 0", least=0.0
    )
    growth: float = knob(
        0.0, "share by which rates may grow before a bound is missed; the paper 0", least=0.0, most=10.0
    )
    model: LatencyModel | None = None  # default: the queueing model of the problem's hardware

    def __post_init__(self) -> None:
        check(self)

    def groups(self, instance: Instance) -> Groups:
        oracle = ByLatency(instance, self.margin_ms, self.growth)
        return first_fit(instance, oracle, instance.in_order_of_latency())


def first_fit(instance: Instance, oracle: Oracle, topics: Ints) -> Groups:
    """Algorithm 1, in this order of topics. O(n |B|) tests."""
    hosts = Hosts(instance, oracle)
    last, start = NONE, 0
    for topic in topics.tolist():
        if last == NONE or not _alike(instance, last, topic):
            start = 0
        # No broker before ``start`` has changed since a topic like this one did not fit there.
        start, last = hosts.first(topic, start), topic
        if start < len(hosts.opened):
            hosts.add(start, topic)
        else:
            hosts.open(topic)
    return hosts.groups()


def _alike(instance: Instance, one: int, other: int) -> bool:
    return all(column[one] == column[other] for column in (instance.rate, instance.processing_ms, instance.bound_ms))


class Hosts:
    """Brokers in use and their topics."""

    def __init__(self, instance: Instance, oracle: Oracle) -> None:
        self.instance, self.oracle = instance, oracle
        self.members = np.full((len(instance.kind), instance.most), NONE, np.int64)  # row i: of the i-th opened broker
        self.count = np.zeros(len(instance.kind), np.int64)
        self.opened: list[int] = []
        self.waiting = list(instance.order)  # brokers not in use, the strongest first

    def first(self, topic: int, start: int) -> int:
        """The first broker in use from ``start`` on that takes the topic, or the number of those in use."""
        free = start + np.flatnonzero(self.count[start : len(self.opened)] < self.instance.most)
        begin, chunk = 0, CHUNK
        while begin < len(free):
            rows = free[begin : begin + chunk]
            takes = self._take(topic, rows)
            if takes.any():
                return int(rows[takes.argmax()])
            begin, chunk = begin + chunk, 2 * chunk
        return len(self.opened)

    def _take(self, topic: int, rows: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        members = np.concatenate([self.members[rows], np.full((len(rows), 1), topic)], axis=1)
        kind = self.instance.kind[np.array(self.opened)[rows]]
        takes = np.zeros(len(rows), np.bool_)
        for each in np.unique(kind).tolist():
            same = kind == each
            takes[same] = self.oracle.fit(members[same], each)
        return takes

    def add(self, at: int, topic: int) -> None:
        self.members[at, self.count[at]] = topic
        self.count[at] += 1

    def open(self, topic: int) -> bool:
        """Start the strongest broker that carries the topic alone; False if there is none."""
        alone, kind = self.instance.alone, self.instance.kind
        for place, broker in enumerate(self.waiting):
            if alone[topic, kind[broker]]:
                del self.waiting[place]
                self.opened.append(broker)
                self.add(len(self.opened) - 1, topic)
                return True
        return False

    def groups(self) -> Groups:
        return [(broker, self.members[at, : self.count[at]].tolist()) for at, broker in enumerate(self.opened)]
