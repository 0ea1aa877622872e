"""What a live controller sees: the newest measurement, where every key is, which brokers are alive."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.control.view import View
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import ListBrokers, ListClients, ListCordons, ListLinks, ListTopics
from trimtab.fleet.protocol.registry import entry_key
from trimtab.model.key import Key, RoutingTable
from trimtab.model.workload import Brokers, Clients, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.client import Client as Nats

    from trimtab.control.record import Record
    from trimtab.fleet.protocol.entries import BrokerEntry, ClientEntry, CordonEntry, LinkEntry, Topic
    from trimtab.model.ids import Ids
    from trimtab.model.workload import Topics
    from trimtab.observe.snapshot import Snapshot

OLD_S: Final = 30.0  # age at which a measurement is no longer used


@dataclass(frozen=True, slots=True)
class FleetState:
    """What the keeper knows."""

    alive: list[str]
    brokers: dict[str, BrokerEntry]
    topics: dict[str, Topic]
    clients: dict[str, ClientEntry]
    links: dict[str, LinkEntry]  # by CLIENT.TOPIC
    cordoned: dict[str, CordonEntry]

    @classmethod
    async def ask(cls, connection: Nats) -> FleetState:
        brokers = await wire.ask(connection, ListBrokers(), 5.0)
        topics = await wire.ask(connection, ListTopics(), 5.0)
        clients = await wire.ask(connection, ListClients(), 5.0)
        links = await wire.ask(connection, ListLinks(), 5.0)
        cordoned = await wire.ask(connection, ListCordons(), 5.0)
        return cls(
            cordoned.alive, brokers.entries, topics.entries, clients.entries, links.entries, cordoned.entries
        )  # fmt: skip

    def routing(self) -> RoutingTable:
        """Every key that has a broker."""
        brokers = {Key("client", "", name): each.home for name, each in self.clients.items()}
        for name, topic in self.topics.items():
            if topic.unit == "topic":
                brokers[Key("topic", name, "")] = topic.broker
        for name, link in self.links.items():
            key = entry_key(f"link.{name}")
            if key is not None and link.broker and key.topic in self.topics and self.topics[key.topic].unit == "link":
                brokers[key] = link.broker
        return RoutingTable({name: topic.unit for name, topic in self.topics.items()}, brokers)

    def waiting(self) -> dict[str, str]:
        """Persistent topics whose broker is not alive: they wait for it, since their messages are stored there."""
        alive = set(self.alive)
        return {
            name: topic.broker
            for name, topic in self.topics.items()
            if topic.persistent and topic.broker not in alive
        }  # fmt: skip

    def movable(self) -> dict[Key, str]:
        """All keys but those that wait for their broker."""
        waiting = self.waiting()
        return {key: broker for key, broker in self.routing().brokers.items() if key.topic not in waiting}

    def open(self) -> list[str]:
        """Brokers that keys may go to: alive, and not cordoned unless all are."""
        return [name for name in self.alive if name not in self.cordoned] or self.alive


class FleetView:
    """Asks the keeper, and reads measurements as they come."""

    def __init__(self, connection: Nats, record: Record) -> None:
        self._connection = connection
        self._record = record
        self._snapshot: tuple[int, Snapshot] | None = None

    async def alive(self) -> list[str]:
        return (await wire.ask(self._connection, ListBrokers(), 2.0)).alive

    async def state(self) -> FleetState:
        return await FleetState.ask(self._connection)

    async def look(self, leaving: dict[str, float]) -> tuple[View | None, FleetState]:
        """What there is to decide on, if anything. Brokers that are ``leaving`` until some time, and were forgotten or
        took too long, are taken off that list."""
        found = await self._record.snapshot(self._snapshot[0] if self._snapshot else 0)
        self._snapshot = found or self._snapshot
        state = await self.state()
        for name in [each for each, until in leaving.items() if each not in state.brokers or until < time.time()]:
            del leaving[name]
        if self._snapshot is None or time.time() - self._snapshot[1].at > OLD_S:
            return None, state
        return live_view(self._snapshot[1], state, leaving), state


def live_view(snapshot: Snapshot, state: FleetState, leaving: Mapping[str, float] | None = None) -> View:
    """A measurement, and where everything is by the registry."""
    measured = informed(snapshot, state)
    used = set(state.routing().brokers.values())
    # One that is to be removed and is empty counts as gone.
    alive = [name for name in state.alive if name not in (leaving or ()) or name in used]
    return View.of(measured, _counting(state, measured), alive)


def _counting(state: FleetState, snapshot: Snapshot) -> RoutingTable:
    """Keys that count: a client that is not connected carries nothing, but must have a broker that is alive when it
    comes back. A persistent topic waits for the broker that its messages are stored at."""
    there, alive = set(snapshot.workload.clients.ids), set(state.alive)
    kept = {
        key: broker
        for key, broker in state.movable().items()
        if key.unit == "topic" or key.client in there or broker not in alive
    }
    return replace(state.routing(), brokers=kept)


def informed(snapshot: Snapshot, state: FleetState) -> Snapshot:
    """The measurement with what the registry knows: units of topics, positions, limits that all brokers have."""
    known = snapshot.workload
    limits: dict[str, Any] = {}
    for name in ("bandwidth", "cores", "memory"):
        values = [getattr(state.brokers.get(broker), name, None) for broker in known.brokers.ids]
        if values and all(value is not None for value in values):
            limits[name] = values
    brokers = Brokers(known.brokers.ids, **limits, **_positions(known.brokers.ids, state.brokers))
    clients = Clients(known.clients.ids, **_positions(known.clients.ids, state.clients))
    workload = Workload(_relayed(known.topics, state.topics), clients, brokers, known.links)
    return replace(snapshot, workload=workload, units={name: topic.unit for name, topic in state.topics.items()})


def _relayed(measured: Topics, topics: Mapping[str, Topic]) -> Topics:
    """All publications of topics with a processor or a store pass it."""
    known = [topics.get(name) for name in measured.ids]
    passes = np.array([each is not None and bool(each.processor or each.persistent) for each in known], float)
    before = measured.relayed
    return replace(measured, relayed=passes if before is None else np.maximum(passes, before))


def _positions(ids: Ids, entries: Mapping[str, Any]) -> dict[str, Any]:
    found = [getattr(entries.get(name), "position", None) for name in ids]
    if not found or any(each is None for each in found):
        return {}
    return {"lat": [each[0] for each in found if each], "lon": [each[1] for each in found if each]}
