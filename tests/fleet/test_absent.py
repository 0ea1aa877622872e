"""Clients that do not come back are forgotten, with all they had; one that comes after all is known again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from helpers.fleet import RunningFleet
from helpers.keeper import keeper_of
from helpers.waiting import until_blocking
from trimtab.errors import BadKnob
from trimtab.fleet.hub.absent import Absent
from trimtab.fleet.hub.settings import HubSettings
from trimtab.fleet.protocol import registry as registry_module
from trimtab.fleet.protocol.admin_verbs import DeclareChannels, ListClients
from trimtab.fleet.protocol.entries import Change, ChannelEntry, ClientEntry, Topic
from trimtab.fleet.protocol.hub_verbs import Sync
from trimtab.fleet.protocol.registry import GRAVES, Registry, topic_entry
from trimtab.fleet.protocol.streams import SUBSCRIPTIONS

PATIENCE = HubSettings(forget_s=100.0, forget_unnamed_s=10.0)
NAMED, UNNAMED = ClientEntry("b1", returns=True), ClientEntry("b1", returns=False)


@pytest.mark.parametrize(
    ("client", "since", "overdue"),
    [
        (NAMED, 99.0, False),
        (NAMED, 101.0, True),
        (UNNAMED, 9.0, False),
        (UNNAMED, 11.0, True),
        (ClientEntry("b1"), 99, False),
    ],
)
def test_patience_is_longer_with_those_who_have_a_name(client, since, overdue):
    absent = Absent(PATIENCE)
    absent.there(["c"], 1000.0)

    assert absent.overdue({"c": client}, ["b1"], 1000.0 + since) == ["c"] * overdue


def test_whoever_is_first_looked_for_is_not_late():
    absent = Absent(PATIENCE)

    assert absent.overdue({"c": UNNAMED}, ["b1"], 1000.0) == []
    assert absent.overdue({"c": UNNAMED}, ["b1"], 1009.0) == []
    assert absent.overdue({"c": UNNAMED}, ["b1"], 1011.0) == ["c"]


def test_nobody_is_forgotten_whose_broker_is_away():
    absent = Absent(PATIENCE)
    absent.there(["c"], 0.0)

    assert absent.overdue({"c": UNNAMED}, ["b2"], 1000.0) == []
    assert absent.overdue({"c": UNNAMED}, ["b1"], 1009.0) == []
    assert absent.overdue({"c": UNNAMED}, ["b1"], 1011.0) == ["c"]


def test_patience_below_what_reports_take_is_refused():
    with pytest.raises(BadKnob, match="hub: forget_s must be from five seconds to ten years, but is 1"):
        HubSettings(forget_s=1.0)


def test_tombstones_are_dropped_the_oldest_first():
    registry = Registry()
    for number in range(GRAVES + 5):
        registry.apply(f"client.c{number}", ClientEntry("b1"), 2 * number + 1)
        registry.apply(f"client.c{number}", None, 2 * number + 2)
    registry.apply("client.c0", ClientEntry("b2"), 10_000)  # is back

    graves = registry.graves()
    assert graves == ["client.c1", "client.c2", "client.c3", "client.c4"]
    registry.apply("client.c4", ClientEntry("b2"), 10_001)  # comes back before its tombstone is dropped
    for name in graves:
        registry.bury(name)
    assert registry.graves() == []
    assert registry.at("client.c1") == 0
    assert registry.at("client.c5") == 12
    assert (registry.home("c0"), registry.home("c4")) == ("b2", "b2")


@pytest.mark.parametrize("name", ["topic.t{}", "link.ann.t{}"])
def test_tombstones_of_topics_and_links_are_kept_until_every_agent_has_them(name):
    registry = Registry()
    for number in range(GRAVES + 3):
        registry.apply(name.format(number), None, number + 1)

    assert registry.graves(known=0) == []
    assert registry.graves(known=2) == [name.format(0), name.format(1)]
    assert registry.graves() == [name.format(0), name.format(1), name.format(2)]
    assert Change.of(name.format(0), None, 1) in registry.since(0, most=10_000)


def test_the_keeper_drops_tombstones_that_every_broker_has(monkeypatch):
    monkeypatch.setattr(registry_module, "GRAVES", 1)

    async def scenario():
        keeper = keeper_of("b1", "b2")
        for topic in ("one", "two", "three"):
            await keeper.write(topic_entry(topic), Topic(topic, "b1"))
            await keeper.write(topic_entry(topic), None)
        await keeper._sync(Sync("b1", keeper.registry.revision))
        await keeper._drop_tombstones()
        assert keeper.registry.at(topic_entry("one"))  # b2 does not have it yet

        await keeper._sync(Sync("b2", keeper.registry.at(topic_entry("one"))))
        await keeper._drop_tombstones()
        assert [bool(keeper.registry.at(topic_entry(topic))) for topic in ("one", "two", "three")] == [
            False,
            True,
            True,
        ]
        assert keeper.connection.purged == [("KV_registry", "$KV.registry.topic.one")]

    asyncio.run(scenario())


CLIENT = """
import asyncio, sys, trimtab

