"""Starts a fleet, or one part of it: files, ports, servers and agents, in the order of their dependencies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from dataclasses import dataclass, replace
from typing import IO, TYPE_CHECKING, Any, Final

from trimtab.errors import BadInput, NotStartedHere, Unreachable
from trimtab.fleet.broker.capacity import Capacity
from trimtab.fleet.broker.network import NetworkSettings
from trimtab.fleet.hub.settings import HubSettings
from trimtab.fleet.protocol import coding, names, wire
from trimtab.fleet.protocol.admin_verbs import AddBroker, BrokerUrls, ForgetBroker, ListBrokers, RemoveBroker
from trimtab.fleet.protocol.entries import BrokerEntry
from trimtab.fleet.site import server
from trimtab.fleet.site.credentials import (
    CLIENT_FILE,
    FLEET_FILE,
    REPLICA_FILE,
    Fleet,
    Tls,
    make_tls,
    read_secret,
    write_secret,
)
from trimtab.fleet.site.lock import lock
from trimtab.fleet.site.processes import ControllerProcess, PipelineProcess, write_settings
from trimtab.fleet.site.server import Address, Front, Store
from trimtab.fleet.site.supervisor import Child, Supervisor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence
    from pathlib import Path

    from trimtab.fleet.protocol.request import Done

LOOPBACK: Final = "127.0.0.1"
READY_S: Final = 20.0
PIPELINE_S: Final = 600.0  # limit of the start of the data cluster; Spark needs a minute on a small machine


@dataclass(frozen=True, slots=True)
class Site:
    """A started broker with its addresses."""

    name: str
    front: Front
    mqtt: Address
    urls: list[str]


class Launch:
    """A fleet's parts on this machine. ``home`` contains their files. Leaving the context stops all parts."""

    def __init__(
        self, home: Path, *, host: str = LOOPBACK, tls: bool | Tls = False, area: str = "area", executors: int = 16,
        on_restart: Callable[[Child], None] = lambda _: None, capacity: Capacity | None = None,
        hub_settings: HubSettings | None = None,
    ) -> None:  # fmt: skip
        self.network = NetworkSettings()  # of each broker that is started from now on
        self.hub_settings = hub_settings or HubSettings()
        self.capacity = capacity or Capacity()  # of each broker that is started
        self.home = home.resolve()  # absolute, since processes with other working directories read its paths
        self.host = host
        self.area = area
        self.executors = executors
        self.supervisor = Supervisor(on_restart)
        self.sites: dict[str, Site] = {}
        self.fleet = Fleet()
        self._tls = tls
        self._binary = server.find_nats_server()
        self._starting: set[str] = set()  # brokers whose start is not complete
        self._admin: Any = None
        self._others: dict[str, list[str]] = {}
        self._locks: dict[str, IO[str]] = {}
        # On a small machine, several servers of one thread each do better than threads that search for work.
        self._threads = str(max(1, (os.cpu_count() or 2) // 4))

    async def __aenter__(self) -> Launch:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._admin is not None:
            await wire.close(self._admin)
        await self.supervisor.stop()
        for held in self._locks.values():
            held.close()

    @property
    def scheme(self) -> str:
        return "tls" if self.fleet.tls else "nats"

    async def start_hub(self, port: int | None = None, leaf_port: int | None = None) -> None:
        self._lock(names.HUB)
        chosen = [port and server.check_port(self.host, port), leaf_port and server.check_port(self.host, leaf_port)]
        free = iter(server.free_ports(self.host, 2))
        client, leaf = (Address(self.host, number or next(free)) for number in chosen)
        if (self.home / FLEET_FILE).exists():  # the same fleet again, so that clients can keep their files
            fleet = Fleet.load(self.home / FLEET_FILE)
        else:
            fleet = Fleet()
        tls = make_tls(self.home, ["localhost", self.host]) if self._tls is True else self._tls or None
        scheme = "tls" if tls else "nats"
        self.fleet = replace(fleet, hub=f"{scheme}://{client}", hub_leaf=str(leaf), tls=tls)
        self.fleet.save(self.home)
        (self.home / CLIENT_FILE).unlink(missing_ok=True)  # of an earlier run, with other addresses
        folder = self.home / names.HUB
        await self._server(names.HUB, server.hub_config(self.fleet, client, leaf, folder / "store"), client)
        settings = coding.to_json(self.hub_settings).decode()
        self._python("keeper", "trimtab.fleet.hub.keeper", str(self.home), str(self.executors), settings)

    def start_controller(
        self, name: str = "controller", *, paused: bool = False, settings: dict[str, Any] | None = None
    ) -> None:
        """Start a controller in a process of its own; it leads or stands by. The default settings are those of
        trimtab.toml."""
        self._process(name, "trimtab.control.process", ControllerProcess(str(self.home), settings, paused))

    async def start_pipeline(self, manifest: Path | None = None, spark: dict[str, str] | None = None) -> None:
        """Start the data cluster, with the application of ``manifest`` if given; returns when it serves.

        A data cluster that does not start is ended.

        It runs in a process of its own. The default settings of ``spark`` are those of trimtab.toml.
        """
        ready = self.home / "pipeline" / "ready"
        ready.unlink(missing_ok=True)
        application = str(manifest.resolve()) if manifest is not None else None
        self._process("pipeline", "trimtab.pipeline.process", PipelineProcess(str(self.home), application, spark))
        child = self.supervisor.find("pipeline")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PIPELINE_S
        try:
            while not ready.exists():
                if child.restarts:
                    raise BadInput(f"the pipeline does not start: {child.tail()} ({child.log})")
                if loop.time() > deadline:
                    raise BadInput(f"the pipeline is not ready within {PIPELINE_S:g} s: {child.tail()} ({child.log})")
                await asyncio.sleep(0.1)
        except BaseException:
            await self.supervisor.remove(child)
            raise

    def join(self, path: Path) -> None:
        """Join the fleet of this fleet file."""
        self.fleet = Fleet.load(path)

    async def start_broker(
        self, name: str, *, port: int | None = None, routes: Sequence[str] | None = None, advertise: str = "",
        hub_leaf: str = "", stores: int = 1, mqtt_port: int | None = None, mesh_port: int | None = None,
    ) -> Site:  # fmt: skip
        """Start a broker. ``routes`` are mesh addresses of others in its area; the default is those in the registry."""
        names.broker_name(name)
        if stores not in (1, 3, 5):
            raise BadInput(f"a site has 1, 3 or 5 stores, so that a majority can agree; asked: {stores}")
        if name in self.sites or name in self._starting:
            raise BadInput(f"broker '{name}' runs already")
        fleet = replace(self.fleet, hub_leaf=hub_leaf) if hub_leaf else self.fleet
        for chosen in (port, mqtt_port, mesh_port):
            if chosen:
                server.check_port(self.host, chosen)
        free = iter(server.free_ports(self.host, 4 + 2 * stores))
        wanted = (port, None, mesh_port, mqtt_port)
        client, leaf, mesh, mqtt = (Address(self.host, chosen or next(free)) for chosen in wanted)
        async with self._all_or_nothing(name):
            if routes is None:
                routes = await self._known_routes(name)
            front = Front(name, self.area, client, leaf, mesh, tuple(routes), advertise)
            await self._server(name, server.front_config(fleet, front), client)
            store_clients = [Address(self.host, next(free)) for _ in range(stores)]
            store_meshes = [Address(self.host, next(free)) for _ in range(stores)] if stores > 1 else [None]
            for number, (at, own_mesh) in enumerate(zip(store_clients, store_meshes, strict=True), start=1):
                store = Store(
                    name, number, at, leaf, self.home / f"{name}-store-{number}" / "store",
                    mqtt if number == 1 else None, own_mesh,
                    tuple(str(other) for other in store_meshes if other not in (None, own_mesh)),
                )  # fmt: skip
                await self._server(store.name, server.store_config(fleet, store), at)
            urls = [f"{self.scheme}://{client}"]
            about = BrokerEntry(urls, advertise or str(mesh), self.area, stores, str(mqtt), **self.capacity.about())
            config = self.home / name / "agent.json"
            content = {
                "broker": name, "urls": urls, "fleet": fleet.fleet, "system": fleet.system,
                "about": coding.plain(about), "network": coding.plain(self.network),
                "stores": [f"{self.scheme}://{address}" for address in store_clients],
                "ca": fleet.tls.ca if fleet.tls else None,
            }  # fmt: skip
            write_secret(config, content)
            self._python(f"{name}-agent", "trimtab.fleet.broker.agent", str(config))
            site = Site(name, front, mqtt, urls)
            self.sites[name] = site
            self._write_client_file()
            return site

    @contextlib.asynccontextmanager
    async def _all_or_nothing(self, name: str) -> AsyncIterator[None]:
        """If the start of a broker fails, the parts that were started are ended, and it can be started again."""
        self._starting.add(name)
        try:
            yield
        except BaseException:
            self.sites.pop(name, None)
            await self._end_parts(name)
            raise
        finally:
            self._starting.discard(name)

    async def end_broker(self, name: str, *, kill: bool = False) -> None:
        """Stop a broker's processes; with ``kill`` at once and without notice, as when a machine fails."""
        if name not in self.sites:
            raise NotStartedHere(f"no broker '{name}' was started here; there are: {', '.join(self.sites) or 'none'}")
        await self._end_parts(name, kill=kill)
        del self.sites[name]
        self._others.pop(name, None)
        self._write_client_file(without=name)

    async def _end_parts(self, name: str, *, kill: bool = False) -> None:
        parts = re.compile(rf"{re.escape(name)}(-agent|-store-\d+)?")
        own = [child for child in self.supervisor.children if parts.fullmatch(child.name)]
        if kill:
            await self.supervisor.kill(own)
        for child in reversed(own):
            await self.supervisor.remove(child)

    async def serve_hosts(self) -> None:
        """Start and stop brokers on request of operators."""

        async def add(request: AddBroker) -> BrokerUrls:
            site = await self.start_broker(request.name, stores=request.stores)
            with _changed(f"broker '{request.name}' was started"):
                await self.ready([request.name])
            return BrokerUrls(site.urls)

        async def remove(request: RemoveBroker) -> Done:
            await self.end_broker(request.name)
            with _changed(f"broker '{request.name}' was ended"):
                # A broker of this name that is started here again must not go by the registry of this one.
                (self.home / request.name / REPLICA_FILE).unlink(missing_ok=True)
                return await wire.ask(await self.admin(), ForgetBroker(request.name), 10.0)

        await wire.serve(await self.admin(), [AddBroker.answered_by(add), RemoveBroker.answered_by(remove)])

    def _write_client_file(self, without: str = "") -> None:
        """Write the client file, which applications need to connect."""
        with contextlib.suppress(BadInput):  # keeps brokers that other processes have started in the same folder
            self._others |= read_secret(self.home / CLIENT_FILE, "")["brokers"]
            self._others.pop(without, None)
        content = {
            "brokers": self._others | {name: site.urls for name, site in self.sites.items()}, "user": "client",
            "password": self.fleet.client, "ca": self.fleet.tls.ca if self.fleet.tls else None,
        }  # fmt: skip
        write_secret(self.home / CLIENT_FILE, content)

    async def ready(self, brokers: Sequence[str]) -> None:
        """Wait until the keeper has heard of all ``brokers``."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_S
        missing = list(brokers)
        while loop.time() < deadline:
            try:
                admin = await self.admin()
                heard = (await wire.ask(admin, ListBrokers(), 1.0)).heard
                missing = [broker for broker in brokers if broker not in heard]
                if not missing:
                    return
            except Unreachable:
                pass
            await asyncio.sleep(0.05)
        deaths = "; ".join(f"{child.name}: {child.tail()}" for child in self.supervisor.children if child.restarts)
        raise Unreachable(f"not ready within {READY_S:g} s: {', '.join(missing)}. {deaths}")

    async def admin(self) -> Any:
        """A connection with all permissions."""
        if self._admin is None:
            self._admin = await admin_connection(self.fleet)
        return self._admin

    async def _known_routes(self, name: str) -> list[str]:
        if self.sites:
            return [str(site.front.mesh) for other, site in self.sites.items() if other != name]
        try:
            entries = (await wire.ask(await self.admin(), ListBrokers(), 3.0)).entries
        except Unreachable:
            return []
        return [about.mesh for other, about in entries.items() if other != name and about.area == self.area]

    async def _server(self, name: str, config: str, client: Address) -> None:
        folder = self.home / name
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock(name)
        path = folder / "nats.json"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(config)
        child = Child(name, [self._binary, "-c", str(path)], folder / "server.log", {"GOMAXPROCS": self._threads})
        self.supervisor.start(child)
        try:
            await self._listening(child, client)
        except BaseException:
            await self.supervisor.remove(child)
            raise

    def _lock(self, name: str) -> None:
        """Lock a server's folder: two servers on the same stored data would corrupt it."""
        if name not in self._locks:
            what = f"'{name}' of the fleet in {self.home}"
            self._locks[name] = lock(self.home / name, what, "stop it, or choose another --home")

    async def _listening(self, child: Child, address: Address) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READY_S
        while True:
            try:
                reader, writer = await asyncio.open_connection(address.host, address.port)
                try:
                    async with asyncio.timeout(2.0):
                        if (await reader.readline()).startswith(b"INFO"):
                            return
                finally:
                    writer.close()
            except (TimeoutError, OSError):
                pass
            if child.restarts >= 3 or loop.time() > deadline:
                raise BadInput(f"nats-server '{child.name}' does not start: {child.tail()}")
            await asyncio.sleep(0.01)

    def _process(self, name: str, module: str, settings: ControllerProcess | PipelineProcess) -> None:
        path = self.home / name / "process.json"
        write_settings(path, settings)
        self._python(name, module, str(path))

    def _python(self, name: str, module: str, *arguments: str) -> None:
        log = self.home / name / "log"
        here = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONUNBUFFERED": "1"}
        self.supervisor.start(Child(name, [sys.executable, "-m", module, *arguments], log, here))


@contextlib.contextmanager
def _changed(what: str) -> Iterator[None]:
    """An error tells that a part of the request has been carried out."""
    try:
        yield
    except Unreachable as error:
        raise Unreachable(f"{what}, but {error}", changed=True) from None


async def admin_connection(fleet: Fleet) -> Any:
    return await wire.connect(
        [fleet.hub], "fleet", fleet.fleet, name="trimtab:admin", ca=fleet.tls.ca if fleet.tls else None
    )
