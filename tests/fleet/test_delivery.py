"""Delivery to callbacks: in order and one at a time, whatever kind of callback; timers never wait for one."""

from __future__ import annotations

import asyncio
import functools
from types import SimpleNamespace

import pytest

from helpers.waiting import turns, until
from trimtab.fleet.protocol.message import MESSAGE_ID, as_reply
from trimtab.fleet.sdk.reader import Reader
from trimtab.fleet.sdk.results import ChannelSubscription, Result
from trimtab.fleet.sdk.subscription import Subscription


def raw(number, publisher="p"):
    """A message as nats-py receives it."""
    return SimpleNamespace(data=b"%d" % number, reply=as_reply(f"{publisher}.run.{number}.0"), headers=None)


class Slow:
    """A callback that is at work until ``go_on`` is set."""

    def __init__(self):
        self.begun, self.got, self.together = [], [], 0
        self.go_on = asyncio.Event()

    async def __call__(self, message):
        self.begun.append(message.text)
        self.together = max(self.together, len(self.begun) - len(self.got))
        await self.go_on.wait()
        self.got.append(message.text)


async def behind_a_gap(slow):
    """A subscription whose callback is at work, with a message behind a gap that is too old."""
    subscription = Subscription("t", slow)
    subscription._catchup.wait_s = 1e-9
    first = asyncio.create_task(subscription._receive(raw(1)))
    await until(lambda: slow.begun)
    await subscription._receive(raw(3))
    assert subscription._catchup.holds
    return subscription, first


def test_a_tick_gives_up_a_gap_without_waiting_for_the_callback():
    async def scenario():
        slow = Slow()
        subscription, first = await behind_a_gap(slow)

        subscription.tick()

        assert (subscription.missed, slow.got) == (1, [])
        slow.go_on.set()
        await first
        await until(lambda: slow.got == ["1", "3"])

    asyncio.run(scenario())


@pytest.mark.parametrize("leaves", ["tick", "drop"])
def test_messages_behind_a_gap_come_before_those_that_arrive_while_they_wait(leaves):
    """The task that delivers them may be the last to run; their places are taken when the gap is given up."""

    async def scenario():
        slow = Slow()
        subscription, first = await behind_a_gap(slow)
        slow.go_on.set()
        await first

        if leaves == "tick":
            subscription.tick()
        else:
            await subscription.drop(raw(2))
        await subscription._receive(raw(4))

        await until(lambda: len(slow.got) == 3)
        assert (slow.got, slow.together) == (["1", "3", "4"], 1)

    asyncio.run(scenario())


def test_what_a_tick_gave_up_is_delivered_before_a_subscription_is_finished():
    async def scenario():
        slow = Slow()
        subscription, first = await behind_a_gap(slow)
        subscription.tick()
        finishing = asyncio.create_task(subscription.finish())
        await turns()
        assert not finishing.done()

        slow.go_on.set()

        await asyncio.gather(first, finishing)
        assert slow.got == ["1", "3"]

    asyncio.run(scenario())


def test_a_tick_of_a_reader_does_not_wait_for_the_callback():
    async def stored(number):
        acknowledged = []

        async def ack():
            acknowledged.append(number)

        return SimpleNamespace(data=b"%d" % number, reply="", headers={MESSAGE_ID: f"p.run.{number}.0"}, ack=ack)

    async def scenario():
        slow = Slow()
        reader = Reader("t", slow, "me")
        reader._catchup.wait_s = 1e-9
        slow.go_on.set()
        await reader._accept(await stored(1))
        await reader._accept(await stored(3))
        slow.go_on.clear()
        other = asyncio.create_task(reader._accept(await stored(2 * 10**6)))
        assert reader._catchup.holds

        for _ in range(3):
            reader.tick()
            await turns()

        assert slow.got == ["1"]
        slow.go_on.set()
        await other
        await reader.finish()
        assert slow.got[:2] == ["1", "3"]
        assert slow.together == 1

    asyncio.run(scenario())


def callbacks(got):
    """Callbacks of all kinds."""

    async def coroutine(*came):
        await asyncio.sleep(0)
        got.append(came)

    class Method:
        async def __call__(self, *came):
            await coroutine(*came)

    return {
        "function": lambda *came: got.append(came),
        "coroutine function": coroutine,
        "partial": functools.partial(coroutine),
        "async __call__": Method(),
        "function that returns a coroutine": lambda *came: coroutine(*came),
        "function that returns a task": lambda *came: asyncio.ensure_future(coroutine(*came)),
    }


@pytest.mark.parametrize("kind", callbacks([]))
def test_every_kind_of_callback_serves_topics_and_channels(kind):
    async def scenario():
        got = []
        callback = callbacks(got)[kind]
        subscription = Subscription("t", callback)
        channel = ChannelSubscription("c", "i", {}, callback)
        result = Result("c", "i", 1, "then", [], 1)

        await subscription._receive(raw(1))
        await channel.take(result)

        assert [came[0] for came in got][1:] == [result]
        assert got[0][0].text == "1"

    asyncio.run(scenario())


def test_a_callback_that_fails_is_logged_with_its_traceback(caplog):
    def fails(_):
        raise ValueError("no disk")

    async def scenario():
        subscription = Subscription("t", fails)
        await subscription._receive(raw(1))
        await ChannelSubscription("c", "i", {}, fails).take(Result("c", "i", 7, "then", [], 1))
        return subscription.errors

    assert asyncio.run(scenario()) == 1
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("ERROR", "the callback of topic t failed on message 1 of p"),
        ("ERROR", "the callback of channel c failed on execution 7"),
    ]
    assert all(record.exc_info for record in caplog.records)
