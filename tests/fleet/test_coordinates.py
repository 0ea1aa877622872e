"""Network coordinates on a real fleet of four sites with emulated distances."""

from __future__ import annotations

import asyncio
import os
import signal
from itertools import combinations

import pytest

from helpers.sites import Sites
from helpers.waiting import always, until
from trimtab.fleet.broker.network import NetworkSettings
from trimtab.fleet.broker.probing import Probing
from trimtab.fleet.operator import Operator
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.agent_verbs import GetPeerRtt, GetPosition, Probe, Probed
from trimtab.observe.coordinates.coordinate import Coordinate

RTT_MS = {
    ("b1", "b2"): 30.0, ("b1", "b3"): 60.0, ("b2", "b3"): 76.0, ("b1", "b4"): 50.0, ("b2", "b4"): 70.0,
    ("b3", "b4"): 100.0,
}  # fmt: skip
LIMIT_S = 60.0  # a busy machine adds to every round trip


@pytest.fixture(scope="module")
def sites(nats_server):
    running = Sites(RTT_MS)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def within(value, target, share):
    return value is not None and abs(value - target) <= share * target + 2.0


async def known(operator, one, other, target):
    """Whether the estimate is right, and the measured time, if there is one."""
    found = await operator.rtt(one, other)
    measured = found.measured_ms is None or within(found.measured_ms, target, 0.1)
    return found if within(found.estimated_ms, target, 0.2) and measured else None


def over(sites, scenario):
    async def run():
        async with Operator.open(sites.fleet.home) as operator:
            await scenario(operator)

    asyncio.run(run())


def test_round_trip_times_between_brokers_are_known_after_some_seconds(sites):
    async def scenario(operator):
        for one, other in combinations(sites.fleet.names, 2):
            found = await until(lambda: known(operator, one, other, RTT_MS[one, other]), LIMIT_S)  # noqa: B023
            assert found.measured_ms is not None
            assert found.error == pytest.approx(found.estimated_ms / found.measured_ms - 1.0)
        await until(lambda: counted(operator), LIMIT_S)

    async def counted(operator):
        return all(row.probes.answered > 0 and row.coordinate.usable for row in await operator.brokers())

    over(sites, scenario)


def test_a_client_measures_the_brokers_it_uses_and_finds_others(sites):
    async def scenario(operator):
        client = sites.fleet.client("ann", "b1", explore_s=0.2)
        async with client:
            await until(lambda: known(operator, "ann", "b3", 60.0), LIMIT_S)
            found = await until(lambda: measured(operator, "ann", "b4", 50.0), LIMIT_S)
            assert (found.nodes[0].gateway, found.nodes[0].kind) == ("b1", "client")
            assert (await client.rtt("b4")).measured

    async def measured(operator, one, other, target):
        found = await operator.rtt(one, other)
        return found if within(found.measured_ms, target, 0.1) else None

    over(sites, scenario)


def test_a_mobile_client_is_where_its_gateway_is(sites):
    async def scenario(operator):
        async with sites.fleet.client("bob", "b1", gateway="b4", access_ms=3.0) as client:
            await until(lambda: known(operator, "bob", "b3", 103.0), LIMIT_S)
            assert (await operator.rtt("b4", "bob")).measured_ms == 3.0

            await client.attach("b2", access_ms=5.0)  # the next line needs no waiting

            assert (await operator.rtt("bob", "b2")).measured_ms == 5.0
            await until(lambda: known(operator, "b3", "bob", 81.0), LIMIT_S)
            async with sites.fleet.client("eve", "b4", gateway="b3", access_ms=1.0):
                await until(lambda: known(operator, "eve", "bob", 82.0), LIMIT_S)
            assert not (await client.rtt("b1")).measured
            await client.attach(None)
            await until(lambda: at(operator, "b1"))

    async def at(operator, gateway):
        position = (await operator.ask(GetPosition("bob"), broker="b1")).position
        return position is not None and position.gateway == gateway

    over(sites, scenario)


def test_a_topic_far_from_its_clients_names_the_broker_that_is_near(sites, topic):
    async def scenario(operator):
        async with sites.fleet.client("fay", "b3") as one, sites.fleet.client("gus", "b3") as other:
            await one.create_topic(topic, broker="b1", latency_ms=200.0)
            await one.publish(topic, b"hello")
            await other.subscribe(topic, lambda _: None)
            await until(lambda: known(operator, "b1", "b3", 60.0), LIMIT_S)
            await until(lambda: summarised(operator), LIMIT_S)

    async def summarised(operator):
        """30 ms to the topic's broker, and 30 ms back."""
        row = next(row for row in await operator.topics() if row.topic == topic)
        return row.best_broker == "b3" and within(row.network_ms, 60.0, 0.1) and within(row.best_ms, 0.0, 0.1)

    over(sites, scenario)


