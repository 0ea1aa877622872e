"""The registry's entries of topics, clients, links, brokers, channels, cordons and coordinates; records of moves."""

from __future__ import annotations

from typing import Any, Final, Protocol, Self

import msgspec
from msgspec.structs import asdict

from trimtab.errors import BadInput, BadKnob
from trimtab.fleet.protocol import coding, names, subjects
from trimtab.fleet.protocol import processor as processors
from trimtab.model.key import UNITS, Key, Unit
from trimtab.observe.coordinates.coordinate import Coordinate

_KINDS: tuple[tuple[str, Any, str], ...] = (
    ("broker", str, "a name"),
    ("unit", str, f"one of {', '.join(UNITS)}"),
    ("processor", str, "MODULE:FUNCTION"),
    ("spool", int, "a whole number of messages"),
    ("limit_ms", (int, float), "a number of milliseconds"),
    ("persistent", bool, "true or false"),
    ("replicas", int, "1, 3 or 5"),
    ("latency_ms", (int, float, type(None)), "a number of milliseconds, or none"),
)
LONGEST_MS: Final = 3_600_000.0  # of a bound, and of the processing of a message


class Placed(Protocol):
    """An entry with a broker that placements change: the entry of a topic, a client or a link."""

    @property
    def broker(self) -> str:
        """The broker of the key; empty if it has none."""

    def placed_at(self, broker: str) -> Self:
        """The same entry with another broker."""


class Topic(msgspec.Struct, frozen=True):
    """A topic as it was created; ``broker`` is where it is hosted now."""

    name: str  # stored in the entry's name, not in the entry
    broker: str
    unit: Unit = "topic"  # what is placed: the topic as a whole, its clients, or each link
    processor: str = ""  # module:function
    spool: int = 0  # messages the processor sees
    limit_ms: float = 1000.0  # longest processing time of one message
    persistent: bool = False
    replicas: int = 1
    latency_ms: float | None = None  # bound of the p90 of delivery times

    def __post_init__(self) -> None:
        names.topic_name(self.name)
        for knob, kind, rule in _KINDS:
            value = getattr(self, knob)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise BadKnob(f"topic '{self.name}'", knob, value, rule)
        if self.unit not in UNITS:
            raise BadKnob(f"topic '{self.name}'", "unit", self.unit, f"one of {', '.join(UNITS)}")
        if self.processor:
            processors.parse(self.processor)
        if not 0 <= self.spool <= 1_000_000:
            raise BadKnob(f"topic '{self.name}'", "spool", self.spool, "from 0 to 1,000,000 messages")
        for knob in ("limit_ms", "latency_ms"):
            value = getattr(self, knob)
            if value is not None and not 0 < value <= LONGEST_MS:
                raise BadKnob(f"topic '{self.name}'", knob, value, "more than 0 and at most an hour")
        if self.replicas not in (1, 3, 5):
            raise BadKnob(f"topic '{self.name}'", "replicas", self.replicas, "1, 3 or 5")
        if self.persistent and not self.whole:
            raise BadInput(f"topic '{self.name}': a persistent topic is placed as a whole; its unit must be 'topic'")

    @property
    def whole(self) -> bool:
        """Whether the topic is placed as a whole, so that one broker hosts it."""
        return self.unit == "topic"

    @property
    def stateful(self) -> bool:
        """Whether the topic has state that must be handed over in a move."""
        return self.whole and (self.persistent or bool(self.processor))

    def processed_at(self, broker: str) -> bool:
        """Whether the topic's processor runs at ``broker``: at its host, or at every broker if it has none."""
        return bool(self.processor) and (not self.whole or self.broker == broker)

    def settings(self) -> dict[str, Any]:
        """The settings that stay as long as the topic exists: neither its broker nor its bound is among them."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name not in ("broker", "latency_ms")}

    def placed_at(self, broker: str) -> Self:
        return msgspec.structs.replace(self, broker=broker)

    def entrance(self, broker: str) -> str:
        """The subject to publish to, for a publisher that is served by ``broker``."""
        if self.processor:
            return subjects.work(self.name) if self.whole else subjects.home(broker, self.name)
        return subjects.keep(broker, self.name) if self.persistent else subjects.deliver(self.name)


class ClientEntry(msgspec.Struct, frozen=True):
    """A registered client."""

    home: str
    position: tuple[float, float] | None = None  # latitude and longitude, degrees
    returns: bool = True  # whether the application gave it a name, under which it may come back

    @property
    def broker(self) -> str:
        return self.home

    def placed_at(self, broker: str) -> Self:
        return msgspec.structs.replace(self, home=broker)


class LinkEntry(msgspec.Struct, frozen=True):
    """The link of a client to a topic that is placed by link."""

    broker: str  # empty: the placement refuses the link

    def placed_at(self, broker: str) -> Self:
        return msgspec.structs.replace(self, broker=broker)


class BrokerEntry(msgspec.Struct, frozen=True):
    """A broker as its agent describes it."""

    urls: list[str]
    mesh: str = ""  # its address in the mesh of its area
    area: str = ""
    stores: int = 1
    mqtt: str = ""
    bandwidth: float | None = None  # bytes/s, in and out together
    cores: float | None = None
    speed: float = 1.0  # of one core, relative to the hardware profile
    memory: float | None = None  # bytes
    position: tuple[float, float] | None = None


class ChannelEntry(msgspec.Struct, frozen=True):
    """A channel that an application offers."""

    app: str
    parameters: dict[str, str]  # name -> type
    period_s: float  # 0.0 is continuous
    retention_s: float


class CordonEntry(msgspec.Struct, frozen=True):
    """No more keys are placed at this broker; the keys that it has may stay."""

    reason: str
    at: float  # seconds since 1970


class CoordinateEntry(msgspec.Struct, frozen=True):
    """A broker's network coordinate, as its agent last published it."""

    coordinate: Coordinate


