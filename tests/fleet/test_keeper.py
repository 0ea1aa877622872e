"""The keeper's decisions, without a server."""

from __future__ import annotations

import asyncio

import pytest
from nats.js.errors import NotFoundError

from helpers.keeper import Connection, keeper_of
from trimtab.errors import BadInput, BadKnob, Moving, UnknownName, Unreachable
from trimtab.fleet.hub import keeper as keeper_module
from trimtab.fleet.hub.keeper import Keeper
from trimtab.fleet.operator.tables import topic_rows
from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.protocol.admin_verbs import ForgetBroker, ListBrokers, PlacedLink, PlaceLinks, SetTopic
from trimtab.fleet.protocol.entries import LinkEntry, Topic, read_entry, write_entry
from trimtab.fleet.protocol.hub_verbs import CreateTopic, ReportCoordinate
from trimtab.fleet.protocol.registry import entry_name, topic_entry
from trimtab.migrate.move import Refused, Succeeded
from trimtab.model.key import Key
from trimtab.observe.coordinates.coordinate import Coordinate
from trimtab.observe.report import BrokerReport, TopicReport


class Raw:
    def __init__(self, broker, **report):
        self.subject = subjects.telemetry(broker)
        self.data = coding.to_json(BrokerReport(broker, **report))


def test_only_brokers_that_are_alive_are_reported():
    """The clients of a dead broker are at other brokers, which report them too."""

    async def scenario():
        keeper = keeper_of("b1", "b2", away=("b3",))
        for broker in ("b1", "b2", "b3", "forgotten"):
            counted = {"cam": TopicReport(publishers=1)}
            await keeper._report(Raw(broker, at=1.0, period_s=1.0, topics=counted))
        listing = await keeper._operators._brokers(ListBrokers(reports=True))
        assert sorted(listing.reports) == ["b1", "b2"]
        [row] = topic_rows(
            type(listing)({"cam": Topic("cam", "b1")}, listing.alive, listing.heard), listing.reports
        )  # fmt: skip
        assert row.publishers == 2

    asyncio.run(scenario())


class Starting(Keeper):
    """A keeper whose state cannot be loaded the first few times."""

    def __init__(self, failures, *, flush=None):
        super().__init__(Connection())
        self.failures = failures
        self.connection.ping_error = flush

    async def _load(self):
        if self.failures:
            raise self.failures.pop()


def test_a_keeper_whose_state_cannot_be_loaded_at_once_tries_again_and_subscribes_once(monkeypatch):
    monkeypatch.setattr(keeper_module, "ATTEMPT_S", 0.0)

    async def scenario():
        keeper = Starting([NotFoundError(), TimeoutError()])
        await keeper.start()
        assert len(keeper.connection.subscribed) == len({*keeper.connection.subscribed}) > 10

    asyncio.run(scenario())


def test_a_keeper_whose_state_cannot_be_loaded_at_all_ends(monkeypatch):
    """The supervisor starts another one."""
    monkeypatch.setattr(keeper_module, "ATTEMPT_S", 0.0)

    async def scenario():
        keeper = Starting([TimeoutError("no answer")] * 50)
        with pytest.raises(TimeoutError, match="no answer"):
            await keeper.start()
        assert keeper.connection.subscribed == []

    asyncio.run(scenario())


def test_a_keeper_never_subscribes_a_second_time(monkeypatch):
    """Every request would be carried out twice."""
    monkeypatch.setattr(keeper_module, "ATTEMPT_S", 0.0)

    async def scenario():
        keeper = Starting([], flush=TimeoutError("the server is busy"))
        with pytest.raises(TimeoutError, match="the server is busy"):
            await keeper.start()
        assert len(keeper.connection.subscribed) == len({*keeper.connection.subscribed})

    asyncio.run(scenario())


CAM = topic_entry("cam")


def at(broker):
    return Topic("cam", broker)


async def written(keeper, *outcomes):
    """Write ``cam``, then write it again while calls of the store have these outcomes; returns the error."""
    await keeper.write(CAM, at("b1"))
    keeper._store.failures = list(outcomes)
    with pytest.raises(Unreachable) as caught:
        await keeper.write(CAM, at("b2"))
    return caught.value


@pytest.mark.parametrize("done", [True, False])
@pytest.mark.parametrize("reload", [TimeoutError("no reply"), None])
def test_an_entry_can_be_written_again_after_a_write_without_a_reply(done, reload):
    async def scenario():
        keeper = keeper_of("b1", "b2", "b3")
        error = await written(keeper, ("update", TimeoutError("no reply"), done), ("get", reload, False))
        assert error.changed

        seen = []

        def moved(entry):
            seen.append(entry.broker)
            return entry.placed_at("b3")

        await keeper.write(CAM, moved)
        assert seen[-1] == ("b2" if done else "b1")  # the change is made to the entry that is stored
        assert keeper.registry.topic("cam").broker == "b3"
        assert read_entry(CAM, keeper._store.entries[CAM].value).broker == "b3"

    asyncio.run(scenario())


def test_a_second_keepers_change_is_told_and_then_taken_over():
    async def scenario():
        keeper = keeper_of("b1", "b2", "b3")
        await keeper.write(CAM, at("b1"))
        await keeper._store.put(CAM, write_entry(at("b2")))

        with pytest.raises(BadInput, match="changed by another process"):
            await keeper.write(CAM, at("b3"))
        assert keeper.registry.topic("cam").broker == "b2"
        await keeper.write(CAM, at("b3"))
        assert keeper.registry.topic("cam").broker == "b3"

    asyncio.run(scenario())


