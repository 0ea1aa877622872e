"""What the fleet knows about topics, clients, links and brokers, and the one function over it: ``route``.

The hub's key-value store holds it; keeper and agents have a replica each, which this is. A key is
``topic.NAME``, ``client.NAME``, ``link.CLIENT.TOPIC`` or ``broker.NAME``; a value is a small JSON object.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from trimtab.errors import BadInput, BadKnob, UnknownName
from trimtab.fleet.protocol import names
from trimtab.fleet.protocol import processor as processors

if TYPE_CHECKING:
    from collections.abc import Iterable

Unit = Literal["topic", "client", "link"]
UNITS = ("topic", "client", "link")
GRAVES = 1_000  # clients that were forgotten and are still remembered as such


_KINDS: tuple[tuple[str, Any, str], ...] = (
    ("broker", str, "a name"),
    ("unit", str, f"one of {', '.join(UNITS)}"),
    ("processor", str, "MODULE:FUNCTION"),
    ("spool", int, "a whole number of messages"),
    ("limit_ms", (int, float), "a number of milliseconds"),
    ("persistent", bool, "true or false"),
    ("replicas", int, "1, 3 or 5"),
)


class LinkRefused(BadInput):
    """Admission control: the placement carries this link nowhere."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it was created; ``broker`` is where it is hosted now."""

    name: str
    broker: str
    unit: Unit = "topic"  # what is placed: the topic as a whole, its clients, or each link
    processor: str = ""  # module:function
    spool: int = 0  # messages the processor sees
    limit_ms: float = 1000.0  # a message may keep the processor busy so long
    persistent: bool = False
    replicas: int = 1

    def __post_init__(self) -> None:
        names.topic_name(self.name)
        for knob, kind, said in _KINDS:
            value = getattr(self, knob)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise BadKnob(f"topic '{self.name}'", knob, value, said)
        if self.unit not in UNITS:
            raise BadKnob(f"topic '{self.name}'", "unit", self.unit, f"one of {', '.join(UNITS)}")
        if self.processor:
            processors.parse(self.processor)
        if not 0 <= self.spool <= 1_000_000:
            raise BadKnob(f"topic '{self.name}'", "spool", self.spool, "from 0 to 1,000,000 messages")
        if not 0 < self.limit_ms <= 3_600_000:
            raise BadKnob(f"topic '{self.name}'", "limit_ms", self.limit_ms, "more than 0 and at most an hour")
        if self.replicas not in (1, 3, 5):
            raise BadKnob(f"topic '{self.name}'", "replicas", self.replicas, "1, 3 or 5")
        if self.persistent and self.unit != "topic":
            raise BadInput(f"topic '{self.name}': a persistent topic is placed as a whole; its unit must be 'topic'")

    @property
    def stateful(self) -> bool:
        """Whether something must be handed over when it moves."""
        return self.unit == "topic" and (self.persistent or bool(self.processor))

    def settings(self) -> dict[str, Any]:
        """All that was asked for when it was created: everything but where it is."""
        return {name: value for name, value in asdict(self).items() if name != "broker"}


@dataclass(slots=True)
class Registry:
    """A replica. ``revision`` is that of the newest change it has.

    Agents look something up whenever a client reports, so none of that may take longer the more clients there are.
    """

    revision: int = 0
    _entries: dict[str, tuple[int, dict[str, Any] | None]] = field(default_factory=dict)
    _kinds: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)  # those that were not deleted
    _topics: dict[str, Topic] = field(default_factory=dict)  # as far as anybody has asked for them
    _newest: int = 0  # of all changes, in order or not
    _graves: dict[str, None] = field(default_factory=dict)  # clients that were forgotten, the first one first

    def apply(self, key: str, value: dict[str, Any] | None, revision: int, *, in_order: bool = True) -> bool:
        """Take a change over, unless a newer one is here; whether it was news.

        ``in_order`` says that no earlier change is missing, so that the replica is complete up to this one.
        """
        if in_order:
            self.revision = max(self.revision, revision)
        known = self._entries.get(key)
        if known is not None and known[0] >= revision:
            return False
        self._entries[key] = (revision, value)
        self._newest = max(self._newest, revision)
        kind, _, name = key.partition(".")
        if kind == "topic":
            self._topics.pop(name, None)
        if kind == "client":
            self._graves.pop(key, None)
            if value is None:
                self._graves[key] = None
        if value is not None:
            self._kinds.setdefault(kind, {})[name] = value
        else:
            self._kinds.get(kind, {}).pop(name, None)
        return known is None or known[1] != value

    def bury(self) -> list[str]:
        """Let go of all but the last graves. Whoever has not heard of one of them knows a client that never comes."""
        keys = list(self._graves)[:-GRAVES]
        for key in keys:
            del self._graves[key], self._entries[key]
        return keys

    def since(self, revision: int, most: int = 500) -> list[tuple[str, dict[str, Any] | None, int]]:
        """The oldest changes after ``revision``."""
        if revision >= self._newest:
            return []
        news = [(key, value, at) for key, (at, value) in self._entries.items() if at > revision]
        return sorted(news, key=lambda change: change[2])[:most]

    def get(self, key: str) -> dict[str, Any] | None:
        return self._entries.get(key, (0, None))[1]

    def at(self, key: str) -> int:
        """The revision of the key's last change; 0 if there was none."""
        return self._entries.get(key, (0, None))[0]

    def of_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        """Entries of a kind by name."""
        return dict(self._kinds.get(kind, {}))

    def topic(self, name: str) -> Topic:
        known = self._topics.get(name)
        if known is None:
            value = self.get(f"topic.{name}")
            if value is None:
                raise UnknownName("topic", name, sorted(self.of_kind("topic")))
            known = self._topics[name] = Topic(name, **value)
        return known

    def topics(self) -> Iterable[Topic]:
        return [self.topic(name) for name in self.of_kind("topic")]

    def home(self, client: str) -> str | None:
        value = self.get(f"client.{client}")
        return None if value is None else str(value["home"])

    def brokers(self) -> dict[str, dict[str, Any]]:
        return self.of_kind("broker")

    def route(self, client: str, topic: str) -> str:
        """The broker that serves the topic to the client."""
        record = self.topic(topic)
        if record.unit == "topic":
            return record.broker
        if record.unit == "client":
            return self.home(client) or record.broker
        link = self.get(f"link.{client}.{topic}")
        if link is None or not link["broker"]:
            why = "no placement has carried it yet" if link is None else "the placement leaves it out"
            raise LinkRefused(f"the link of client '{client}' to topic '{topic}' is refused: {why}")
        return str(link["broker"])
