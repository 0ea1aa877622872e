"""What a live controller sees: the newest measurement, where every key is, which brokers are alive."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.control.view import View
from trimtab.fleet.operator.state import FleetState
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import ListBrokers
from trimtab.fleet.protocol.names import STOCK
from trimtab.model.key import Key
from trimtab.model.workload import Brokers, Clients, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nats.aio.client import Client as Nats

    from trimtab.control.record import Record
    from trimtab.fleet.protocol.entries import Topic
    from trimtab.model.ids import Ids
    from trimtab.model.key import RoutingTable
    from trimtab.model.workload import Topics
    from trimtab.observe.snapshot import Snapshot

OLD_S: Final = 30.0  # age at which a measurement is no longer used


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


def live_workload(snapshot: Snapshot, state: FleetState) -> tuple[Workload, dict[Key, str]]:
    """The running fleet as a workload with the brokers that are alive, and the broker of every key that was measured;
    empty where that broker is not alive. Plain clients are listed where they are connected."""
    view = live_view(snapshot, state)
    workload, alive = view.workload, set(view.brokers)
    topics, clients = {"", *workload.topics.ids}, {"", *workload.clients.ids}
    placed = {
        key: broker if broker in alive else ""
        for key, broker in sorted(state.routing().brokers.items())
        if key.topic in topics and key.client in clients
    }
    stock = {Key("client", "", f"{STOCK}{broker}"): broker for broker in view.brokers}
    return workload, placed | {key: broker for key, broker in stock.items() if key.client in clients}


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
