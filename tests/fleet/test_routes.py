"""A client's routes: what is subscribed is on a route in use, and closed routes leave nothing."""

from __future__ import annotations

import asyncio
import gc

import pytest

from helpers.waiting import turns, until
from trimtab.errors import UnknownName


class Entered:
    """A task's start of waiting for a route's lock."""

    def __init__(self, client, topic):
        self.route = client._routes.get(topic)

    async def one_more(self, work):
        before = len(self.route.moving._waiters or ())
        task = asyncio.create_task(work)
        await until(lambda: len(self.route.moving._waiters or ()) > before)
        return task


@pytest.mark.parametrize("publishes", [False, True])
def test_a_route_that_is_closed_meanwhile_is_opened_again(fleet, topic, publishes):
    """The last subscription ends while a second task waits for the same route."""

    async def scenario():
        got, other = [], []
        async with fleet.client("route-s", "b1") as client, fleet.client("route-p", "b2") as publisher:
            await publisher.create_topic(topic, broker="b1")
            last = await client.subscribe(topic, other.append)
            entered = Entered(client, topic)
            async with entered.route.moving:
                ending = await entered.one_more(client.unsubscribe(last))
                work = client.publish(topic, b"x") if publishes else client.subscribe(topic, got.append)
                joining = await entered.one_more(work)
            await asyncio.gather(ending, joining)

            route = client._routes.get(topic)
            assert route is not None
            assert route.roles == (["pub"] if publishes else ["sub"])
            assert (await fleet.move(unit="topic", topic=topic, to="b3")).phase == "done"
            await until(lambda: route.broker == "b3")
            if not publishes:
                await publisher.publish(topic, b"after the move")
                await until(lambda: [message.text for message in got] == ["after the move"])

    asyncio.run(scenario())


def test_a_subscription_that_fails_does_not_close_a_route_that_another_one_is_about_to_use(fleet, topic):
    async def scenario():
        got = []
        async with fleet.client("route-s", "b1") as client:
            await client.create_topic(topic)
            last = await client.subscribe(topic, got.append)
            entered = Entered(client, topic)
            async with entered.route.moving:
                ending = await entered.one_more(client.unsubscribe(last))
                failing = await entered.one_more(client.subscribe(topic, got.append, durable="d"))
                joining = await entered.one_more(client.subscribe(topic, got.append))
            with pytest.raises(ValueError, match="is not persistent"):
                await failing
            await asyncio.gather(ending, joining)

            assert client._routes.get(topic).subscriptions == [joining.result()]
            await client.publish(topic, b"x")
            await until(lambda: got)

    asyncio.run(scenario())


def test_topics_that_cannot_be_opened_leave_nothing(fleet, topic):
    async def scenario():
        async with fleet.client("route-s") as client:
            for number in range(3):
                with pytest.raises(UnknownName):
                    await client.publish(f"{topic}.{number}", b"x")
                with pytest.raises(UnknownName):
                    await client.subscribe(f"{topic}.{number}", print)
            await turns()
            gc.collect()
            assert (len(client._routes._gates), len(client._routes._opening)) == (0, 0)

            await client.create_topic(topic)
            await client.publish(topic, b"x")
            gc.collect()
            assert list(client._routes._gates) == [topic]  # kept alive by its route

    asyncio.run(scenario())
