"""A replica of the fleet's registry of topics, clients, links, brokers, channels, cordons and coordinates.

The hub's key-value store holds the registry; the keeper and every agent have a replica. Entry names are ``topic.NAME``,
``client.NAME``, ``link.CLIENT.TOPIC``, ``broker.NAME``, ``channel.NAME``, ``cordon.BROKER`` or ``coordinate.BROKER``.

Changes of an entry are ordered by revision and term. The keeper's have a new revision and term 0. While the hub is
away, the host of a topic may place it elsewhere: an *interim change*, with the entry's revision and the next term.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

from trimtab.errors import BadInput, LinkRefused, UnknownName, Unreachable
from trimtab.fleet.protocol.entries import (
    BrokerEntry,
    Change,
    ChannelEntry,
    ClientEntry,
    CoordinateEntry,
    CordonEntry,
    Entry,
    LinkEntry,
    Topic,
)
from trimtab.model.key import Key, Routing, RoutingTable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trimtab.fleet.protocol.entries import Placed, Version
    from trimtab.model.key import Unit
    from trimtab.observe.coordinates.coordinate import Coordinate

    E = TypeVar("E", bound=Entry)

GRAVES = 1_000  # tombstones that are kept
_MANY = ("client", "topic", "link")  # kinds of entries that come and go without limit


def entry_name(key: Key) -> str:
    """The name of the entry that contains a key's broker."""
    return ".".join(part for part in (key.unit, key.client, key.topic) if part)


def entry_key(name: str) -> Key | None:
    """The key whose broker the entry contains; None for other kinds of entries."""
    kind, _, rest = name.partition(".")
    if kind == "topic":
        return Key("topic", rest, "")
    if kind == "client":
        return Key("client", "", rest)
    if kind == "link":
        client, _, topic = rest.partition(".")
        return Key("link", topic, client)
    return None


def routing_table(
    topics: Mapping[str, Topic], clients: Mapping[str, ClientEntry], links: Mapping[str, LinkEntry]
) -> RoutingTable:
    """The broker of every key that has one; ``links`` by ``CLIENT.TOPIC``. A link whose topic does not exist, or is
    placed by another unit, is no key."""
    brokers = {Key("client", "", name): client.home for name, client in clients.items()}
    for name, topic in topics.items():
        if topic.whole:
            brokers[Key("topic", name, "")] = topic.broker
    for name, link in links.items():
        owner, _, topic_name = name.partition(".")
        if link.broker and topic_name in topics and topics[topic_name].unit == "link":
            brokers[Key("link", topic_name, owner)] = link.broker
    return RoutingTable({name: topic.unit for name, topic in topics.items()}, brokers)


def check_target(broker: str, brokers: Collection[str], alive: Collection[str], cordoned: Collection[str]) -> str:
    """``broker``, if keys may be placed there."""
    if broker not in brokers:
        raise UnknownName("broker", broker, sorted(brokers))
    if broker not in alive:
        raise Unreachable(f"broker '{broker}' does not answer; alive: {', '.join(sorted(alive)) or 'none'}")
    if broker not in open_brokers(alive, cordoned):
        raise BadInput(f"broker '{broker}' is cordoned, so nothing is placed there; first: trimtab uncordon {broker}")
    return broker


def open_brokers(alive: Collection[str], cordoned: Collection[str]) -> list[str]:
    """Brokers at which keys may be placed: those alive and not cordoned, or all alive if all are cordoned."""
    return [name for name in alive if name not in cordoned] or list(alive)


def topic_entry(name: str) -> str:
    return f"topic.{name}"


def client_entry(name: str) -> str:
    return f"client.{name}"


def broker_entry(name: str) -> str:
    return f"broker.{name}"


def channel_entry(name: str) -> str:
    return f"channel.{name}"


def cordon_entry(broker: str) -> str:
    return f"cordon.{broker}"


def coordinate_entry(broker: str) -> str:
    return f"coordinate.{broker}"


