"""Topics follow their clients on a real fleet with emulated distances."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time

import numpy as np
import pytest

from helpers.sites import Sites
from helpers.waiting import always, until
from trimtab.control.controller import Controller
from trimtab.control.record import Record
from trimtab.control.settings import Settings
from trimtab.fleet import tasks
from trimtab.fleet.operator import Operator
from trimtab.fleet.protocol.plans import MOVED
from trimtab.fleet.protocol.snapshots import messages
from trimtab.fleet.protocol.streams import CONTROL
from trimtab.model.ids import Ids
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot, Usage

BETWEEN_MS = 60.0  # round trip between sites
BOUND_MS = 40.0
NAMES = [f"b{number}" for number in range(1, 5)]
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def sites(nats_server):
    running = Sites({(one, other): BETWEEN_MS for one in NAMES for other in NAMES if one < other})
    try:
        running.start()
        yield running
    finally:
        running.stop()


async def measure(admin, topic):
    """Publish measurements without the positions of clients, as those of a fleet in which they have just moved."""
    number = int(time.time())
    links = Links(np.array([0, 0], np.int32), np.array([0, 1], np.int32), np.array([PUB, SUB], np.int8))
    while True:
        workload = Workload(
            Topics(Ids([topic], table="topics"), [10.0], [100.0]), Clients(Ids(["pub", "sub"], table="clients")),
            Brokers(Ids(NAMES, table="brokers")), links,
        )  # fmt: skip
        number += 1
        for subject, part in messages(number, Snapshot(time.time(), workload, {n: Usage(1.0) for n in NAMES}).pack()):
            await admin.jetstream().publish(subject, part)
        await asyncio.sleep(0.5)


@contextlib.asynccontextmanager
async def controlled(sites, topic):
    """The fleet's operator, with a controller and measurements."""
    async with Operator.open(sites.fleet.home) as operator:
        admin = operator.connection
        background = [
            asyncio.create_task(Controller(admin, Settings(period_s=0.5), lambda _: None).run()),
            asyncio.create_task(measure(admin, topic)),
        ]
        try:
            yield operator
        finally:
            await tasks.end(*background)


async def send(publisher, topic):
    number = 0
    with contextlib.suppress(asyncio.CancelledError):
        while True:
            await publisher.publish(topic, str(number))
            number += 1
            await asyncio.sleep(0.02)
    return number


async def near(operator):
    """Whether all distances between brokers are known."""
    found = [await operator.rtt(one, other) for one in NAMES for other in NAMES if one < other]
    return all(each.estimated_ms is not None and 45.0 < each.estimated_ms < 80.0 for each in found)


async def hosted_at(operator, topic, broker):
    return next(row.broker for row in await operator.topics() if row.topic == topic) == broker


def test_a_topic_follows_its_clients_and_loses_nothing(sites, topic):
    async def scenario():
        received = []
        async with (
            controlled(sites, topic) as operator,
            sites.fleet.client("pub", "b1", gateway="b1", access_ms=2.0) as publisher,
            sites.fleet.client("sub", "b1", gateway="b1", access_ms=2.0) as subscriber,
        ):
            await publisher.create_topic(topic, broker="b1", latency_ms=BOUND_MS)
            await subscriber.subscribe(topic, lambda message: received.append(message.text))
            sending = asyncio.create_task(send(publisher, topic))
            await until(lambda: near(operator), LIMIT_S)

            for gateway in ("b3", "b4", "b2"):
                await publisher.attach(gateway, access_ms=2.0)
                await subscriber.attach(gateway, access_ms=2.0)
                await until(lambda: hosted_at(operator, topic, gateway), LIMIT_S)  # noqa: B023
            await always(lambda: hosted_at(operator, topic, "b2"), 3.0)

            sending.cancel()
            sent = await sending
            await until(lambda: len(received) >= sent)
            assert received == [str(number) for number in range(sent)]
            record = Record(operator.connection, await operator.connection.jetstream().key_value(CONTROL))
            every = [await record.decision(number) for number in await record.numbers()]
            decisions = [decision for decision in every if decision.plan is not None]
            assert {(decision.plan.goal, decision.plan.aside) for decision in decisions} == {("promises", True)}
            moved = [decision.plan.steps[0].target for decision in decisions if decision.outcome.states == [MOVED]]
            assert moved == ["b3", "b4", "b2"]

    asyncio.run(scenario())


def test_without_the_hub_brokers_move_the_topic_and_the_hub_takes_that_over(sites, topic):
    async def scenario():
        received, hub = [], sites.fleet.launch.supervisor.find("hub")
        async with (
            Operator.open(sites.fleet.home) as operator,
            sites.fleet.client("pub", "b1", gateway="b1", access_ms=2.0) as publisher,
            sites.fleet.client("sub", "b1", gateway="b1", access_ms=2.0) as subscriber,
        ):
            await publisher.create_topic(topic, broker="b1", latency_ms=BOUND_MS)
            await subscriber.subscribe(topic, lambda message: received.append(message.text))
            sending = asyncio.create_task(send(publisher, topic))
            await until(lambda: near(operator), LIMIT_S)

            os.kill(hub.pid, signal.SIGSTOP)
            try:
                for gateway in ("b3", "b2"):
                    await publisher.attach(gateway, access_ms=2.0)
                    await subscriber.attach(gateway, access_ms=2.0)
                    await until(lambda: both_at(gateway, publisher, subscriber), LIMIT_S)  # noqa: B023
            finally:
                os.kill(hub.pid, signal.SIGCONT)

            await until(lambda: hosted_at(operator, topic, "b2"), LIMIT_S)
            await always(lambda: hosted_at(operator, topic, "b2"), 3.0)
            sending.cancel()
            sent = await sending
            await until(lambda: len(received) >= sent)
            assert received == [str(number) for number in range(sent)]

    async def both_at(broker, *clients):
        return {await client.route(topic) for client in clients} == {broker}

    asyncio.run(scenario())
