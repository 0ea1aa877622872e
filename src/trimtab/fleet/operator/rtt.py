"""The round-trip time between two brokers or clients: estimated, and measured where one of them has measured it."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from trimtab.errors import BadInput, UnknownName, Unreachable
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import ListBrokers, ListClients
from trimtab.fleet.protocol.agent_verbs import GetPeerRtt, GetPosition
from trimtab.fleet.protocol.names import STOCK
from trimtab.observe.report import ClientPosition

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats

    from trimtab.fleet.protocol.admin_verbs import Entries
    from trimtab.fleet.protocol.entries import BrokerEntry
    from trimtab.observe.coordinates.coordinate import Coordinate

ASK_S: Final = 10.0
AGENT_S: Final = 2.0
SHOWN: Final = 3  # clients with a name like the one that was asked for, in an error message


class NetworkNode(msgspec.Struct, frozen=True):
    """A broker, or a client with the broker by which it reaches the network."""

    name: str
    kind: Literal["broker", "client"]
    gateway: str | None  # a broker's is the broker itself; None: the client has not reported one
    access_ms: float | None  # round-trip time to the gateway


class Rtt(msgspec.Struct, frozen=True):
    """The round-trip time between two nodes."""

    nodes: tuple[NetworkNode, NetworkNode]
    estimated_ms: float | None  # by the coordinates of both
    measured_ms: float | None  # by one of them
    error: float | None  # of the estimate, as a share of the measured time; negative: the estimate is too short
    reason: str = ""  # why there is no estimate


async def find_rtt(connection: Nats, one: str, other: str) -> Rtt:
    """No process knows all pairs: the nodes' own agents are asked."""
    if one == other:
        raise BadInput(f"the two nodes must differ, but both are '{one}'")
    brokers = await wire.ask(connection, ListBrokers(), ASK_S)
    clients = (await wire.ask(connection, ListClients(), ASK_S)).entries
    nodes: list[NetworkNode] = []
    positions: list[ClientPosition | None] = []
    for name in (one, other):
        if name in brokers.entries:
            nodes.append(NetworkNode(name, "broker", name, 0.0))
            positions.append(None)
            continue
        if (stock := name.removeprefix(STOCK)) != name and stock in brokers.entries:
            position: ClientPosition | None = ClientPosition(stock, 0.0)
        elif name in clients:
            position = await _position(connection, name, clients[name].home, brokers.alive)
        else:
            close = difflib.get_close_matches(name, clients, SHOWN)
            raise UnknownName("broker or client", name, [*sorted(brokers.entries), *close])
        found = (None, None) if position is None else (position.gateway, position.access_ms)
        nodes.append(NetworkNode(name, "client", *found))
        positions.append(position)
    measured_ms = await _measured(connection, brokers, nodes, positions)
    known = [brokers.coordinates.get(node.gateway or "") for node in nodes]
    reason = next((_why(node) for node, each in zip(nodes, known, strict=True) if each is None), "")
    estimated_ms = None if reason else _estimate(nodes, known)
    error = (estimated_ms - measured_ms) / measured_ms if estimated_ms is not None and measured_ms else None
    return Rtt((nodes[0], nodes[1]), estimated_ms, measured_ms, error, reason)


def _why(node: NetworkNode) -> str:
    if node.gateway is None:
        return f"client '{node.name}' has not reported its position in the network lately"
    at = "" if node.kind == "broker" else f", the gateway of client '{node.name}',"
    return f"broker '{node.gateway}'{at} has no network coordinate yet"


def _estimate(nodes: list[NetworkNode], coordinates: list[Coordinate | None]) -> float:
    one, other = (
        each.behind(node.access_ms or 0.0) for node, each in zip(nodes, coordinates, strict=True) if each is not None
    )
    return one.rtt_ms(other)


async def _position(connection: Nats, client: str, home: str, alive: list[str]) -> ClientPosition | None:
    """The client's home knows its position; after a failover, another broker does."""

    async def at(broker: str) -> ClientPosition | None:
        with contextlib.suppress(BadInput, Unreachable):  # its agent is older, or away
            return (await wire.ask(connection, GetPosition(client), AGENT_S, broker=broker)).position
        return None

    if home in alive and (known := await at(home)) is not None:
        return known
    others = await asyncio.gather(*(at(broker) for broker in alive if broker != home))
    return next((position for position in others if position is not None), None)


async def _measured(
    connection: Nats, brokers: Entries[BrokerEntry], nodes: list[NetworkNode], positions: list[ClientPosition | None]
) -> float | None:
    """What one of the two has measured. Clients measure brokers, not each other."""
    for node, peer, position in ((nodes[0], nodes[1], positions[0]), (nodes[1], nodes[0], positions[1])):
        if peer.kind == "client":
            continue
        if position is not None:
            given = position.access_ms if peer.name == position.gateway else None
            return position.rtts.get(peer.name, given)
        if node.kind == "broker" and node.name in brokers.alive:
            with contextlib.suppress(BadInput, Unreachable):
                rtt_ms = (await wire.ask(connection, GetPeerRtt(peer.name), AGENT_S, broker=node.name)).rtt_ms
                if rtt_ms is not None:
                    return rtt_ms
    return None
