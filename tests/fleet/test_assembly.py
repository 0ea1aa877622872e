"""Large results come in parts; applications get them whole, once, wherever in the middle a client began or stopped."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from helpers.fleet import StoredChannel
from helpers.waiting import until
from trimtab.fleet.protocol.hub_verbs import ResultRecord
from trimtab.fleet.sdk.assembly import Assembly, Part


def part(number, parts=3, execution=1, seq=None, **more):
    """The message whose rows are its own numbers."""
    content = {"execution": execution, "at": "then", "part": number, "rows": [{"n": number}], **more}
    if parts > 1:
        content |= {"parts": parts, "after": 0}
    return Part(number + 1 if seq is None else seq, ResultRecord(**content))


def rows(assembled):
    return [(each.part, each.parts, [row["n"] for row in each.rows]) for each in assembled]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_parts_are_joined_in_their_order_whatever_they_came_in(order):
    assembly = Assembly()

    ready = [assembly.add(part(number, seq=seq)) for seq, number in enumerate(order, 1)]

    assert [rows(each) for each in ready] == [[], [], [(1, 1, [0, 1, 2])]]
    assert ready[-1][0].seq == 3


def test_a_result_of_one_message_needs_nothing_else():
    assembly = Assembly()

    assert not assembly.lacks_earlier(part(0, parts=1))
    assert rows(assembly.add(part(0, parts=1))) == [(1, 1, [0])]
    assert not assembly.lacks_earlier(Part(9, ResultRecord(1, "then", [], 2)))  # as once stored


def test_it_says_when_an_earlier_part_is_missing():
    assembly = Assembly()

    assert not assembly.lacks_earlier(part(0))
    assembly.add(part(0))
    assert not assembly.lacks_earlier(part(1))
    assert assembly.lacks_earlier(part(2))
    assert assembly.lacks_earlier(part(1, execution=2))


def test_parts_of_a_result_that_stays_incomplete_are_delivered_with_their_numbers():
    assembly = Assembly()
    assembly.add(part(0))
    assembly.add(part(2))

    ready = assembly.add(part(0, parts=1, execution=2, seq=9))

    assert rows(ready) == [(1, 3, [0]), (3, 3, [2]), (1, 1, [0])]
    assert [each.execution for each in ready] == [1, 1, 2]


def test_earlier_parts_that_were_found_belong_to_the_new_result():
    assembly = Assembly()
    assembly.add(part(0))

    ready = assembly.add(part(1, parts=2, execution=2), [part(0, parts=2, execution=2)])

    assert rows(ready) == [(1, 3, [0]), (1, 1, [0, 1])]


def test_the_rows_that_were_left_out_are_those_of_all_parts():
    assembly = Assembly()
    assembly.add(part(0, parts=2))

    [whole] = assembly.add(part(1, parts=2, left_out=4, reason="too large"))

    assert (whole.left_out, whole.reason) == (4, "too large")


# On a real fleet; the pipeline's messages are stored by hand, so that a client can come and go between them.


def whole(result):
    return result.execution, result.part, result.parts, [row["n"] for row in result.rows]


@pytest.fixture
def channel(fleet):
    return StoredChannel(fleet)


def test_a_result_in_parts_is_delivered_as_one(fleet, channel):
    async def scenario():
        got = []
        async with fleet.client(f"{channel.name}-s") as client:
            subscription = await channel.follow(client, got)
            for number in (1, 2):
                await channel.store(subscription, *await channel.execution(number))
            await until(lambda: len(got) == 2)
        assert list(map(whole, got)) == [(1, 1, 1, [0, 1, 2]), (2, 1, 1, [0, 1, 2])]
        assert got[-1].seq == await channel.last()

    asyncio.run(scenario())


def test_parts_that_are_stored_out_of_order_are_put_in_order(fleet, channel):
    """A pipeline that was cut off may store an earlier part when it repeats the execution."""

    async def scenario():
        got = []
        async with fleet.client(f"{channel.name}-s") as client:
            subscription = await channel.follow(client, got)
            first, second, third = await channel.execution(1)
            await channel.store(subscription, first, third, second)
            await until(lambda: got)
        assert list(map(whole, got)) == [(1, 1, 1, [0, 1, 2])]

    asyncio.run(scenario())


def test_a_client_that_comes_in_the_middle_of_a_result_gets_all_of_it(fleet, channel):
    async def scenario():
        early, late = [], []
        async with fleet.client(f"{channel.name}-e") as one, fleet.client(f"{channel.name}-l", "b2") as two:
            subscription = await channel.follow(one, early)
            before = await channel.execution(1)
            await channel.store(subscription, *before)
            first, *others = await channel.execution(2)
            await channel.store(subscription, first)
            await channel.follow(two, late)
            await channel.store(subscription, *others)
            await until(lambda: late and len(early) == 2)
        assert list(map(whole, late)) == [(2, 1, 1, [0, 1, 2])]

    asyncio.run(scenario())


def test_a_client_that_leaves_in_the_middle_of_a_result_gets_all_of_it_once_and_nothing_else_again(fleet, channel):
    async def scenario():
        first, second, other = [], [], []
        async with fleet.client(f"{channel.name}-s") as client:
            subscription = await channel.follow(client, first)
            beside = await channel.follow(client, other, kind="flood")
            one, *others = await channel.execution(1)
            await channel.store(subscription, one)
            [small] = await channel.execution(1, count=1)
            await channel.store(beside, small)
            await until(lambda: other)
        await channel.store(subscription, *others)
        again = []
        async with fleet.client(f"{channel.name}-s", "b2") as client:
            await channel.follow(client, again, kind="flood")
            await channel.follow(client, second)
            await until(lambda: second)
            [last] = await channel.execution(2, count=1)
            await channel.store(beside, last)
            await until(lambda: again)
        assert first == []
        assert list(map(whole, second)) == [(1, 1, 1, [0, 1, 2])]
        assert [each.execution for each in again] == [2]

    asyncio.run(scenario())


def test_what_was_left_out_and_what_is_incomplete_reaches_the_subscriber(fleet, channel):
    async def scenario():
        got = []
        async with fleet.client(f"{channel.name}-s") as client:
            subscription = await channel.follow(client, got)
            first, _, third = await channel.execution(1)
            [after] = await channel.execution(2, count=1)
            await channel.store(subscription, first, third, after | {"left_out": 2, "reason": "too large"})
            await until(lambda: len(got) == 3)
        assert list(map(whole, got)) == [(1, 1, 3, [0]), (1, 3, 3, [2]), (2, 1, 1, [0])]
        assert (got[-1].left_out, got[-1].reason) == (2, "too large")

    asyncio.run(scenario())


def test_many_subscriptions_are_made_or_none(fleet, channel, monkeypatch):
    """A refusal in a later request takes back what the earlier ones have made."""
    monkeypatch.setattr("trimtab.fleet.sdk.channels.MOST", 2)

    async def scenario():
        async with fleet.client(f"{channel.name}-s") as client:
            wanted = [(channel.name, None, {"kind": str(number)}) for number in range(3)]
            with pytest.raises(ValueError, match="needs the parameter 'kind'"):
                await client.subscribe_channels([*wanted, (channel.name, None, {})])
            assert not client._channels

    asyncio.run(scenario())

    async def left():
        jetstream = (await fleet.launch.admin()).jetstream()
        info = await jetstream.stream_info("subscriptions", subjects_filter=f"sub.{channel.name}.>")
        return info.state.subjects or {}

    assert fleet.do(left()) == {}