def test_an_entry_whose_tombstone_was_purged_without_a_reply_can_be_written_again():
    async def scenario():
        keeper = keeper_of("b1", "b2", "b3")
        await keeper.write(CAM, at("b1"))
        await keeper.write(CAM, None)
        await keeper._store.purge(CAM)

        await keeper.write(CAM, at("b2"))
        assert keeper.registry.topic("cam").broker == "b2"

    asyncio.run(scenario())


def test_a_write_has_changed_nothing_if_the_entry_cannot_even_be_read():
    async def scenario():
        keeper = keeper_of("b1", "b2", "b3")
        await written(keeper, ("update", TimeoutError(), True), ("get", TimeoutError(), False))

        keeper._store.failures = [("update", None, False), ("get", TimeoutError(), False)]
        with pytest.raises(Unreachable) as caught:
            await keeper.write(CAM, at("b3"))
        assert not caught.value.changed

    asyncio.run(scenario())


BUS = Key("link", "bus", "ann")


async def with_link():
    keeper = keeper_of("b1", "b2")
    await keeper.write(topic_entry("bus"), Topic("bus", "b1", "link"))
    await keeper._operators._place_links(PlaceLinks([PlacedLink("ann", "bus", "b1")]))
    return keeper


@pytest.mark.parametrize("broker", ["", "b2"])
def test_a_link_that_is_moving_is_not_placed(broker):
    """The move would write its target over the placement."""

    async def scenario():
        keeper = await with_link()
        move = keeper.mover.plan(BUS, "b2")
        placed = PlaceLinks([PlacedLink("bob", "bus", "b1"), PlacedLink("ann", "bus", broker)])

        with pytest.raises(Moving, match="the link of client 'ann' to topic 'bus' is moving"):
            await keeper._operators._place_links(placed)
        assert list(keeper.registry.links()) == ["ann.bus"]  # none of the request is placed

        keeper.mover.forget([move])
        await keeper._operators._place_links(placed)
        assert keeper.registry.broker_of(BUS) == broker

    asyncio.run(scenario())


def test_a_move_does_not_admit_a_link_that_was_refused_meanwhile():
    async def scenario():
        keeper = await with_link()
        move = keeper.mover.plan(BUS, "b2")
        await keeper.write(entry_name(BUS), LinkEntry(""))

        assert isinstance(await keeper.mover._switch(move, "b2"), Refused)
        assert await keeper.mover._switch(move, "b1") == Succeeded()
        assert keeper.registry.broker_of(BUS) == ""

    asyncio.run(scenario())


def test_a_broker_with_keys_is_not_forgotten():
    async def scenario():
        keeper = await with_link()
        with pytest.raises(BadInput, match="broker 'b1' cannot be forgotten: it has 1 link still, such as 'bus"):
            await keeper._operators._forget(ForgetBroker("b1"))
        assert sorted(keeper.registry.brokers()) == ["b1", "b2"]

        await keeper._operators._place_links(PlaceLinks([PlacedLink("ann", "bus", "")]))
        await keeper._operators._forget(ForgetBroker("b1"))
        assert sorted(keeper.registry.brokers()) == ["b2"]

    asyncio.run(scenario())


def test_a_coordinate_is_stored_if_it_can_be_right_and_forgotten_with_its_broker():
    async def scenario():
        keeper = keeper_of("b1", "b2")
        report, here = keeper._operators._coordinate, Coordinate((1.0, 2.0), 0.5)
        await report(ReportCoordinate("b1", here))
        assert keeper.registry.coordinates() == {"b1": here}
        revision = keeper.registry.revision
        await report(ReportCoordinate("b1", here))
        assert keeper.registry.revision == revision
        for wrong in (Coordinate((1e9, 0.0), 0.5), Coordinate((1.0,), -1.0), Coordinate((1.0,) * 99, 1.0)):
            with pytest.raises(BadInput, match="broker 'b1' reports a coordinate that cannot be right"):
                await report(ReportCoordinate("b1", wrong))
        with pytest.raises(UnknownName, match="no broker 'b7'"):
            await report(ReportCoordinate("b7", here))
        assert (await keeper._operators._brokers(ListBrokers())).coordinates == {"b1": here}
        await keeper._operators._forget(ForgetBroker("b1"))
        assert keeper.registry.coordinates() == {}

    asyncio.run(scenario())


def test_a_bound_is_changed_without_anything_else_and_a_bad_one_is_refused():
    async def scenario():
        keeper = keeper_of("b1")
        await keeper.write(topic_entry("cam"), Topic("cam", "b1", spool=5))
        await keeper._operators._set_topic(SetTopic("cam", 200.0))
        bounded = keeper.registry.topic("cam")
        assert bounded == Topic("cam", "b1", spool=5, latency_ms=200.0)
        again = await keeper._creation.create(CreateTopic(Topic("cam", "", spool=5), None))
        assert (again.created, keeper.registry.topic("cam")) == (False, bounded)
        with pytest.raises(BadKnob, match="latency_ms"):
            await keeper._operators._set_topic(SetTopic("cam", -1.0))
        with pytest.raises(UnknownName, match="cams"):
            await keeper._operators._set_topic(SetTopic("cams", 1.0))
        await keeper._operators._set_topic(SetTopic("cam", None))
        assert keeper.registry.topic("cam").latency_ms is None

    asyncio.run(scenario())
