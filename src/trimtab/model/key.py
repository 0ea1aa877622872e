"""Keys, the units of placements and moves: a whole topic, a client's home, or one link."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, get_args

from trimtab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Unit = Literal["topic", "client", "link"]  # what must stay together
UNITS: Final[tuple[Unit, ...]] = get_args(Unit)


class Key(NamedTuple):
    """The identity of a topic, home or link that has a broker. Keys of one unit sort by topic, then by client."""

    unit: Unit
    topic: str  # empty for the home of a client
    client: str  # empty for a whole topic

    @classmethod
    def of(cls, unit: Unit, topic: str, client: str) -> Key:
        """The key whose broker carries the link between ``client`` and a ``topic`` that is placed by ``unit``."""
        if unit not in UNITS:
            raise BadInput(f"unit must be one of {', '.join(UNITS)}, but is '{unit}'")
        return cls(unit, "" if unit == "client" else topic, "" if unit == "topic" else client)

    @property
    def name(self) -> str:
        """Topic and client, as far as the unit has them: ``taxi.gps``, ``taxi-7``, ``taxi.gps taxi-7``."""
        return " ".join(part for part in (self.topic, self.client) if part)

    def __str__(self) -> str:
        return f"{self.unit} {self.name}"


def counted(keys: Iterable[Key]) -> str:
    """``1 topic and 12 clients``."""
    count = Counter(key.unit for key in keys)
    parts = [f"{count[unit]:,} {unit}{'s' if count[unit] > 1 else ''}" for unit in UNITS if count[unit]]
    return " and ".join(", ".join(parts).rsplit(", ", 1)) or "nothing"


class Routing(ABC):
    """The broker of every key, and so of every link, in a fleet whose topics are placed by different units."""

    @abstractmethod
    def unit_of(self, topic: str) -> Unit:
        """The unit that the topic is placed by."""

    @abstractmethod
    def broker_of(self, key: Key) -> str:
        """The broker that the key is placed at; empty if it has none."""

    def key(self, topic: str, client: str) -> Key:
        """The key that the link between them belongs to."""
        return Key.of(self.unit_of(topic), topic, client)

    def carrier(self, topic: str, client: str) -> str:
        """The broker that carries the link between them; empty if none does."""
        return self.broker_of(self.key(topic, client))


@dataclass(frozen=True, slots=True)
class RoutingTable(Routing):
    """A routing as two tables. A topic without an entry is placed by client, as results of channels are."""

    units: Mapping[str, Unit]
    brokers: Mapping[Key, str]

    def unit_of(self, topic: str) -> Unit:
        return self.units.get(topic, "client")

    def broker_of(self, key: Key) -> str:
        return self.brokers.get(key, "")

    @classmethod
    def of_keys(cls, brokers: Mapping[Key, str]) -> RoutingTable:
        """The units of topics follow from the keys: a topic that has none of its own is placed by client."""
        units: dict[str, Unit] = {key.topic: key.unit for key in brokers if key.unit != "client"}
        return cls(units, brokers)

    @classmethod
    def of_homes(cls, homes: Mapping[str, str]) -> RoutingTable:
        """A fleet all of whose topics are placed by client."""
        return cls({}, {Key("client", "", client): broker for client, broker in homes.items()})