def test_an_agent_that_is_started_again_goes_on_with_its_coordinate(sites):
    async def scenario(operator):
        await until(lambda: known(operator, "b2", "b3", 76.0), LIMIT_S)
        agent = sites.fleet.launch.supervisor.find("b2-agent")
        before = agent.restarts

        os.kill(agent.pid, signal.SIGKILL)

        await until(lambda: agent.restarts > before)
        rows = await until(lambda: answering(operator), LIMIT_S)
        fresh = (await operator.ask(Probe(), broker="b2")).coordinate
        assert fresh.plain_rtt_ms(rows["b3"].coordinate) > 40.0  # at the origin, without the stored coordinate
        await until(lambda: known(operator, "b2", "b3", 76.0), LIMIT_S)

    async def answering(operator):
        rows = {row.broker: row for row in await operator.brokers()}
        return rows if rows["b2"].alive and 0 < rows["b2"].probes.answered < 40 else None

    over(sites, scenario)


def test_without_the_hub_agents_go_on_probing_and_clients_know_the_coordinates(sites):
    async def scenario(operator):
        await until(lambda: known(operator, "b1", "b4", 50.0), LIMIT_S)
        hub = sites.fleet.launch.supervisor.find("hub")
        async with sites.fleet.client("cat", "b1", explore_s=0) as client:
            await until(lambda: client._network.now)
            connection = await wire.connect(
                sites.fleet.launch.sites["b1"].urls, "fleet", sites.fleet.launch.fleet.fleet, name="trimtab:test"
            )

            os.kill(hub.pid, signal.SIGSTOP)

            try:
                assert within((await client.rtt("b4")).rtt_ms, 50.0, 0.3)
                sites.fleet.set_rtt("b1", "b2", 45.0)
                await until(lambda: farther(connection), LIMIT_S)
            finally:
                os.kill(hub.pid, signal.SIGCONT)
                sites.fleet.set_rtt("b1", "b2", 30.0)
                await wire.close(connection)
        await until(lambda: known(operator, "b1", "b2", 30.0), LIMIT_S)

    async def farther(connection):
        return within((await wire.ask(connection, GetPeerRtt("b2"), broker="b1")).rtt_ms, 45.0, 0.1)

    over(sites, scenario)


GOOD = Coordinate((3.0,) * 8, 1.0)


@pytest.mark.parametrize(
    "answer",
    [
        Probed("b8", GOOD),
        Probed("b9", Coordinate((float("nan"),) * 8, 1.0)),
        Probed("b9", Coordinate((3.0, 4.0), 1.0)),
        Probed("b9", Coordinate((3.0,) * 8, -1.0)),
    ],
    ids=["another broker", "not a number", "another dimension", "negative height"],
)
def test_an_answer_that_cannot_be_right_is_refused_and_counted(fleet, answer):
    async def scenario():
        admin = await wire.connect(
            fleet.launch.sites["b1"].urls, "fleet", fleet.launch.fleet.fleet, name="trimtab:test"
        )  # fmt: skip

        async def answered(_):
            return answer

        served = await wire.serve(admin, [Probe.answered_by(answered)], broker="b9")
        probing = Probing("test", admin, NetworkSettings(), lambda: ["b9"])
        before = probing.node.coordinate()

        await probing.probe("b9")

        assert (probing.counts.sent, probing.counts.refused, probing.counts.answered) == (1, 1, 0)
        assert probing.node.coordinate() == before
        await wire.unsubscribe(served)
        await probing.probe("b9")
        assert probing.counts.unanswered == 1
        await wire.handled(served)
        await wire.close(admin)

    asyncio.run(scenario())


def test_without_a_model_there_is_no_coordinate_and_no_probe(fleet):
    async def scenario():
        probing = Probing("b1", None, NetworkSettings(model="none", probe_s=0.05), lambda: ["b2"])
        running = [asyncio.create_task(probing.run()), asyncio.create_task(probing.publish())]
        await always(lambda: probing.counts.sent == 0 and probing.changed() is None, 0.3)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(scenario())
