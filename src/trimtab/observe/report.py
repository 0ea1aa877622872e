"""Reports of clients to their broker's agent, every second, and reports of agents to the hub.

A client reports its messages published and received per topic. The agent adds these reports up, so that the hub gets
one entry of constant size per topic, however many clients the topic has (Gupta, SEC'21, 3.2).

A report is declared here and nowhere else; its JSON, Arrow and Spark forms follow from the declaration (``schema``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.observe.best_brokers import BestBrokers
from trimtab.observe.histogram import Histogram

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

MOST_MEASURED: Final = 8  # brokers whose measured times a client reports
LONGEST_MS: Final = 10_000.0  # of a round-trip time
PART: Final = 500  # most topics, and most clients, in one report message


class TopicReport(msgspec.Struct, omit_defaults=True):
    """One topic at one broker, over one period. Counts add up over clients, and over brokers."""

    in_msgs: int = 0  # published by clients of this broker
    in_bytes: int = 0
    out_msgs: int = 0  # delivered to clients of this broker
    out_bytes: int = 0
    publishers: int = 0
    subscribers: int = 0
    processed: int = 0  # by the topic's processor here
    dead: int = 0  # part of ``processed`` that went to the dead letters
    busy_s: float = 0.0  # CPU time of the processor
    latency: Histogram = msgspec.field(default_factory=Histogram)  # from publish to delivery
    result_msgs: int = 0  # published by the topic's processor here
    result_bytes: int = 0

    def add(self, other: TopicReport) -> None:
        for name in _NUMBERS:
            if number := getattr(other, name):
                setattr(self, name, getattr(self, name) + number)
        self.latency.merge(other.latency)

    def __bool__(self) -> bool:
        """Whether any count is non-zero."""
        return bool(self.latency.counts) or any(getattr(self, name) for name in _NUMBERS)

    def encode(self) -> dict[str, Any]:
        """The report as JSON values; numbers that are zero are left out."""
        fields: dict[str, Any] = msgspec.to_builtins(self, enc_hook=encode_hook)
        return fields

    @classmethod
    def decode(cls, fields: dict[str, Any]) -> TopicReport:
        return msgspec.convert(fields, cls, dec_hook=decode_hook)


_NUMBERS: Final = tuple(name for name in TopicReport.__struct_fields__ if name != "latency")

Links = dict[str, dict[str, list[str]]]  # client -> topic -> roles
Published = dict[str, dict[str, int]]  # client -> topic -> bytes


class ClientPosition(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a client is in the network, of constant size however many brokers there are."""

    gateway: str  # the nearest broker, or the one the client says it is attached to
    access_ms: float  # round-trip time between the client and its gateway
    rtts: dict[str, float] = {}  # measured round-trip times, ms, to at most ``MOST_MEASURED`` brokers

    def cleaned(self, brokers: Collection[str]) -> ClientPosition | None:
        """Without what cannot be right: times of unknown brokers, times that are no times. None: nothing is left."""
        if self.gateway not in brokers or not 0.0 <= self.access_ms <= LONGEST_MS:
            return None
        good = {name: ms for name, ms in self.rtts.items() if name in brokers and 0.0 < ms <= LONGEST_MS}
        kept = dict(list(good.items())[:MOST_MEASURED])
        return self if len(kept) == len(self.rtts) else msgspec.structs.replace(self, rtts=kept)


Positions = dict[str, ClientPosition]  # by client


class ProbeCounts(msgspec.Struct, omit_defaults=True):
    """An agent's probes of other brokers since it started."""

    sent: int = 0
    answered: int = 0  # and used
    refused: int = 0  # answered by another broker, after an impossible time, or with a coordinate that cannot be right
    unanswered: int = 0
    resets: int = 0  # of the coordinate, because it was not finite any more


class BrokerReport(msgspec.Struct):
    """One broker over one period."""

    broker: str
    at: float  # seconds since 1970, the end of the period
    period_s: float
    cpu: float = 0.0  # cores used by the broker's servers
    memory_bytes: int = 0
    connections: int = 0
    stock: int = 0  # connections of plain NATS and MQTT clients, part of ``connections``
    in_msgs: int = 0  # at its servers, of all subjects
    in_bytes: int = 0
    out_msgs: int = 0
    out_bytes: int = 0
    topics: dict[str, TopicReport] = {}
    # The next three fields are set only in reports that list the broker's clients.
    links: Links | None = None
    published: Published | None = None  # since the previous list; ``stock-BROKER`` stands for all stock clients
    stock_subscriptions: dict[str, int] | None = None  # topic -> subscriptions of stock clients
    own_bytes: int = 0  # requests and reports between the fleet's processes, part of in_bytes and out_bytes
    client_bytes: int = 0  # the part of own_bytes that clients cause
    probes: ProbeCounts | None = None
    positions: Positions | None = None  # of the clients at home here; every few seconds
    summaries: dict[str, BestBrokers] | None = None  # network latency of topics that are hosted here; every few seconds

    def encode(self) -> dict[str, Any]:
        """The report as JSON values."""
        fields: dict[str, Any] = msgspec.to_builtins(self, enc_hook=encode_hook)
        return fields

    @classmethod
    def decode(cls, fields: dict[str, Any]) -> BrokerReport:
        return msgspec.convert(fields, cls, dec_hook=decode_hook)

    def parts(self) -> Iterator[BrokerReport]:
        """Split the report into parts that fit into one message each; their sum is the report."""
        lists = (
            self.topics, self.links, self.published, self.stock_subscriptions, self.positions, self.summaries
        )  # fmt: skip
        for start in range(0, max([1, *(len(entries) for entries in lists if entries)]), PART):
            base = self if start == 0 else BrokerReport(self.broker, self.at, self.period_s)
            yield msgspec.structs.replace(
                base, topics=_slice(self.topics, start), links=_slice(self.links, start),
                published=_slice(self.published, start), stock_subscriptions=_slice(self.stock_subscriptions, start),
                positions=_slice(self.positions, start), summaries=_slice(self.summaries, start),
            )  # fmt: skip


def _slice(entries: Mapping[str, Any] | None, start: int) -> dict[str, Any] | None:
    """The ``PART`` entries from a start on."""
    return None if entries is None else {name: entries[name] for name in list(entries)[start : start + PART]}


def encode_hook(value: Any) -> Any:
    """Encode types that msgspec does not know: histograms and numpy numbers."""
    if isinstance(value, Histogram):
        return value.encode()
    for plain in (bool, int, float, str):
        if isinstance(value, plain):
            return plain(value)
    raise NotImplementedError(f"a value of type {type(value).__name__} cannot be written as JSON")


def decode_hook(kind: type, value: Any) -> Any:
    if kind is Histogram:
        return Histogram.decode(value)
    raise NotImplementedError(f"a value of type {kind.__name__} cannot be read from JSON")
