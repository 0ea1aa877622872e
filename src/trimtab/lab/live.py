"""A real fleet with emulated distances, for experiments: four sites, a hub, and the delays between them."""

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
    from collections.abc import Iterable

    from trimtab.fleet.broker.network import NetworkSettings
    from trimtab.fleet.protocol.admin_verbs import MoveOrder
    from trimtab.fleet.protocol.entries import MoveRecord
    from trimtab.fleet.protocol.request import Request

    R = TypeVar("R")

DEAD_END = "127.0.0.1:9"  # unusable address that servers advertise, so that peers connect only through proxies


class LiveFleet:
    """``async with LiveFleet(4, between_ms=20) as fleet``; sites and their brokers are called b1, b2, ..."""

    def __init__(
        self, sites: int, *, between_ms: float = 0.0, hub_ms: float | None = None, executors: int = 16,
        network: NetworkSettings | None = None,
    ) -> None:  # fmt: skip
        self.names = [f"b{number}" for number in range(1, sites + 1)]
        self.between_ms = between_ms  # one way
        self.hub_ms = between_ms if hub_ms is None else hub_ms
        self.home = Path(tempfile.mkdtemp(prefix="trimtab-lab-"))
        self.launch = Launch(self.home, executors=executors)
        self.launch.network = network or self.launch.network
        self.delays: Delays
        self._stack = contextlib.ExitStack()
        self._ports: dict[str, dict[str, int]] = {}

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
        self.delays = self._stack.enter_context(Delays(links))
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
