"""What a placement places and a move moves: a whole topic, a client's home, or one link."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from trimtab.errors import BadInput
from trimtab.model.placement import UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trimtab.model.placement import Unit
    from trimtab.model.workload import Rows, Workload


class Key(NamedTuple):
    """The name of one thing that has a broker. Keys of one unit sort by topic, then by client."""

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

    def owners(self, workload: Workload, keys: Sequence[Key]) -> Rows:
        """(L,) the row in ``keys`` of the key that every link of a workload belongs to; -1 where it is not there.

        The same as ``key`` for every link, in columns.
        """
        links = workload.links
        rows = {key: row for row, key in enumerate(keys)}
        units: list[Unit] = [self.unit_of(name) for name in workload.topics.ids]
        of_topic = [rows.get(Key("topic", name, ""), -1) for name in workload.topics.ids]
        of_client = [rows.get(Key("client", "", name), -1) for name in workload.clients.ids]
        if not len(links):
            return np.zeros(0, np.int32)
        unit = np.array([UNITS.index(each) for each in units], np.int8)[links.topic]
        whole = unit == UNITS.index("topic")
        owner = np.where(whole, np.array(of_topic, np.int32)[links.topic], np.array(of_client, np.int32)[links.client])
        for link in np.flatnonzero(unit == UNITS.index("link")).tolist():
            topic, client = workload.topics.ids[links.topic[link]], workload.clients.ids[links.client[link]]
            owner[link] = rows.get(Key("link", topic, client), -1)
        return np.asarray(owner, np.int32)


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

    def as_json(self) -> dict[str, Any]:
        return {"units": dict(self.units), "brokers": [[*key, broker] for key, broker in self.brokers.items()]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RoutingTable:
        return cls(values["units"], {Key(*each[:3]): each[3] for each in values["brokers"]})
