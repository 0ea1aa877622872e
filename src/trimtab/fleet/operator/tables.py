"""Rows of the operator's tables: brokers, topics, clients, links, channels, moves."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import asdict

from trimtab.fleet.protocol.admin_verbs import ChannelState
from trimtab.fleet.protocol.entries import BrokerEntry, ClientEntry, LinkEntry, MoveRecord
from trimtab.fleet.protocol.registry import entry_key
from trimtab.model.key import Unit
from trimtab.observe.coordinates.coordinate import Coordinate
from trimtab.observe.report import BrokerReport, ProbeCounts, TopicReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.fleet.protocol.admin_verbs import Entries
    from trimtab.fleet.protocol.entries import CordonEntry, Topic
    from trimtab.observe.best_brokers import BestBrokers

RATES: Final = ("in_msgs", "out_msgs", "in_bytes", "out_bytes")  # counts of a topic that are shown per second


class BrokerRow(BrokerEntry, frozen=True, kw_only=True):
    """A broker with its load over the last second; zero if it is not alive."""

    broker: str
    alive: bool
    cordoned: str | None  # why nothing is placed there
    connections: int
    stock: int  # connections of plain NATS and MQTT clients
    cpu: float  # cores in use
    memory_bytes: float
    in_per_s: float  # messages
    out_per_s: float
    in_bytes_per_s: float
    out_bytes_per_s: float
    coordinate: Coordinate | None  # of the network
    probes: ProbeCounts  # of its agent since it started


class TopicRow(msgspec.Struct, frozen=True, kw_only=True):
    """A topic: its settings, and the newest reports of all brokers that are alive, added up."""

    topic: str
    broker: str
    waits_for: str | None  # a broker that is not alive and stores its messages
    unit: Unit
    processor: str
    spool: int
    limit_ms: float
    persistent: bool
    replicas: int
    latency_ms: float | None  # bound of p90
    publishers: int
    subscribers: int
    in_per_s: float
    out_per_s: float
    in_bytes_per_s: float
    out_bytes_per_s: float
    processing_ms: float | None  # per message
    dead: int
    p50_ms: float | None  # of delivery times
    p90_ms: float | None
    p99_ms: float | None
    network_ms: float | None  # worst case between a publisher and a subscriber at its broker, one way
    best_broker: str | None  # the broker with the fewest pairs above the bound, then with the least worst case
    best_ms: float | None  # the worst case there


class ClientRow(ClientEntry, frozen=True, kw_only=True):
    client: str


class LinkRow(LinkEntry, frozen=True, kw_only=True):
    """A link of a topic that is placed by link; without a broker, it is refused."""

    topic: str
    client: str


class ChannelRow(ChannelState, frozen=True, kw_only=True):
    channel: str


class MoveRow(MoveRecord, frozen=True, kw_only=True):
    ms: float  # from its first phase to its last


class Overview(msgspec.Struct, frozen=True):
    """The fleet at a glance."""

    brokers: list[BrokerRow]
    topics: list[TopicRow]
    moves: list[MoveRow]  # the last few


def broker_rows(listing: Entries[BrokerEntry], cordons: Mapping[str, CordonEntry]) -> list[BrokerRow]:
    rows = []
    for name, about in sorted(listing.entries.items()):
        report = listing.reports.get(name) or BrokerReport(name, 0.0, 1.0)
        period = report.period_s or 1.0
        rows.append(
            BrokerRow(
                **asdict(about), broker=name, alive=name in listing.alive,
                cordoned=cordons[name].reason if name in cordons else None,
                connections=report.connections, stock=report.stock, cpu=report.cpu, memory_bytes=report.memory_bytes,
                in_per_s=report.in_msgs / period, out_per_s=report.out_msgs / period,
                in_bytes_per_s=report.in_bytes / period, out_bytes_per_s=report.out_bytes / period,
                coordinate=listing.coordinates.get(name), probes=report.probes or ProbeCounts(),
            )
        )  # fmt: skip
    return rows


def topic_rows(listing: Entries[Topic], reports: Mapping[str, BrokerReport]) -> list[TopicRow]:
    total: dict[str, TopicReport] = defaultdict(TopicReport)
    rates: dict[str, Counter[str]] = defaultdict(Counter)
    for report in reports.values():
        for name, of_topic in report.topics.items():
            total[name].add(of_topic)
            for count in RATES:  # each report has a period of its own
                rates[name][count] += getattr(of_topic, count) / (report.period_s or 1.0)
    return [
        _topic_row(
            topic,
            total[name],
            rates[name],
            topic.persistent and topic.broker not in listing.alive,
            _summary(reports.get(topic.broker), name),
        )
        for name, topic in sorted(listing.entries.items())
    ]


def _summary(report: BrokerReport | None, topic: str) -> BestBrokers | None:
    """The network latency of a topic as its broker reports it."""
    return (report.summaries or {}).get(topic) if report is not None else None


def _topic_row(
    topic: Topic, report: TopicReport, per_s: Mapping[str, float], waits: bool, summary: BestBrokers | None
) -> TopicRow:
    times = report.latency
    p50, p90, p99 = (1000 * times.percentile(p) if times.total > 0 else None for p in (0.5, 0.9, 0.99))
    settings = {name: value for name, value in asdict(topic).items() if name != "name"}
    return TopicRow(
        **settings, topic=topic.name, waits_for=topic.broker if waits else None,
        publishers=report.publishers, subscribers=report.subscribers,
        in_per_s=per_s["in_msgs"], out_per_s=per_s["out_msgs"],
        in_bytes_per_s=per_s["in_bytes"], out_bytes_per_s=per_s["out_bytes"],
        processing_ms=1000 * report.busy_s / report.processed if report.processed else None,
        dead=report.dead, p50_ms=p50, p90_ms=p90, p99_ms=p99,
        network_ms=None if summary is None else summary.worst_ms,
        best_broker=None if summary is None else summary.broker or None,
        best_ms=None if summary is None else summary.broker_ms,
    )  # fmt: skip


def client_rows(entries: Mapping[str, ClientEntry]) -> list[ClientRow]:
    return [ClientRow(**asdict(entry), client=name) for name, entry in sorted(entries.items())]


def link_rows(entries: Mapping[str, LinkEntry]) -> list[LinkRow]:
    rows = []
    for name, entry in sorted(entries.items()):
        if (key := entry_key(f"link.{name}")) is not None:
            rows.append(LinkRow(entry.broker, topic=key.topic, client=key.client))
    return rows


def channel_rows(entries: Mapping[str, ChannelState]) -> list[ChannelRow]:
    return [ChannelRow(**asdict(entry), channel=name) for name, entry in sorted(entries.items())]


def move_row(record: MoveRecord) -> MoveRow:
    return MoveRow(**asdict(record), ms=round(1000.0 * (record.phases[-1][1] - record.phases[0][1]), 3))
