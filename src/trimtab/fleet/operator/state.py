"""The keeper's state of a fleet: which brokers are alive, and the broker of every key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import ListBrokers, ListClients, ListCordons, ListLinks, ListTopics
from trimtab.fleet.protocol.registry import check_target, open_brokers, routing_table

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats

    from trimtab.fleet.protocol.entries import BrokerEntry, ClientEntry, CordonEntry, LinkEntry, Topic
    from trimtab.model.key import Key, RoutingTable
    from trimtab.observe.coordinates.coordinate import Coordinate


@dataclass(frozen=True, slots=True)
class FleetState:
    """The registry's entries and the brokers that are alive, as of one reading."""

    alive: list[str]
    brokers: dict[str, BrokerEntry]
    topics: dict[str, Topic]
    clients: dict[str, ClientEntry]
    links: dict[str, LinkEntry]  # by CLIENT.TOPIC
    cordoned: dict[str, CordonEntry]
    coordinates: dict[str, Coordinate] = field(default_factory=dict)  # of the network, by broker

    @classmethod
    async def ask(cls, connection: Nats) -> FleetState:
        brokers = await wire.ask(connection, ListBrokers(), 5.0)
        topics = await wire.ask(connection, ListTopics(), 5.0)
        clients = await wire.ask(connection, ListClients(), 5.0)
        links = await wire.ask(connection, ListLinks(), 5.0)
        cordoned = await wire.ask(connection, ListCordons(), 5.0)
        return cls(
            cordoned.alive, brokers.entries, topics.entries, clients.entries, links.entries, cordoned.entries,
            brokers.coordinates,
        )  # fmt: skip

    def routing(self) -> RoutingTable:
        """The broker of every key that has one."""
        return routing_table(self.topics, self.clients, self.links)

    def waiting(self) -> dict[str, str]:
        """Persistent topics whose broker is not alive. They wait for it, since it stores their messages."""
        alive = set(self.alive)
        return {
            name: topic.broker
            for name, topic in self.topics.items()
            if topic.persistent and topic.broker not in alive
        }  # fmt: skip

    def movable(self) -> dict[Key, str]:
        """The brokers of all keys except those that wait for their broker."""
        waiting = self.waiting()
        return {key: broker for key, broker in self.routing().brokers.items() if key.topic not in waiting}

    def open(self) -> list[str]:
        """Brokers at which keys may be placed."""
        return open_brokers(self.alive, self.cordoned)

    def check_target(self, broker: str) -> str:
        """``broker``, if keys may be placed there."""
        return check_target(broker, self.brokers, self.alive, self.cordoned)
