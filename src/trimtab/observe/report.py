"""What clients tell their broker's agent every second, and what an agent makes of it for the hub.

A client reports what it published and received per topic; the agent adds those up, so that the hub gets one
entry per topic of constant size, however many clients the topic has (Gupta, SEC'21, 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from trimtab.observe.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterator

PART: Final = 500  # topics, and clients, in one message about a broker


@dataclass(slots=True)
class TopicReport:
    """One topic at one broker, over one period. Counts add up over clients, and over brokers."""

    in_msgs: int = 0  # published by clients of this broker
    in_bytes: int = 0
    out_msgs: int = 0  # delivered to clients of this broker
    out_bytes: int = 0
    publishers: int = 0
    subscribers: int = 0
    processed: int = 0  # by the topic's processor here
    dead: int = 0  # of those, given to the dead letters
    busy_s: float = 0.0  # CPU time of the processor
    latency: Histogram = field(default_factory=Histogram)  # from publish to delivery

    def add(self, other: TopicReport) -> None:
        self.in_msgs += other.in_msgs
        self.in_bytes += other.in_bytes
        self.out_msgs += other.out_msgs
        self.out_bytes += other.out_bytes
        self.publishers += other.publishers
        self.subscribers += other.subscribers
        self.processed += other.processed
        self.dead += other.dead
        self.busy_s += other.busy_s
        self.latency.merge(other.latency)

    def encode(self) -> dict[str, Any]:
        """For JSON; what is zero is left out."""
        named: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS if getattr(self, name)}
        if self.latency.counts:
            named["latency"] = self.latency.encode()
        return named

    @classmethod
    def decode(cls, named: dict[str, Any]) -> TopicReport:
        numbers = {name: named[name] for name in _NUMBERS if name in named}
        return cls(**numbers, latency=Histogram.decode(named.get("latency", [])))


_NUMBERS = (
    "in_msgs", "in_bytes", "out_msgs", "out_bytes", "publishers", "subscribers", "processed", "dead", "busy_s",
)  # fmt: skip


@dataclass(slots=True)
class BrokerReport:
    """One broker over one period."""

    broker: str
    at: float  # seconds since 1970, the end of the period
    period_s: float
    cpu: float = 0.0  # cores used by the broker's servers
    memory_bytes: int = 0
    connections: int = 0
    stock: int = 0  # of those, plain NATS and MQTT clients
    in_msgs: int = 0  # at its servers, whatever the subject
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0
    topics: dict[str, TopicReport] = field(default_factory=dict)
    links: dict[str, dict[str, list[str]]] | None = None  # client -> topic -> roles; in some reports

    def encode(self) -> dict[str, Any]:
        named = {name: getattr(self, name) for name in self.__slots__ if name not in ("topics", "links")}
        named["topics"] = {topic: report.encode() for topic, report in self.topics.items()}
        return named if self.links is None else named | {"links": self.links}

    def parts(self) -> Iterator[BrokerReport]:
        """The same in parts that fit into a message each, and add up to it."""
        names, clients = list(self.topics), list(self.links or ())
        for at in range(0, max(len(names), len(clients), 1), PART):
            topics = {name: self.topics[name] for name in names[at : at + PART]}
            links = {name: self.links[name] for name in clients[at : at + PART]} if self.links is not None else None
            whole = self if at == 0 else BrokerReport(self.broker, self.at, self.period_s)
            yield replace(whole, topics=topics, links=links)

    @classmethod
    def decode(cls, named: dict[str, Any]) -> BrokerReport:
        topics = {topic: TopicReport.decode(report) for topic, report in named.get("topics", {}).items()}
        known = {name: named[name] for name in cls.__slots__ if name in named and name != "topics"}
        return cls(**known, topics=topics)
