"""The host of a new topic with a processor: a broker where every topic stays inside its latency bound by prediction.

The processed rates and the CPU time per message come from the brokers' reports. The traffic of a new topic is what its
creator expects, else the mean of the topics with the same processor, else the mean of all processed topics. The latency
model, and whether as few brokers as possible are to be used, are those of the controller that led last; without any,
the model of an unknown machine.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trimtab.fleet.protocol.entries import BrokerEntry, Topic
    from trimtab.fleet.protocol.hosting import Expected, HostingRules
    from trimtab.fleet.protocol.registry import Registry
    from trimtab.observe.report import BrokerReport

SPAN_S: Final = 10.0  # counts of the present span and of the one before make a rate
REPORT_S: Final = 1.0  # period of reports: the last second may not be reported yet
YOUNG_S: Final = 2 * SPAN_S  # age of a topic below which its measured rate may be incomplete
RESERVE: Final = 0.85  # strain up to which a broker in use is filled, if as few as possible are to be used


@dataclass(slots=True)
class Counts:
    """Messages processed and CPU time of one topic at one broker, in the present span of time and the one before."""

    since: float  # time of the first count
    span: int = 0
    messages: float = 0.0
    busy_s: float = 0.0
    before: tuple[float, float] = (0.0, 0.0)

    def add(self, now: float, messages: float, busy_s: float) -> None:
        self._turn(now)
        self.messages += messages
        self.busy_s += busy_s

    def sums(self, now: float) -> tuple[float, float]:
        """Messages/s, and CPU seconds per second."""
        self._turn(now)
        seconds = min(SPAN_S + now % SPAN_S, max(now - self.since - REPORT_S, REPORT_S))
        return (self.messages + self.before[0]) / seconds, (self.busy_s + self.before[1]) / seconds

    def _turn(self, now: float) -> None:
        span = int(now // SPAN_S)
        if span != self.span:
            self.before = (self.messages, self.busy_s) if span == self.span + 1 else (0.0, 0.0)
            self.span, self.messages, self.busy_s = span, 0.0, 0.0


@dataclass(frozen=True, slots=True)
class Work:
    """The processing of one topic."""

    rate: float  # messages/s
    ms: float  # CPU time of a message at the profile's speed
    bound_ms: float = float("nan")


@dataclass(frozen=True, slots=True)
class Choice:
    """Brokers with what they process, and the topic that needs one of them."""

    work: Mapping[str, list[Work]]  # by broker
    cores: Mapping[str, float | None]
    newcomer: Work
    in_use: frozenset[str]  # brokers that have keys
    rules: HostingRules
    speed: Mapping[str, float] = field(default_factory=dict)  # of one core, where it is not that of the profile

    def brokers(self) -> list[str]:
        """Brokers at which every topic keeps its bound with the new one; if there is none, the least strained.

        If as few brokers as possible are to be used, it is the fullest broker in use that keeps some reserve.
        """
        strain = {broker: self.strain(broker) for broker in self.work}
        fits = [broker for broker, value in strain.items() if value <= 1.0]
        if not fits:
            return [min(strain, key=lambda broker: (strain[broker], broker))] if strain else []
        roomy = [broker for broker in fits if strain[broker] <= RESERVE]
        if not self.rules.thrift or not roomy:
            return fits
        used = [broker for broker in roomy if broker in self.in_use]
        return [max(used, key=lambda broker: (strain[broker], broker))] if used else roomy

    def strain(self, broker: str) -> float:
        """The strain of a broker with the new topic, see ``predict.strain``."""
        import numpy as np  # these take a second, and most keepers never need them

        from trimtab.predict.sets import Sets
        from trimtab.predict.strain import model_of, strains

        work = [*self.work[broker], self.newcomer]
        model = model_of(self.rules.model)
        here = model.on(model.hardware.scaled(cores=self.cores[broker], speed=self.speed.get(broker, 1.0)))
        rate, ms, bound = (np.array([getattr(row, name) for row in work]) for name in ("rate", "ms", "bound_ms"))
        sets = Sets.of([np.arange(len(work))], rate, ms)
        return float(strains(here, sets, bound, self.rules.headroom).max(initial=0.0))


@dataclass(slots=True)
class Hosts:
    """Call ``reported`` with every report of a broker, ``created`` for every topic that was created, and ``fitting``
    for every topic to be created."""

    registry: Registry
    _counts: dict[tuple[str, str], Counts] = field(default_factory=dict)  # by topic and broker
    _expected: dict[str, tuple[float, Work]] = field(default_factory=dict)  # time of creation, by topic

    def reported(self, now: float, report: BrokerReport) -> None:
        for topic, counts in report.topics.items():
            if counts.processed:
                key = (topic, report.broker)
                busy_s = counts.busy_s * self._speed(report.broker)
                self._counts.setdefault(key, Counts(now - report.period_s)).add(now, counts.processed, busy_s)

    def _speed(self, broker: str) -> float:
        entry = self.registry.brokers().get(broker)
        return 1.0 if entry is None else entry.speed

    def created(self, now: float, topic: Topic, work: Work | None) -> None:
        """Until the traffic of the topic is measured, it counts as expected."""
        if work is not None:
            self._expected[topic.name] = (now, work)

    def work(self, now: float) -> dict[tuple[str, str], Work]:
        """Processing by topic and broker: a topic that is placed as a whole counts at its present host."""
        topics = {name: topic for name, topic in self.registry.topics().items() if topic.processor}
        for key in [key for key in self._counts if key[0] not in topics]:
            del self._counts[key]
        for name in [name for name, (at, _) in self._expected.items() if name not in topics or at < now - YOUNG_S]:
            del self._expected[name]
        sums: dict[tuple[str, str], tuple[float, float]] = {}
        for (name, broker), counts in self._counts.items():
            host = topics[name].broker if topics[name].whole else broker
            messages, busy = counts.sums(now)
            before = sums.get((name, host), (0.0, 0.0))
            sums[name, host] = (before[0] + messages, before[1] + busy)
        found = {
            (name, host): Work(rate, 1000.0 * busy / rate, _bound(topics[name]))
            for (name, host), (rate, busy) in sums.items()
            if rate > 0.0
        }
        for name, (_, work) in self._expected.items():  # measured over a part of the span only
            key = (name, topics[name].broker)
            if key not in found or found[key].rate < work.rate:
                found[key] = work
        return found

    def newcomer(self, now: float, topic: Topic, expected: Expected | None) -> Work | None:
        """The expected processing of a new topic; None if nothing is known."""
        if expected is not None:
            return Work(expected.rate, expected.processing_ms, _bound(topic))
        known = self.work(now)
        topics = self.registry.topics()
        same = [work for (name, _), work in known.items() if topics[name].processor == topic.processor]
        same = same or list(known.values())
        if not same:
            return None
        rate = sum(work.rate for work in same)
        return Work(rate / len(same), sum(work.rate * work.ms for work in same) / rate, _bound(topic))

    async def fitting(
        self, now: float, work: Work | None, brokers: Sequence[str], rules: HostingRules
    ) -> Sequence[str]:  # fmt: skip
        """Brokers for a topic with this processing; all of them if nothing is known, or if no topic has a bound."""
        placed = self.work(now)
        bounded = any(one.bound_ms == one.bound_ms for one in [*placed.values(), *([work] if work else [])])
        if work is None or not bounded or not brokers:
            return brokers
        here: dict[str, list[Work]] = {broker: [] for broker in brokers}
        for (_, broker), one in placed.items():
            if broker in here:
                here[broker].append(one)
        about: Mapping[str, BrokerEntry] = self.registry.brokers()
        cores = {broker: about[broker].cores for broker in brokers}
        in_use = frozenset(broker for broker in brokers if self.registry.count[broker])
        speed = {broker: about[broker].speed for broker in brokers}
        return await asyncio.to_thread(Choice(here, cores, work, in_use, rules, speed).brokers)


def _bound(topic: Topic) -> float:
    return float("nan") if topic.latency_ms is None else topic.latency_ms
