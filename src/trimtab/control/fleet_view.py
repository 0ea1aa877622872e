"""What a live controller sees: the newest measurement, where every key is, which brokers are alive."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.control.view import View
from trimtab.fleet.protocol import wire
from trimtab.model.key import Key, RoutingTable
from trimtab.model.workload import Brokers, Clients, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.client import Client as Nats

    from trimtab.control.record import Record
    from trimtab.model.ids import Ids
    from trimtab.observe.snapshot import Snapshot

OLD_S: Final = 30.0  # age at which a measurement is no longer used


@dataclass(frozen=True, slots=True)
class FleetState:
    """What the keeper says."""

    alive: list[str]
    brokers: dict[str, Any]
    topics: dict[str, Any]
    clients: dict[str, Any]
    links: dict[str, Any]
    cordoned: dict[str, Any]

    def routing(self) -> RoutingTable:
        """Every key that has a broker."""
        brokers = {Key("client", "", name): str(each["home"]) for name, each in self.clients.items()}
        for name, each in self.topics.items():
            if each["unit"] == "topic":
                brokers[Key("topic", name, "")] = str(each["broker"])
        for name, each in self.links.items():
            client, _, topic = name.partition(".")
            if each["broker"] and self.topics.get(topic, {}).get("unit") == "link":
                brokers[Key("link", topic, client)] = str(each["broker"])
        return RoutingTable({name: each["unit"] for name, each in self.topics.items()}, brokers)

    def waiting(self) -> dict[str, str]:
        """Persistent topics whose broker is not alive: they wait for it, since their messages are stored there."""
        alive = set(self.alive)
        return {
            name: each["broker"]
            for name, each in self.topics.items()
            if each["persistent"] and each["broker"] not in alive
        }

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
        return list((await wire.ask(self._connection, "admin.state", {"kind": "broker"}, 2.0))["alive"])

    async def state(self) -> FleetState:
        kinds = ("broker", "topic", "client", "link", "cordon")
        answers = [await wire.ask(self._connection, "admin.state", {"kind": kind}, 5.0) for kind in kinds]
        return FleetState(answers[-1]["alive"], *(answer["entries"] for answer in answers))

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
        snapshot = informed(self._snapshot[1], state)
        return View.of(snapshot, _counting(state, snapshot), _in_use(state, leaving)), state


def _counting(state: FleetState, snapshot: Snapshot) -> RoutingTable:
    """Keys that count: a client that is not connected carries nothing, but must have a broker that is alive when it
    comes back. A persistent topic waits for the broker that its messages are stored at."""
    routing, there, alive = state.routing(), set(snapshot.workload.clients.ids), set(state.alive)
    waiting = state.waiting()
    kept = {
        key: broker
        for key, broker in routing.brokers.items()
        if key.topic not in waiting and (key.unit == "topic" or key.client in there or broker not in alive)
    }
    return replace(routing, brokers=kept)


def _in_use(state: FleetState, leaving: Mapping[str, float]) -> list[str]:
    """Brokers that are alive; one that is to be removed and is empty counts as gone."""
    used = set(state.routing().brokers.values())
    return [name for name in state.alive if name not in leaving or name in used]


def informed(snapshot: Snapshot, state: FleetState) -> Snapshot:
    """The measurement with what the registry knows: units of topics, positions, limits that all brokers have."""
    known = snapshot.workload
    limits: dict[str, Any] = {}
    for name in ("bandwidth", "cores", "memory"):
        values = [state.brokers.get(broker, {}).get(name) for broker in known.brokers.ids]
        if values and all(value is not None for value in values):
            limits[name] = values
    brokers = Brokers(known.brokers.ids, **limits, **_positions(known.brokers.ids, state.brokers))
    clients = Clients(known.clients.ids, **_positions(known.clients.ids, state.clients))
    workload = Workload(_relayed(known, state.topics), clients, brokers, known.links)
    units = {name: each["unit"] for name, each in state.topics.items()}
    return replace(snapshot, workload=workload, units=units)


def _relayed(known: Workload, topics: Mapping[str, Any]) -> Any:
    """All publications of topics with a processor or a store pass it."""
    passes = np.array([
        bool(each and (each["processor"] or each["persistent"]))
        for each in (topics.get(name) for name in known.topics.ids)
    ], float)  # fmt: skip
    before = known.topics.relayed
    return replace(known.topics, relayed=passes if before is None else np.maximum(passes, before))


def _positions(ids: Ids, entries: Mapping[str, Any]) -> dict[str, Any]:
    found = [entries.get(name, {}).get("position") for name in ids]
    if not found or any(each is None for each in found):
        return {}
    return {"lat": [each[0] for each in found], "lon": [each[1] for each in found]}
