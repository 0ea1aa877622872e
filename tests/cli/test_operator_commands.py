"""Cordons, and placements carried out, on a live fleet without a controller."""

from __future__ import annotations

import asyncio
import re

import pytest

from trimtab.cli import topics as topics_command
from trimtab.cli.topic import bound_ms
from trimtab.fleet.operator.tables import link_rows, topic_rows
from trimtab.fleet.protocol.admin_verbs import Entries, ListClients, ListCordons, ListLinks, ListTopics
from trimtab.fleet.protocol.entries import Topic
from trimtab.model.folder import write_workload
from trimtab.model.ids import Ids
from trimtab.model.key import Key
from trimtab.model.placement_file import write_keys
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload


def refused(done) -> str:
    assert done.code == 2, done.out
    assert "Traceback" not in done.err
    assert done.err.count("\n") == 1
    return done.err


def test_a_broker_is_cordoned_and_used_again(fleet, trimtab, open_brokers):
    said = trimtab("cordon", "b3", "--reason", "new disks", "--home", fleet.home)

    assert (said.code, said.out) == (0, "b3 is cordoned: nothing is placed there until trimtab uncordon b3\n")
    listed = trimtab("brokers", "--home", fleet.home)
    assert re.search(r"│ b3\s*│ up, cordoned │", listed.out)
    assert "b3 is cordoned: new disks" in listed.out
    rows = trimtab("brokers", "--home", fleet.home, "--json").json
    assert {row["broker"]: row["cordoned"] for row in rows} == {"b1": None, "b2": None, "b3": "new disks"}

    again = trimtab("uncordon", "b3", "--home", fleet.home)

    assert (again.code, "b3 is used again" in again.out) == (0, True)
    assert "cordoned" not in trimtab("brokers", "--home", fleet.home).out
    assert trimtab("cordon", "b3", "--home", fleet.home, "--json").json == {"broker": "b3", "cordoned": True}
    assert trimtab("uncordon", "b3", "--home", fleet.home, "--json").json == {"broker": "b3", "cordoned": False}
    assert "broker 'b3' is not cordoned" in refused(trimtab("uncordon", "b3", "--home", fleet.home))
    for command in ("cordon", "uncordon"):
        assert "there is no broker 'b9'" in refused(trimtab(command, "b9", "--home", fleet.home))


def test_drain_says_that_the_broker_is_cordoned(fleet, trimtab, open_brokers):
    done = trimtab("drain", "b3", "--reason", "new disks", "--home", fleet.home)

    assert "b3 is cordoned: nothing is placed there until trimtab uncordon b3" in done.out
    assert fleet.ask(ListCordons()).entries["b3"].reason == "new disks"


def test_a_topic_that_waits_for_its_broker_says_so():
    [row] = topic_rows(Entries({"log": Topic("log", "b7", persistent=True)}, ["b1"], []), {})

    assert topics_command.TOPIC_COLUMNS["broker"](row) == "waits for b7"


@pytest.mark.parametrize("command", ["status", "pause", "resume", "rebalance", "stop", "rollback"])
def test_no_controller_is_a_sentence(fleet, trimtab, command):
    assert "no controller answers" in refused(trimtab(command, "--home", fleet.home))


def test_nobody_who_starts_brokers_is_a_sentence(trimtab, fleet):
    assert "trimtab broker --join" in refused(trimtab("add-broker", "b9", "--home", fleet.home))


def test_no_decision(fleet, trimtab):
    said = refused(trimtab("why", "taxi.gps", "taxi-7", "--home", fleet.home))

    assert "there is no decision 'taxi.gps taxi-7'" in said
    assert trimtab("decisions", "--home", fleet.home).code == 0


class Folder:
    """A workload folder and a placement of it."""

    def __init__(self, path, topics, clients):
        self.path, self.placement = path, path / "placement.csv"
        workload = Workload(
            Topics(Ids(topics), [1.0] * len(topics)), Clients(Ids(clients)), Brokers(Ids(["b1", "b2", "b3", "b4"])),
            Links.subscriptions([0], [0]),
        )  # fmt: skip
        write_workload(workload, path)

    def place(self, keys):
        write_keys(keys, self.placement)
        return ("apply", self.path, self.placement)


@pytest.fixture
def folder(fleet, topic, tmp_path, open_brokers):
    """A whole topic and two clients at b1; a topic with a link that is carried and one that is not."""
    names = [f"{topic}.whole", f"{topic}.linked"]
    clients = [f"{topic[:-2]}-{name}" for name in ("ann", "bob")]

    async def create():
        async with fleet.client(clients[0]) as ann, fleet.client(clients[1]):
            await ann.create_topic(names[0], broker="b1")
            await ann.create_topic(names[1], broker="b1", unit="link")

    asyncio.run(create())
    made = Folder(tmp_path / "folder", names, clients)
    made.whole, made.home = Key("topic", names[0], ""), Key("client", "", clients[0])
    made.ann, made.bob = (Key("link", names[1], client) for client in clients)
    return made


def brokers(fleet, folder):
    """Of the four keys: of the topic, of the client, of the two links; None if the registry has no such link."""
    links = {(row.client, row.topic): row.broker for row in link_rows(fleet.ask(ListLinks()).entries)}
    return (
        fleet.ask(ListTopics()).entries[folder.whole.topic].broker,
        fleet.ask(ListClients()).entries[folder.home.client].home,
        *(links.get((key.client, key.topic)) for key in (folder.ann, folder.bob)),
    )  # fmt: skip


