"""A real fleet with emulated distances, for experiments: sites, a hub, and the delays between them.

Clients are at a site, or at a *place* of their own whose distance to every broker can be changed while they are
connected: mobile clients that move together share a place.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trimtab.fleet.operator import Operator
from trimtab.fleet.sdk.client import Client, connect
from trimtab.fleet.site import server
from trimtab.fleet.site.launch import LOOPBACK, Launch
from trimtab.lab.delay import Delays

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trimtab.fleet.broker.capacity import Capacity
    from trimtab.fleet.broker.network import NetworkSettings
    from trimtab.fleet.protocol.admin_verbs import MoveOrder
    from trimtab.fleet.protocol.entries import MoveRecord
    from trimtab.fleet.protocol.request import Request
    from trimtab.fleet.site.supervisor import Child

    R = TypeVar("R")

DEAD_END = "127.0.0.1:9"  # unusable address that servers advertise, so that peers connect only through proxies


class LiveFleet:
    """``async with LiveFleet(4, between_ms=20) as fleet``; sites and their brokers are called b1, b2, ..."""

    def __init__(
        self, sites: int, *, between_ms: float = 0.0, hub_ms: float | None = None, executors: int = 16,
        network: NetworkSettings | None = None, places: Sequence[str] = (), jitter: float = 0.0,
        capacity: Capacity | None = None,
    ) -> None:  # fmt: skip
        """``jitter``: share by which each emulated delay is shorter or longer, at random."""
        self.names = [f"b{number}" for number in range(1, sites + 1)]
        self.between_ms = between_ms  # one way
        self.hub_ms = between_ms if hub_ms is None else hub_ms
        self.home = Path(tempfile.mkdtemp(prefix="trimtab-lab-"))
        self.launch = Launch(self.home, executors=executors, capacity=capacity)
        self.launch.network = network or self.launch.network
        self.places = tuple(places)
        self.jitter = jitter
        self.delays: Delays
        self._stack = contextlib.ExitStack()
        self._away: list[Child] = []  # processes of a hub that was killed

    async def __aenter__(self) -> LiveFleet:
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _start(self) -> None:
        # Ports are chosen first, since the proxies need the addresses of the listeners.
        hub, hub_leaf, *ports = server.free_ports(LOOPBACK, 2 + 2 * len(self.names))
        free = iter(ports)
        clients = {name: next(free) for name in self.names}
        meshes = {name: next(free) for name in self.names}
        links: dict[str, tuple[str, float]] = {}
        for row, name in enumerate(self.names):
            links[f"hub {name}"] = (f"{LOOPBACK}:{hub_leaf}", self.hub_ms)
            for other in self.names[:row]:
                links[f"mesh {name} {other}"] = (f"{LOOPBACK}:{meshes[other]}", self.between_ms)
            for other in self.names:
                if other != name:
                    links[f"client {name} {other}"] = (f"{LOOPBACK}:{clients[other]}", self.between_ms)
            for place in self.places:
                links[f"place {place} {name}"] = (f"{LOOPBACK}:{clients[name]}", self.between_ms)
        self.delays = self._stack.enter_context(Delays(links, jitter=self.jitter))
        await self.launch.start_hub(hub, hub_leaf)
        for row, name in enumerate(self.names):
            await self.launch.start_broker(
                name, port=clients[name], mesh_port=meshes[name], advertise=DEAD_END,
                routes=[self.delays.addresses[f"mesh {name} {other}"] for other in self.names[:row]],
                hub_leaf=self.delays.addresses[f"hub {name}"],
            )  # fmt: skip
        await self.launch.ready(self.names)

    def set_rtt(self, one: str, other: str, rtt_ms: float) -> None:
        """Put two sites at this distance from now on, for their brokers and for clients at either site."""
        late, early = sorted((one, other), key=self.names.index, reverse=True)
        for link in (f"mesh {late} {early}", f"client {one} {other}", f"client {other} {one}"):
            self.delays.set(link, rtt_ms / 2.0)

    def set_access(self, place: str, broker: str, rtt_ms: float) -> None:
        """Put a place at this distance from a broker from now on."""
        self.delays.set(f"place {place} {broker}", rtt_ms / 2.0)

    async def __aexit__(self, *_: object) -> None:
        await self.launch.__aexit__()
        self._stack.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def client(self, name: str, site: str, **more: Any) -> Client:
        """A client at a site: it reaches the site's broker directly, and all other brokers through delays."""
        addresses = {
            other: f"nats://{self.delays.addresses[f'client {site} {other}']}" for other in self.names if other != site
        }
        return connect(self.home, name=name, home=site, addresses=addresses, **more)

    def client_of(self, place: str, name: str, **more: Any) -> Client:
        """A client at a place: it reaches every broker through the delays of the place."""
        addresses = {broker: f"nats://{self.delays.addresses[f'place {place} {broker}']}" for broker in self.names}
        return connect(self.home, name=name, addresses=addresses, **more)

    async def kill_hub(self) -> None:
        """Kill the hub and its keeper at once, as when their machine fails."""
        supervisor = self.launch.supervisor
        self._away = [supervisor.find("hub"), supervisor.find("keeper")]
        await supervisor.kill(self._away)
        for child in self._away:
            await supervisor.remove(child)

    def start_hub_again(self) -> None:
        for child in self._away:
            self.launch.supervisor.start(child)
        self._away = []

    async def operator(self) -> Operator:
        return Operator(await self.launch.admin())

    async def ask(self, request: Request[R], timeout_s: float = 10.0, *, broker: str = "") -> R:
        return await (await self.operator()).ask(request, timeout_s, broker=broker)

    async def start_moves(self, moves: Iterable[MoveOrder]) -> list[str]:
        """Start moves and return their ids."""
        return await (await self.operator()).start_moves(moves)

    async def finished(self, ids: Iterable[str], limit_s: float = 120.0) -> list[MoveRecord]:
        """Wait until all moves are over, and return their records."""
        return await (await self.operator()).finished(list(ids), limit_s=limit_s)