Version = tuple[int, int]  # revision and term of an entry

Entry = Topic | ClientEntry | LinkEntry | BrokerEntry | ChannelEntry | CordonEntry | CoordinateEntry
KINDS: Final[dict[str, type[Entry]]] = {
    "topic": Topic, "client": ClientEntry, "link": LinkEntry, "broker": BrokerEntry, "channel": ChannelEntry,
    "cordon": CordonEntry, "coordinate": CoordinateEntry,
}  # fmt: skip


def write_entry(entry: Entry | None) -> bytes:
    """The stored form of an entry. A topic's name is left out, because the entry's name contains it."""
    if isinstance(entry, Topic):
        return coding.to_json({field: value for field, value in asdict(entry).items() if field != "name"})
    return coding.to_json(entry)


def read_entry(name: str, data: bytes | msgspec.Raw) -> Entry | None:
    """None for an entry that was deleted, and for one of a kind that this process does not know."""
    kind, _, rest = name.partition(".")
    value = coding.decode(data or b"null", dict[str, Any] | None)  # type: ignore[arg-type]
    if value is None or kind not in KINDS:
        return None
    return coding.from_plain({**value, "name": rest} if kind == "topic" else value, KINDS[kind])


class Change(msgspec.Struct, array_like=True, frozen=True):
    """One change of the registry. Of two changes of an entry, the one with the higher ``version`` counts."""

    name: str  # of the entry
    value: msgspec.Raw
    revision: int
    term: int = 0  # 0: by the keeper; else by the topic's host while the hub was away, based on the same revision

    @classmethod
    def of(cls, name: str, entry: Entry | None, revision: int, term: int = 0) -> Change:
        return cls(name, msgspec.Raw(write_entry(entry)), revision, term)

    @property
    def version(self) -> Version:
        return self.revision, self.term

    def entry(self) -> Entry | None:
        return read_entry(self.name, self.value)


class MoveRecord(msgspec.Struct, frozen=True):
    """The progress of a move."""

    id: str
    unit: Unit
    topic: str
    client: str
    source: str
    target: str
    stateful: bool
    durable: bool
    phase: str
    reason: str
    phases: list[tuple[str, float]]  # each phase that was reached, and when, in seconds since 1970
    takeover: bool = False

    @property
    def key(self) -> Key:
        return Key(self.unit, self.topic, self.client)