def test_a_placement_is_shown_then_carried_out_without_a_controller(fleet, trimtab, folder):
    words = folder.place({folder.whole: "b2", folder.home: "b3", folder.ann: "b2", folder.bob: ""})

    dry = trimtab(*words, "--home", fleet.home)

    assert dry.code == 0
    assert "placement.csv, not carried out: 1 topic, 1 client and 2 links" in dry.out
    assert "1 link admitted; 1 link refused" in dry.out
    assert "nothing has changed; carry it out with --yes" in dry.out
    assert brokers(fleet, folder) == ("b1", "b1", None, None)

    done = trimtab(*words, "--yes", "--home", fleet.home)

    assert done.code == 0
    assert "placement.csv, carried out: 1 topic, 1 client and 2 links" in done.out
    assert "no controller answers" in done.out
    assert brokers(fleet, folder) == ("b2", "b3", "b2", "")

    again = trimtab(*words, "--home", fleet.home)
    assert "the fleet is as the file says" in again.out

    move = ("move", "link", folder.bob.client, folder.bob.topic, "--to", "b1", "--home", fleet.home)
    assert "is admitted at b1" in trimtab(*move).out
    assert brokers(fleet, folder)[3] == "b1"
    trimtab(*words, "--yes", "--home", fleet.home)  # refused again

    words = folder.place({folder.whole: "b1", folder.home: "", folder.ann: "b1", folder.bob: "b3"})
    answer = trimtab(*words, "--yes", "--json", "--home", fleet.home).json
    assert (answer["applied"], answer["by"], answer["plan"], answer["stay"]) == (True, "keeper", None, 1)
    assert answer["steps"] == [["topic", folder.whole.topic, "", "b2", "b1"], [*folder.ann, "b2", "b1"]]
    assert answer["outcome"] == ["moved", "moved"]
    assert answer["admitted"] == [{"client": folder.bob.client, "topic": folder.bob.topic, "broker": "b3"}]
    assert brokers(fleet, folder) == ("b1", "b3", "b1", "b3")


@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_a_placement_that_does_not_fit_is_refused_and_changes_nothing(fleet, trimtab, folder, yes):
    before = brokers(fleet, folder)
    by_client = Key("client", "", folder.home.client)

    def apply(keys):
        return refused(trimtab(*folder.place({by_client: "b2"} | keys), *yes, "--home", fleet.home))

    assert "is placed by topic" in apply({Key("link", folder.whole.topic, folder.home.client): "b2"})
    assert "there is no broker 'b4'" in apply({folder.whole: "b4"})
    other = Folder(folder.path, [folder.whole.topic, "elsewhere"], [folder.home.client, "nobody"])
    assert "this fleet has no topic 'elsewhere'" in refused(
        trimtab(*other.place({by_client: "b2", Key("topic", "elsewhere", ""): "b1"}), *yes, "--home", fleet.home)
    )
    assert "this fleet has no client 'nobody'" in refused(
        trimtab(*other.place({by_client: "b2", Key("client", "", "nobody"): "b1"}), *yes, "--home", fleet.home)
    )
    assert brokers(fleet, folder) == before


def test_apply_to_no_fleet_and_from_no_file(trimtab, folder, tmp_path):
    words = folder.place({folder.whole: "b2"})

    assert "there is no" in refused(trimtab(*words, "--home", tmp_path / "nothing"))
    assert "nope.csv" in refused(trimtab("apply", folder.path, tmp_path / "nope.csv"))


def test_a_fleet_without_a_measurement_is_no_workload(fleet, trimtab, tmp_path):
    out = tmp_path / "live"

    assert "there is no measurement of the fleet yet" in refused(
        trimtab("workload", "--live", "--out", out, "--home", fleet.home)
    )
    assert not out.exists()
    for words in ((), ("--live", "--from", tmp_path)):
        assert "needs either --from HISTORY or --live" in refused(trimtab("workload", "--out", out, *words))
    assert "--since and --until" in refused(trimtab("workload", "--live", "--since", 3, "--out", out))


@pytest.mark.parametrize(("text", "ms"), [("200ms", 200.0), ("1.5 s", 1500.0), (".5MS", 0.5), ("none", None)])
def test_a_bound_is_a_duration_or_none(text, ms):
    assert bound_ms(text) == ms


@pytest.mark.parametrize("text", ["", "200", "0ms", "-5ms", "soon", "1m", "nan ms", "1e3ms", "5ms5"])
def test_a_bound_that_is_no_duration_is_refused(trimtab, text):
    assert "such as 200ms or 1.5s" in refused(trimtab("topic", "set", "cam", "--latency", text, "--home", "nowhere"))


def test_a_bound_is_set_shown_and_removed(fleet, trimtab, topic):
    async def create():
        async with fleet.client("bounded") as client:
            await client.create_topic(topic, latency_ms=1500)

    asyncio.run(create())

    def listed():
        rows = trimtab("topics", "--home", fleet.home, "--json").json
        return next(row["latency_ms"] for row in rows if row["topic"] == topic)

    assert listed() == 1500.0
    done = trimtab("topic", "set", topic, "--latency", "200ms", "--home", fleet.home)
    assert (done.code, done.out.splitlines()[0]) == (0, f"topic {topic}: p90 at most 200 ms")
    assert "it has no processor" in done.out
    assert listed() == 200.0
    assert re.search(rf"{topic}.*│ +200 ms │", trimtab("topics", "--home", fleet.home).out)
    asyncio.run(create())  # the application starts again, with the bound that it was written with
    assert listed() == 200.0
    gone = trimtab("topic", "set", topic, "--latency", "none", "--home", fleet.home, "--json")
    assert gone.json == {"topic": topic, "latency_ms": None, "predicted": False}
    assert listed() is None
    assert "there is no topic" in refused(trimtab("topic", "set", "absent.x", "--latency", "1s", "--home", fleet.home))
