"""A client's position in the network, without a fleet."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace

import pytest

from trimtab.errors import BadInput, UnknownName, Unreachable
from trimtab.fleet.broker.positions import ClientPositions
from trimtab.fleet.protocol.agent_verbs import BrokerCoordinates
from trimtab.fleet.sdk import arguments
from trimtab.fleet.sdk.position import Position
from trimtab.observe.coordinates.coordinate import Coordinate
from trimtab.observe.report import MOST_MEASURED, ClientPosition


class Wires:
    """Brokers at known distances; the client is connected to some of them."""

    def __init__(self, connected, others=()):
        self.addresses = [*connected, *others]
        self.away = set()
        self._times = dict(connected) | dict(others)
        self._open = {broker: self._wire(broker) for broker in connected}

    def _wire(self, broker):
        async def rtt_ms():
            return self._times[broker]

        return SimpleNamespace(broker=broker, rtt_ms=rtt_ms, nats=SimpleNamespace(is_connected=True))

    def get(self, broker):
        return self._open.get(broker)

    async def try_rtt_ms(self, broker):
        if broker in self.away:
            raise OSError
        return self._times[broker]

    def __iter__(self):
        return iter(self._open.values())


def test_the_gateway_is_the_nearest_broker_of_those_it_is_connected_to_or_has_tried():
    async def scenario():
        position = Position("ann", Wires({"b1": 9.0, "b2": 7.0}, {"b3": 2.0}), 30.0)
        assert position.now is None
        await position.probe()
        assert position.now == ClientPosition("b2", 7.0, {"b2": 7.0, "b1": 9.0})
        await position.explore()
        assert position.now.gateway == "b3"

    asyncio.run(scenario())


def test_brokers_are_tried_in_turns_and_one_that_is_away_does_no_harm():
    async def scenario():
        wires = Wires({"b1": 9.0}, {"b2": 3.0, "b3": 4.0, "b4": 5.0})
        wires.away = {"b4"}
        position = Position("ann", wires, 30.0)
        for _ in range(9):
            await position.explore()
            await asyncio.sleep(0)
        assert set(position.now.rtts) <= {"b2", "b3"}

    asyncio.run(scenario())


def test_another_broker_and_an_impossible_time_are_refused_and_counted():
    async def scenario():
        position = Position("ann", Wires({"b1": None, "b2": -1.0, "b3": 3.0}), 30.0)
        await position.probe()
        assert (position.refused, position.now) == (2, ClientPosition("b3", 3.0, {"b3": 3.0}))

    asyncio.run(scenario())


def test_a_report_has_a_bounded_number_of_brokers():
    async def scenario():
        position = Position("ann", Wires({}, {f"b{n}": 1.0 + n for n in range(40)}), 30.0)
        for _ in range(40):
            await position.explore()
        assert list(position.now.rtts) == [f"b{n}" for n in range(MOST_MEASURED)]

    asyncio.run(scenario())


def test_a_position_is_reported_at_once_when_the_gateway_changes_and_then_every_few_seconds():
    async def scenario():
        position = Position("ann", Wires({"b1": 9.0}, {"b2": 7.0}), 30.0)
        await position.probe()
        assert position.due("b1") == position.now
        position.settle("b1")
        assert position.due("b1") is None
        assert position.due("b2") == position.now
        position.attach("b2", 4.0)
        assert position.due("b1") == ClientPosition("b2", 4.0)
        await position.probe()
        assert position.now == ClientPosition("b2", 4.0)
        position.detach()
        assert position.now is None  # what was measured elsewhere does not count

    asyncio.run(scenario())


def test_a_change_while_a_report_is_under_way_is_reported_next():
    async def scenario():
        position = Position("ann", Wires({"b1": 9.0}, {"b2": 7.0, "b3": 8.0}), 30.0)
        position.attach("b2", 1.0)
        assert position.due("b1") == ClientPosition("b2", 1.0)
        position.attach("b3", 1.0)
        position.settle("b1")  # the answer to the report of b2
        assert position.due("b1") == ClientPosition("b3", 1.0)

    asyncio.run(scenario())


def test_times_that_hardly_change_are_no_move_of_the_client():
    async def scenario():
        positions = ClientPositions()
        for access_ms in (10.0, 11.9, 8.1):
            positions.update("ann", ClientPosition("b1", access_ms, {"b1": access_ms}), ["b1", "b2"])
        assert positions.take_moved() == {"ann"}
        positions.update("ann", ClientPosition("b1", 8.2, {"b1": 8.2}), ["b1", "b2"])
        assert positions.take_moved() == set()
        positions.update("ann", ClientPosition("b1", 12.0, {"b1": 12.0}), ["b1", "b2"])
        positions.update("bob", ClientPosition("b2", 1.0), ["b1", "b2"])
        assert positions.take_moved() == {"ann", "bob"}

    asyncio.run(scenario())


def test_a_time_that_was_not_measured_is_estimated_by_coordinates():
    async def scenario():
        position = Position("ann", Wires({"b1": 9.0}, {"b2": 7.0, "b3": 1.0}), 30.0)
        known = BrokerCoordinates({"b1": Coordinate((0.0, 0.0), 1.0), "b2": Coordinate((3.0, 4.0), 2.0)})

        async def ask(_):
            return known

        base = SimpleNamespace(ask=ask)
        with pytest.raises(Unreachable, match="has not measured"):
            await position.rtt("b2", base)
        await position.probe()
        assert await position.rtt("b1", base) == (9.0, True)
        assert await position.rtt("b2", base) == (5.0 + 1.0 + 9.0 + 2.0, False)
        with pytest.raises(Unreachable, match="broker 'b3' has no network coordinate yet"):
            await position.rtt("b3", base)
        with pytest.raises(UnknownName, match="no broker 'b9'"):
            await position.rtt("b9", base)
        with pytest.raises(UnknownName, match="no broker 'b9'"):
            position.attach("b9", 1.0)

    asyncio.run(scenario())


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, 20_000.0, "5", None, True])
def test_an_access_time_is_a_number_of_milliseconds(wrong):
    with pytest.raises(BadInput, match="access_ms is the round-trip time to the gateway, from 0 to 10,000 ms"):
        arguments.access_ms(wrong)


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, "5", None, True])
def test_an_interval_of_exploration_is_a_number_of_seconds(wrong):
    with pytest.raises(BadInput, match="explore_s is a number of seconds, or 0 for never"):
        arguments.interval(wrong)


def test_an_agent_keeps_what_can_be_right_of_a_reported_position():
    async def scenario():
        positions = ClientPositions()
        positions.update("ann", ClientPosition("b1", 2.0, {"b1": 2.0, "b7": 3.0, "b2": math.inf}), ["b1", "b2"])
        positions.update("bob", ClientPosition("b7", 2.0), ["b1", "b2"])
        positions.update("cat", ClientPosition("b1", math.nan), ["b1", "b2"])
        positions.update("dan", ClientPosition("b2", 0.0), ["b1", "b2"])
        assert positions.refused == 3
        assert positions.of(["ann", "bob", "cat", "dan"]) == {
            "ann": ClientPosition("b1", 2.0, {"b1": 2.0}), "dan": ClientPosition("b2", 0.0),
        }  # fmt: skip

    asyncio.run(scenario())
