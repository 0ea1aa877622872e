"""A live controller's view: the newest measurement, the broker of every key, and the brokers that are alive."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.control.network_latency import newest
from trimtab.control.speeds import at_profile_speed
from trimtab.control.view import View
from trimtab.fleet.operator.state import FleetState
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import ListBrokers
from trimtab.fleet.protocol.names import STOCK
from trimtab.model.coordinates import Coordinates
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
    from trimtab.observe.best_brokers import AtBrokers
    from trimtab.observe.coordinates.coordinate import Coordinate
    from trimtab.observe.snapshot import Snapshot

OLD_S: Final = 30.0  # age at which a measurement is no longer used


class FleetView:
    """Reads the registry from the keeper and the newest measurement from its stream."""

    def __init__(self, connection: Nats, record: Record) -> None:
        self._connection = connection
        self._record = record
        self._snapshot: tuple[int, Snapshot] | None = None
        self.missed: dict[str, AtBrokers] = {}  # newest reports of brokers, by topic

    async def alive(self) -> list[str]:
        return (await wire.ask(self._connection, ListBrokers(), 2.0)).alive

    async def state(self) -> FleetState:
        return await FleetState.ask(self._connection)

    async def look(self, leaving: dict[str, float]) -> tuple[View | None, FleetState]:
        """The view to decide on, if there is a fresh measurement, and the state of the fleet.

        ``leaving`` has brokers to be removed, each with its deadline. A broker that is no longer registered, or whose
        deadline has passed, is deleted from ``leaving``.
        """
        newer = await self._record.snapshot(self._snapshot[0] if self._snapshot else 0)
        self._snapshot = newer or self._snapshot
        state = await self.state()
        for name, until in list(leaving.items()):
            if name not in state.brokers or until < time.time():
                del leaving[name]
        if self._snapshot is None or time.time() - self._snapshot[1].at > OLD_S:
            return None, state
        snapshot = self._snapshot[1]
        self.missed = newest(self.missed, snapshot.at)
        return live_view(replace(snapshot, missed=dict(self.missed)), state, leaving), state


def live_view(snapshot: Snapshot, state: FleetState, leaving: Mapping[str, float] | None = None) -> View:
    """The view made of a measurement and of the placement in the registry."""
    measured = informed(snapshot, state)
    used = set(state.routing().brokers.values())
    # A broker that is to be removed and is empty counts as gone.
    alive = [name for name in state.alive if name not in (leaving or ()) or name in used]
    return View.of(measured, _counting(state, measured), alive)


def live_workload(snapshot: Snapshot, state: FleetState) -> tuple[Workload, dict[Key, str]]:
    """The running fleet as a workload, and the broker of every measured key.

    The workload has the brokers that are alive. A key's broker is empty if it is not alive. Plain clients are listed
    at the broker they are connected to.
    """
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
    """The routing table without the keys of disconnected clients.

    A disconnected client carries no load, so its key counts only while its broker is not alive: the client must find a
    live broker when it reconnects. A persistent topic stays with the broker that stores its messages.
    """
    connected, alive = set(snapshot.workload.clients.ids), set(state.alive)
    kept = {
        key: broker
        for key, broker in state.movable().items()
        if key.unit == "topic" or key.client in connected or broker not in alive
    }
    return replace(state.routing(), brokers=kept)


def informed(snapshot: Snapshot, state: FleetState) -> Snapshot:
    """Add the registry's data to a measurement: units and bounds of topics, positions, limits that all brokers have,
    and network coordinates; a client's is that of its gateway, with the way to it added."""
    measured = snapshot.workload
    limits: dict[str, Any] = {}
    for name in ("bandwidth", "cores", "memory"):
        values = [getattr(state.brokers.get(broker), name, None) for broker in measured.brokers.ids]
        if values and all(value is not None for value in values):
            limits[name] = values
    speed = np.array([state.brokers[name].speed if name in state.brokers else 1.0 for name in measured.brokers.ids])
    if (speed != 1.0).any():
        limits["cpu_speed"] = speed
        measured = replace(measured, topics=at_profile_speed(measured, state.routing(), speed))
    of_brokers = _coordinates(measured.brokers.ids, state.coordinates)
    of_clients = None
    if of_brokers is not None and snapshot.gateway is not None and snapshot.access_ms is not None:
        of_clients = of_brokers.behind(snapshot.gateway, snapshot.access_ms)
    places = _positions(measured.brokers.ids, state.brokers), _positions(measured.clients.ids, state.clients)
    brokers = Brokers(measured.brokers.ids, **limits, **places[0], coordinate=of_brokers)
    clients = Clients(measured.clients.ids, **places[1], coordinate=of_clients)
    workload = Workload(_registered(measured.topics, state.topics), clients, brokers, measured.links, measured.rtt)
    return replace(snapshot, workload=workload, units={name: topic.unit for name, topic in state.topics.items()})


def _registered(measured: Topics, topics: Mapping[str, Topic]) -> Topics:
    """Set bounds, and ``relayed`` to 1 for topics with a processor or a store: every publication passes through it."""
    entries = [topics.get(name) for name in measured.ids]
    passes = np.array([topic is not None and bool(topic.processor or topic.persistent) for topic in entries], float)
    before = measured.relayed
    bounds = [np.nan if topic is None or topic.latency_ms is None else topic.latency_ms for topic in entries]
    return replace(
        measured, relayed=passes if before is None else np.maximum(passes, before), latency_ms=np.array(bounds, float)
    )


def _coordinates(ids: Ids, coordinates: Mapping[str, Coordinate]) -> Coordinates | None:
    """Network coordinates of brokers. A coordinate of another dimension than most of them cannot be compared."""
    known = [coordinates.get(name) for name in ids]
    sizes = Counter(len(each.point) for each in known if each is not None)
    if not sizes:
        return None
    size = sizes.most_common(1)[0][0]
    rows = np.full((len(ids), size + 2), np.nan)
    for row, each in enumerate(known):
        if each is not None and len(each.point) == size:
            rows[row] = [*each.point, each.height, each.adjustment]
    return Coordinates(rows[:, :size], rows[:, size], rows[:, size + 1])


def _positions(ids: Ids, entries: Mapping[str, Any]) -> dict[str, Any]:
    positions = [getattr(entries.get(name), "position", None) for name in ids]
    if not positions or any(position is None for position in positions):
        return {}
    return {
        "lat": [position[0] for position in positions if position],
        "lon": [position[1] for position in positions if position],
    }
