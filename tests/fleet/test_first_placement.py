"""Newcomers without a wish: clients and topics go where the rule says, and nothing goes to a cordoned broker."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from helpers.fleet import RunningFleet
from helpers.waiting import until
from trimtab.errors import BadInput, BadKnob
from trimtab.fleet.hub.first_brokers import FirstBrokers
from trimtab.fleet.hub.settings import HubSettings
from trimtab.fleet.protocol.admin_verbs import (
    CordonBroker,
    DrainBroker,
    ListCordons,
    ListLinks,
    ListMoves,
    MoveOrder,
    PlacedLink,
    PlaceLinks,
    StartMoves,
    UncordonBroker,
)
from trimtab.fleet.protocol.entries import BrokerEntry, ClientEntry
from trimtab.fleet.protocol.registry import Registry, broker_entry, client_entry
from trimtab.migrate.move import Phase
from trimtab.model.key import Key
from trimtab.observe.report import BrokerReport


def known(**bandwidth):
    registry = Registry()
    for at, (name, each) in enumerate(bandwidth.items(), 1):
        registry.apply(broker_entry(name), BrokerEntry([], bandwidth=each), at)
    return registry


def reported(broker, load):
    return BrokerReport(broker, 0.0, 1.0, in_bytes=load)


def test_the_keeper_goes_by_the_newest_reports():
    first = FirstBrokers(known(b1=None, b2=None), "roomiest")
    for _ in range(20):
        first.reported(reported("b1", 9_000))
        first.reported(reported("b2", 5_000))

    assert first.choose(0.0, ["b1", "b2"], None) == "b2"


def test_strong_brokers_may_carry_more():
    first = FirstBrokers(known(b1=1e6, b2=1e3), "roomiest")
    first.reported(reported("b1", 9_000))
    first.reported(reported("b2", 5_000))

    assert first.choose(0.0, ["b1", "b2"], None) == "b1"


def test_keys_are_counted_as_they_come_and_go():
    registry = known(b1=None, b2=None)
    registry.apply(client_entry("ann"), ClientEntry("b1"), 10)
    registry.apply(client_entry("bob"), ClientEntry("b1"), 11)
    registry.apply(client_entry("bob"), ClientEntry("b2"), 12)
    registry.apply(client_entry("ann"), None, 13)

    assert +registry.count == Counter(b2=1)
    assert FirstBrokers(registry, "roomiest").choose(0.0, ["b1", "b2"], None) == "b1"


def test_a_rule_that_does_not_exist_is_refused():
    with pytest.raises(BadKnob, match="hub: first must be one of roomiest, nearest, round-robin, random, but is 'any'"):
        HubSettings(first="any")


@pytest.fixture(scope="module")
def turns(tmp_path_factory, nats_server):
    running = RunningFleet(tmp_path_factory.mktemp("turns") / "home", hub_settings=HubSettings(first="round-robin"))
    running.start()
    yield running
    running.stop()


def test_without_a_controller_clients_and_topics_take_turns(turns):
    async def scenario():
        homes, hosts = [], []
        for at in range(6):
            async with turns.client(f"turn-{at}", home=None) as client:
                homes.append(client.home)
                hosts.append(await client.create_topic(f"turn.{at}"))
        assert set(Counter(homes + hosts).values()) == {4}
        async with turns.client("wish", home="b2") as client:
            assert client.home == "b2"
            assert await client.create_topic("wish.topic", broker="b3") == "b3"
        async with turns.client("turn-0", home=None) as again:
            assert again.home == homes[0]

    asyncio.run(scenario())


def test_links_end_with_their_topic_so_that_a_broker_can_be_drained(turns):
    async def scenario():
        async with turns.client("linked", home=None) as client:
            await client.create_topic("bus", unit="link")
            await turns.aask(PlaceLinks([PlacedLink("linked", "bus", "b2"), PlacedLink("other", "bus", "b2")]))
            await client.delete_topic("bus")
            assert (await turns.aask(ListLinks())).entries == {}

            ids = (await turns.aask(DrainBroker("b2"))).moves
            await turns.aask(UncordonBroker("b2"))

            async def over():
                return all(Phase(each.phase).over for each in (await turns.aask(ListMoves(ids))).moves)

            await until(over)

    asyncio.run(scenario())


def test_a_drained_broker_gets_nothing_until_it_is_uncordoned(turns):
    async def scenario():
        ids = (await turns.aask(DrainBroker("b1", "new disks"))).moves

        async def over():
            return all(Phase(each.phase).over for each in (await turns.aask(ListMoves(ids))).moves)

        await until(over)
        cordons = (await turns.aask(ListCordons())).entries
        assert (list(cordons), cordons["b1"].reason) == (["b1"], "new disks")
        async with turns.client("late", home=None) as client:
            hosts = {await client.create_topic(f"late.{at}") for at in range(4)}
            assert {client.home, *hosts} == {"b2", "b3"}
            with pytest.raises(BadInput, match=r"broker 'b1' is cordoned.*trimtab uncordon b1"):
                await turns.aask(StartMoves([MoveOrder(Key("client", "", "late"), "b1")]))
            with pytest.raises(BadInput, match="broker 'b1' is cordoned"):
                await client.create_topic("late.wish", broker="b1")
        async with turns.client("wishes", home="b1") as client:
            assert client.home != "b1"
        await turns.aask(UncordonBroker("b1"))
        with pytest.raises(BadInput, match="broker 'b1' is not cordoned"):
            await turns.aask(UncordonBroker("b1"))
        with pytest.raises(BadInput, match="there is no broker 'b9'"):
            await turns.aask(CordonBroker("b9"))
        async with turns.client("later", home=None) as client:
            assert "b1" in {client.home, *[await client.create_topic(f"later.{at}") for at in range(3)]}

    asyncio.run(scenario())
