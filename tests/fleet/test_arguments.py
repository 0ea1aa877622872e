"""Wrong arguments of the SDK: one sentence of our own tree, nothing sent, nothing counted."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import trimtab
from helpers.waiting import until
from trimtab.errors import BadInput, UnknownName, Unreachable
from trimtab.fleet.sdk import arguments

NAN = float("nan")
LONE = "half a pair: \ud83d"


def nothing(*_):
    """A callback."""


class Released:
    """A buffer that can no longer be read."""

    def __new__(cls):
        view = memoryview(b"gone")
        view.release()
        return view


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (7, "a message is bytes or text, but this came: 7"),
        (None, "a message is bytes or text, but this came: None"),
        ({"lat": 47.0}, "a message is bytes or text, but this came: a dict"),
        ([1, 2], "a list"),
        (object(), "a object"),
        (LONE, "lone surrogates"),
        (Released(), "released"),
    ],
)
def test_what_is_neither_bytes_nor_text_is_no_message(data, sentence):
    with pytest.raises(BadInput, match=sentence):
        arguments.payload(data)


@pytest.mark.parametrize(
    "data",
    [b"abc", "abc", bytearray(b"abc"), memoryview(b"abc"), memoryview(b"a-b-c")[::2]],
    ids=["bytes", "str", "bytearray", "memoryview", "every second byte"],
)
def test_bytes_and_whatever_is_like_them_are_messages(data):
    assert arguments.payload(data) == b"abc"


@pytest.mark.parametrize(
    "value",
    [
        (90.1, 0.0), (0.0, -180.5), (NAN, 0.0), (0.0, float("inf")), (1.0,), (1.0, 2.0, 3.0), ("47", "15"), "47", 5,
        None, (True, False), (10**400, 0), {"lat": 1.0, "lon": 2.0}, b"ab",
    ],
    ids=repr,
)  # fmt: skip
def test_a_position_is_a_latitude_and_a_longitude(value):
    with pytest.raises(BadInput, match="a position is a latitude from -90 to 90"):
        arguments.position(value)


def test_a_position_may_be_at_the_edge_of_the_map():
    assert arguments.position([90, -180.0]) == (90.0, -180.0)


@pytest.fixture
def client_file(tmp_path):
    path = tmp_path / "client.json"
    path.write_text(json.dumps({"brokers": {"b1": ["nats://127.0.0.1:9"]}, "user": "client", "password": "x"}))
    return path


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": 7}, "a client is called by letters"),
        ({"name": 0}, "a client is called by letters"),
        ({"name": ""}, "a client is called by letters"),
        ({"name": "two words"}, "a client is called by letters"),
        ({"name": LONE}, "a client is called by letters"),
        ({"home": ["b1"]}, "a broker is called by letters"),
        ({"home": 1}, "a broker is called by letters"),
        ({"position": (NAN, 0.0)}, "a position is a latitude"),
        ({"position": (47.0, 181.0)}, "a position is a latitude"),
        ({"position": "here"}, "a position is a latitude"),
        ({"addresses": ["nats://x"]}, "addresses are URLs by broker"),
        ({"addresses": {"b1": 4222}}, "the address of broker 'b1' is a URL"),
        ({"addresses": {1: "nats://x"}}, "a broker is called by letters"),
    ],
)
def test_connect_refuses(client_file, options, sentence):
    with pytest.raises(BadInput, match=sentence):
        trimtab.connect(client_file, **options)


@pytest.mark.parametrize("fleet", [7, b"/tmp", ["home"]])
def test_a_fleet_is_named_by_a_path(fleet):
    with pytest.raises(BadInput, match="a fleet is given by its folder or its client file"):
        trimtab.connect(fleet)


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        '{"brokers": {"b1": "nats://x"}, "user": "a", "password": "b"}',
        '{"brokers": {}, "user": "a"}',
        "[]",
        "nope",
    ],
)
def test_a_file_that_is_no_client_file_is_refused(tmp_path, content):
    path = tmp_path / "client.json"
    path.write_text(content)

    with pytest.raises(BadInput, match=r"client\.json is not"):
        trimtab.connect(Path(path))


def test_a_fleet_without_a_broker_is_said_to_have_none(tmp_path):
    (tmp_path / "client.json").write_text('{"brokers": {}, "user": "a", "password": "b"}')

    async def scenario():
        async with trimtab.connect(tmp_path):
            pass

    with pytest.raises(Unreachable, match="names no broker"):
        asyncio.run(scenario())


CALLS = {
    "publish a number": (lambda c, t: c.publish(t, 7), "a message is bytes or text"),
    "publish nothing": (lambda c, t: c.publish(t, None), "a message is bytes or text"),
    "publish a mapping": (lambda c, t: c.publish(t, {"a": 1}), "a message is bytes or text"),
    "publish half a character": (lambda c, t: c.publish(t, LONE), "lone surrogates"),
    "publish too much": (lambda c, t: c.publish(t, b"x" * 2_000_000), "over the limit of"),
    "publish to a number": (lambda c, t: c.publish(7, b""), "a topic is called by"),
    "publish to a list": (lambda c, t: c.publish([t], b""), "a topic is called by"),
    "publish to everything": (lambda c, t: c.publish(">", b""), "a topic is called by"),
    "publish to half a character": (lambda c, t: c.publish(LONE, b""), "a topic is called by"),
    "create with a name of the wrong type": (lambda c, t: c.create_topic(7), "a topic is called by"),
    "create with an unknown setting": (lambda c, t: c.create_topic(t, spol=3), "did you mean 'spool'"),
    "create with a wrong setting": (lambda c, t: c.create_topic(t, spool="3"), "spool must be"),
    "create with a limit that is no number": (lambda c, t: c.create_topic(t, limit_ms=NAN), "limit_ms must be"),
    "create at a broker of the wrong type": (lambda c, t: c.create_topic(t, broker=None), "broker must be"),
    "look for a list": (lambda c, t: c.topic([t]), "a topic is called by"),
    "delete a number": (lambda c, t: c.delete_topic(3), "a topic is called by"),
    "route to a list": (lambda c, t: c.route([t]), "a topic is called by"),
    "route to everything": (lambda c, t: c.route(">"), "a topic is called by"),
    "subscribe without a function": (lambda c, t: c.subscribe(t, "print"), "a callback is a function"),
    "subscribe to a number": (lambda c, t: c.subscribe(9, nothing), "a topic is called by"),
    "subscribe durably by number": (lambda c, t: c.subscribe(t, nothing, durable=5), "a durable reader is called by"),
    "subscribe durably by nothing": (lambda c, t: c.subscribe(t, nothing, durable=""), "a durable reader is called by"),
    "subscribe with no room": (lambda c, t: c.subscribe(t, nothing, pending=0), "1 or more"),
    "subscribe with half a room": (lambda c, t: c.subscribe(t, nothing, pending=1.5), "1 or more"),
    "subscribe with a yes": (lambda c, t: c.subscribe(t, nothing, pending=True), "1 or more"),
    "unsubscribe from a name": (lambda c, t: c.unsubscribe(t), "what subscribe returns"),
    "dead letters without a function": (lambda c, t: c.dead_letters(t, None), "a callback is a function"),
    "dead letters of a number": (lambda c, t: c.dead_letters(1, nothing), "a topic is called by"),
    "move off the map": (lambda c, t: c.move_to((91.0, 0.0)), "a position is a latitude"),
    "move to no number": (lambda c, t: c.move_to((0.0, NAN)), "a position is a latitude"),
    "move to nothing": (lambda c, t: c.move_to(None), "a position is a latitude"),
    "a channel by number": (lambda c, t: c.subscribe_channel(4), "a channel is called by"),
    "a channel that is half a character": (lambda c, t: c.subscribe_channel(LONE), "a channel is called by"),
    "a channel without a function": (lambda c, t: c.subscribe_channel("x", "print"), "a callback is a function"),
    "a parameter that is bytes": (lambda c, t: c.subscribe_channel("x", None, kind=b"k"), "parameter 'kind' of"),
    "a parameter that is a list": (lambda c, t: c.subscribe_channel("x", None, kind=[1]), "parameter 'kind' of"),
    "a huge parameter": (lambda c, t: c.subscribe_channel("x", None, kind=10**5000), "parameter 'kind' of"),
    "channels in a text": (lambda c, t: c.subscribe_channels("x"), "are given as a list"),
    "channels in a number": (lambda c, t: c.subscribe_channels(4), "are given as a list"),
    "channels without parameters": (lambda c, t: c.subscribe_channels([("x", None)]), "is \\(channel, callback, param"),
    "channels with bad parameters": (lambda c, t: c.subscribe_channels([("x", None, 5)]), "are a mapping by name"),
    "channels with parameters by number": (
        lambda c, t: c.subscribe_channels([("x", None, {1: 2})]), "is named by text"
    ),
    "unsubscribe from a channel's name": (lambda c, t: c.unsubscribe_channel("x"), "what subscribe_channel returns"),
    "unsubscribe from a number of channels": (lambda c, t: c.unsubscribe_channels(3), "are given as a list"),
}  # fmt: skip


@asynccontextmanager
async def a_pair(fleet, topic, **settings):
    """A client that publishes, a subscription, and what has come by it."""
    got = []
    async with fleet.client("argues", "b1", position=(47.0, 15.0)) as publisher, fleet.client("hears", "b2") as hearer:
        await publisher.create_topic(topic, broker="b1", **settings)
        subscription = await hearer.subscribe(topic, lambda message: got.append(message.data))
        yield publisher, subscription, got


@pytest.mark.parametrize("persistent", [False, True], ids=["plain", "persistent"])
def test_a_refused_call_uses_nothing_up(fleet, topic, persistent):
    """What is published next comes at once: nobody waits for a number that was given out and never sent."""

    async def scenario():
        async with a_pair(fleet, topic, persistent=persistent) as (client, subscription, got):
            await client.publish(topic, b"first")
            await until(lambda: got)
            for name, (call, sentence) in CALLS.items():
                with pytest.raises(BadInput, match=sentence) as refused:
                    await call(client, topic)
                assert "\n" not in str(refused.value), name
                str(refused.value).encode()  # can be printed
                count, began = len(got), time.monotonic()
                await client.publish(topic, name)
                await until(lambda count=count: len(got) > count)
                assert time.monotonic() - began < 0.8, f"{name}: subscribers have waited"
            assert [each.decode() for each in got] == ["first", *CALLS]
            assert (subscription.missed, subscription.dropped, subscription.duplicates) == (0, 0, 0)
            assert client.position == (47.0, 15.0)

    asyncio.run(scenario())


def test_buffers_are_published_as_they_are_now(fleet, topic):
    async def scenario():
        async with a_pair(fleet, topic) as (client, _, got):
            buffer = bytearray(b"one")
            await client.publish(topic, buffer)
            buffer[:] = b"two"
            await client.publish(topic, memoryview(buffer))
            await until(lambda: len(got) == 2)
            assert got == [b"one", b"two"]

    asyncio.run(scenario())


USES = {
    "publish": lambda c: c.publish("x", b""),
    "create_topic": lambda c: c.create_topic("x"),
    "topic": lambda c: c.topic("x"),
    "delete_topic": lambda c: c.delete_topic("x"),
    "route": lambda c: c.route("x"),
    "subscribe": lambda c: c.subscribe("x", nothing),
    "flush": lambda c: c.flush(),
    "dead_letters": lambda c: c.dead_letters("x", nothing),
    "move_to": lambda c: c.move_to((1.0, 2.0)),
    "subscribe_channel": lambda c: c.subscribe_channel("x"),
    "subscribe_channels": lambda c: c.subscribe_channels([("x", None, {})]),
}


@pytest.mark.parametrize("use", USES)
def test_a_client_is_used_inside_async_with(client_file, use):
    client = trimtab.connect(client_file, name="early")

    with pytest.raises(BadInput, match="client 'early' was used before it was entered; use it inside async with"):
        asyncio.run(USES[use](client))
    assert client.serving == ""
    assert client.position is None


def test_a_client_is_not_used_after_it_was_closed(fleet, topic):
    async def scenario():
        client = fleet.client("late", "b1")
        async with client:
            await client.create_topic(topic, broker="b1")
            await client.publish(topic, b"")
            subscription = await client.subscribe(topic, nothing)
        uses = {**USES, "publish": lambda c: c.publish(topic, b""), "route": lambda c: c.route(topic),
                "unsubscribe": lambda c: c.unsubscribe(subscription)}  # fmt: skip
        for use in uses.values():
            with pytest.raises(BadInput, match="client 'late' was used after it was closed"):
                await use(client)
        with pytest.raises(BadInput, match="has been entered before"):
            await client.__aenter__()
        assert client.serving == ""

    asyncio.run(scenario())


def test_a_callback_may_publish_while_its_client_closes(fleet, topic):
    async def scenario():
        got = []
        async with fleet.client("echoes", "b1") as hearer:
            await hearer.create_topic(topic, broker="b1")
            await hearer.create_topic(f"{topic}.echo", broker="b1")
            await hearer.subscribe(f"{topic}.echo", lambda message: got.append(message.text))
            async with fleet.client("between", "b1") as client:

                async def echo(message):
                    await client.publish(f"{topic}.echo", message.data)

                await client.subscribe(topic, echo)
                for number in range(200):
                    await hearer.publish(topic, str(number))
                await hearer.flush()
            await until(lambda: len(got) == 200)
        assert got == [str(number) for number in range(200)]

    asyncio.run(scenario())


def test_an_unknown_setting_is_named_with_those_that_exist():
    with pytest.raises(UnknownName, match="known: broker, unit, processor, spool, limit_ms, persistent, replicas"):
        arguments.topic("x", {"colour": "red"})