async def main(home, name):
    async with trimtab.connect(home, name=name or None, home="b1") as client:
        got = await client.subscribe_channel("fires", kind="forest")
        print(client.name, got.id, flush=True)
        async for result in got:
            print(result.execution, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def forgetful(tmp_path, nats_server):
    running = RunningFleet(tmp_path / "home", brokers=("b1",), hub_settings=HubSettings(6.0, 5.0))
    try:
        running.start()
        yield running
    finally:
        running.stop()


def test_who_dies_is_forgotten_and_who_only_slept_is_served_again(forgetful):
    def start(name):
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(forgetful.home), name], stdout=subprocess.PIPE, text=True
        )
        return process, *process.stdout.readline().split()

    def known():
        return set(forgetful.ask(ListClients()).entries)

    def subscribers():
        async def look():
            jetstream = (await forgetful.launch.admin()).jetstream()
            info = await jetstream.stream_info(SUBSCRIPTIONS, subjects_filter="sub.fires.>")
            positions = await jetstream.stream_info("KV_positions", subjects_filter="$KV.positions.>")
            ends = [{subject.split(".")[-1] for subject in each.state.subjects or {}} for each in (info, positions)]
            return ends[0] if ends[0] == ends[1] else None  # one is written after the other

        return forgetful.do(look())

    def publish(identity, execution):
        async def store():
            data = {"execution": execution, "at": "2026-01-01T00:00:00Z", "rows": []}
            jetstream = (await forgetful.launch.admin()).jetstream()
            await jetstream.publish(f"res.fires.{identity}", json.dumps(data).encode())

        forgetful.do(store())

    channel = ChannelEntry("city", {"kind": "string"}, period_s=0.0, retention_s=60.0)
    forgetful.ask(DeclareChannels("city", {"fires": channel}))
    started = [start("wakes"), start("sleeps"), start("")]
    try:
        (awake, _, identity), (asleep, *_), (dies, unnamed, _) = started
        until_blocking(lambda: known() == subscribers() == {"wakes", "sleeps", unnamed})
        publish(identity, 1)
        dies.kill()
        os.kill(asleep.pid, signal.SIGSTOP)

        until_blocking(lambda: known() == {"wakes"}, 40.0)
        until_blocking(lambda: subscribers() == {"wakes"}, 10.0)
        publish(identity, 2)
        os.kill(asleep.pid, signal.SIGCONT)
        until_blocking(lambda: known() == subscribers() == {"wakes", "sleeps"}, 40.0)
        publish(identity, 3)

        for process in (awake, asleep):
            assert [process.stdout.readline().strip() for _ in range(3)] == ["1", "2", "3"]
    finally:
        for process, *_ in started:
            process.kill()
            process.communicate()