def _placed_at(entry: Entry | None) -> str:
    """The broker that an entry places a key at; empty for entries that place none."""
    if isinstance(entry, Topic):
        return entry.broker if entry.whole else ""
    return entry.broker if isinstance(entry, (ClientEntry, LinkEntry)) else ""


@dataclass(slots=True)
class Registry(Routing):
    """A replica of the registry, complete up to ``revision``.

    Agents use it for every client's report, so the cost of a lookup must not grow with the number of clients.
    """

    revision: int = 0
    _entries: dict[str, tuple[int, Entry | None]] = field(default_factory=dict)
    _kinds: dict[str, dict[str, Entry]] = field(default_factory=dict)  # entries that were not deleted
    _terms: dict[str, int] = field(default_factory=dict)  # of interim changes
    _newest: int = 0  # highest revision of all changes, in order or not
    _graves: dict[str, None] = field(default_factory=dict)  # tombstones of ``_MANY``, the oldest first
    count: Counter[str] = field(default_factory=Counter)  # number of keys placed at each broker

    def apply(self, name: str, entry: Entry | None, revision: int, *, term: int = 0, in_order: bool = True) -> bool:
        """Apply a change unless the replica has a newer one. Return whether the entry is different now.

        ``in_order``: no earlier change is missing, so that the replica is complete up to this one.
        """
        if in_order:
            self.revision = max(self.revision, revision)
        previous = self._entries.get(name)
        if previous is not None and self.version(name) >= (revision, term):
            return False
        self._entries[name] = (revision, entry)
        if term:
            self._terms[name] = term
        else:
            self._terms.pop(name, None)
        for change, version in ((-1, previous[1] if previous else None), (1, entry)):
            if broker := _placed_at(version):
                self.count[broker] += change
        self._newest = max(self._newest, revision)
        kind, _, rest = name.partition(".")
        if kind in _MANY:
            self._graves.pop(name, None)
            if entry is None:
                self._graves[name] = None
        if entry is not None:
            self._kinds.setdefault(kind, {})[rest] = entry
        else:
            self._kinds.get(kind, {}).pop(rest, None)
        return previous is None or previous[1] != entry

    def graves(self, known: float = math.inf) -> list[str]:
        """Tombstones that may be dropped: all but the newest, if they are not needed any more.

        Every agent has all changes up to revision ``known``. An agent that misses the tombstone of a client keeps a
        stale entry, which is harmless. One that misses the tombstone of a topic would go on serving it.
        """
        return [
            name for name in list(self._graves)[:-GRAVES] if name.startswith(client_entry("")) or self.at(name) <= known
        ]

    def bury(self, name: str) -> None:
        """Drop a tombstone, unless the entry has come back."""
        if name in self._graves:
            del self._graves[name], self._entries[name]
            self._terms.pop(name, None)

    def since(self, revision: int, most: int = 500) -> list[Change]:
        """The oldest changes after ``revision``."""
        if revision >= self._newest:
            return []
        news = sorted((at, name) for name, (at, _) in self._entries.items() if at > revision)
        return [self.change(name) for _, name in news[:most]]

    def interim(self, broker: str = "", most: int = 1_000_000) -> list[Change]:
        """Interim changes that the keeper has not confirmed, those that place a topic at ``broker`` first."""
        changes = [self.change(name) for name in sorted(self._terms)]
        return sorted(changes, key=lambda change: _placed_at(self.get(change.name)) != broker)[:most]

    def change(self, name: str) -> Change:
        """The last change of an entry that there is, or was."""
        revision, entry = self._entries[name]
        return Change.of(name, entry, revision, self._terms.get(name, 0))

    def get(self, name: str) -> Entry | None:
        return self._entries.get(name, (0, None))[1]

    def at(self, name: str) -> int:
        """The revision of the entry's last change; 0 if there was none."""
        return self._entries.get(name, (0, None))[0]

    def version(self, name: str) -> Version:
        """Revision and term of the entry's last change."""
        return self.at(name), self._terms.get(name, 0)

    def _of_kind(self, kind: str, entries: type[E]) -> dict[str, E]:
        return cast("dict[str, E]", dict(self._kinds.get(kind, {})))

    def topics(self) -> dict[str, Topic]:
        return self._of_kind("topic", Topic)

    def clients(self) -> dict[str, ClientEntry]:
        return self._of_kind("client", ClientEntry)

    def links(self) -> dict[str, LinkEntry]:
        """By ``CLIENT.TOPIC``."""
        return self._of_kind("link", LinkEntry)

    def brokers(self) -> dict[str, BrokerEntry]:
        return self._of_kind("broker", BrokerEntry)

    def channels(self) -> dict[str, ChannelEntry]:
        return self._of_kind("channel", ChannelEntry)

    def cordons(self) -> dict[str, CordonEntry]:
        """By broker."""
        return self._of_kind("cordon", CordonEntry)

    def coordinates(self) -> dict[str, Coordinate]:
        """By broker."""
        return {name: entry.coordinate for name, entry in self._of_kind("coordinate", CoordinateEntry).items()}

    def find_topic(self, name: str) -> Topic | None:
        return cast("Topic | None", self.get(topic_entry(name)))

    def topic(self, name: str) -> Topic:
        entry = self.find_topic(name)
        if entry is None:
            raise UnknownName("topic", name, sorted(self.topics()))
        return entry

    def client(self, name: str) -> ClientEntry | None:
        return cast("ClientEntry | None", self.get(client_entry(name)))

    def home(self, client: str) -> str | None:
        entry = self.client(client)
        return None if entry is None else entry.home

    def broker(self, name: str) -> BrokerEntry | None:
        return cast("BrokerEntry | None", self.get(broker_entry(name)))

    def channel(self, name: str) -> ChannelEntry | None:
        return cast("ChannelEntry | None", self.get(channel_entry(name)))

    # Brokers of keys.

    def unit_of(self, topic: str) -> Unit:
        return self.topic(topic).unit

    def placed(self, key: Key) -> Placed | None:
        """The entry that contains a key's broker."""
        return cast("Placed | None", self.get(entry_name(key)))

    def broker_of(self, key: Key) -> str:
        entry = self.placed(key)
        return "" if entry is None else entry.broker

    def table(self) -> RoutingTable:
        """The broker of every key that has one."""
        return routing_table(self.topics(), self.clients(), self.links())

    def links_of(self, topic: str = "", client: str = "") -> list[Key]:
        """Placed and refused links of a topic, of a client, or of both."""
        links = (Key("link", name.partition(".")[2], name.partition(".")[0]) for name in self._kinds.get("link", ()))
        return [key for key in links if key.topic == (topic or key.topic) and key.client == (client or key.client)]

    def check(self, key: Key) -> str:
        """The broker of a key that can be moved; refused if there is no such key."""
        if key.topic and (unit := self.unit_of(key.topic)) != key.unit:
            raise BadInput(f"topic '{key.topic}' is placed by {unit}, not by {key.unit}; move its {unit} instead")
        if key.client and not key.topic and self.client(key.client) is None:
            raise UnknownName("client", key.client, sorted(self.clients()))
        return self.route(key.client, key.topic) if key.topic else self.broker_of(key)

    def belongs(self, topic: str, client: str, key: Key) -> bool:
        """Whether the link between them moves when ``key`` moves."""
        entry = self.find_topic(topic)
        return entry is not None and Key.of(entry.unit, topic, client) == key

    def route(self, client: str, topic: str) -> str:
        """The broker that serves the topic to the client."""
        key = self.key(topic, client)
        entry = self.placed(key)
        if entry is not None and entry.broker:
            return entry.broker
        if key.unit == "link":
            why = "no placement has carried it yet" if entry is None else "the placement leaves it out"
            raise LinkRefused(
                f"the link of client '{client}' to topic '{topic}' is refused: {why}; an operator admits it with "
                f"trimtab move link {client} {topic} --to BROKER"
            )
        return self.topic(topic).broker  # the client is not registered yet
