"""Requests between the processes of a fleet."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess

import msgspec
import pytest

from trimtab.errors import BadInput, Moving, NoAnswer, TooLarge, Unreachable, VersionMismatch
from trimtab.fleet.protocol import coding, wire
from trimtab.fleet.protocol.admin_verbs import ForgetBroker, ListBrokers
from trimtab.fleet.protocol.agent_verbs import Hello, Ping
from trimtab.fleet.protocol.hub_verbs import Sync
from trimtab.fleet.protocol.request import AdminRequest
from trimtab.fleet.site.server import find_nats_server, free_ports


class Homes(msgspec.Struct):
    homes: dict[str, str]
    asked: str


class ListHomes(AdminRequest[Homes]):
    verb = "test.homes"
    changes = False
    kind: str


class Change(AdminRequest[Homes]):
    verb = "test.change"


async def ask(fleet, handlers, request, timeout_s=20.0):
    """What comes of a request that these answer."""
    admin = await fleet.launch.admin()
    listening = await wire.serve(admin, handlers)
    try:
        return await wire.ask(admin, request, timeout_s)
    finally:
        for each in listening:
            await each.unsubscribe()


@pytest.mark.parametrize("clients", [1, 60_000])
def test_an_answer_may_be_larger_than_a_message(fleet, clients):
    """As that of the homes of all clients of a large fleet, of some megabytes."""
    homes = {f"client-{number}": f"b{number % 7}" for number in range(clients)}

    async def answer(request):
        return Homes(homes, request.kind)

    reply = fleet.do(ask(fleet, [ListHomes.answered_by(answer)], ListHomes("client")))

    assert reply == Homes(homes, "client")


@pytest.mark.parametrize(
    ("error", "changed"),
    [
        (BadInput("no way"), None),
        (Moving("it is moving"), None),
        (Unreachable("b2 is away"), False),
        (Unreachable("b2 is away", changed=True), True),
    ],
)
def test_what_is_refused_is_raised_as_what_it_is(fleet, error, changed):
    async def answer(request):
        raise error

    with pytest.raises(type(error), match=str(error)) as caught:
        fleet.do(ask(fleet, [ListHomes.answered_by(answer)], ListHomes("way")))

    assert type(caught.value) is type(error)
    assert getattr(caught.value, "changed", None) is changed


def test_an_answer_that_is_too_large_is_told_as_such(fleet):
    async def answer(request):
        return Homes({str(number): str(hash(str(number))) for number in range(300_000)}, "")

    with pytest.raises(TooLarge, match="is over the limit of 1,048,576"):
        fleet.do(ask(fleet, [ListHomes.answered_by(answer)], ListHomes("all")))


def test_a_fault_of_the_other_side_is_answered_at_once(fleet):
    async def answer(request):
        return {}["nothing"]

    with pytest.raises(BadInput, match=r"'admin.test.homes' failed: KeyError 'nothing'"):
        fleet.do(ask(fleet, [ListHomes.answered_by(answer)], ListHomes("way")))


def test_where_nobody_answers_nothing_has_changed(fleet):
    with pytest.raises(NoAnswer, match=r"nobody answers to 'admin\.test\.change'") as caught:
        fleet.do(ask(fleet, [], Change()))

    assert caught.value.changed is False


@pytest.mark.parametrize(("request_", "changed"), [(Change(), True), (ListHomes("x"), False)])
def test_without_an_answer_in_time_what_was_asked_may_have_been_done(fleet, request_, changed):
    """A request that only asks changes nothing in any case."""
    begun, over, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def answer(request):
        begun.set()
        await over.wait()
        ended.set()

    async def scenario():
        try:
            await ask(fleet, [Change.answered_by(answer), ListHomes.answered_by(answer)], request_, 0.3)
        finally:
            over.set()
            await ended.wait()

    with pytest.raises(NoAnswer, match=r"within 0\.3 s") as caught:
        fleet.do(scenario())

    assert begun.is_set()
    assert caught.value.changed is changed
    assert ("may have been carried out" in str(caught.value)) is changed


async def raw(fleet, subject, message, wait_s=5.0):
    """The reply to bytes that no version of ours would send."""
    return (await (await fleet.launch.admin()).request(subject, message, timeout=wait_s)).data


@pytest.mark.parametrize("subject", [Sync.subject(), ListBrokers.subject(), Hello.subject("b1"), Ping.subject("b1")])
def test_every_process_refuses_a_request_of_another_version(fleet, subject):
    reply = fleet.do(raw(fleet, subject, json.dumps([2, {"client": 5}]).encode()))

    with pytest.raises(VersionMismatch, match="the answering process is older and must be updated"):
        coding.decode_reply(reply, Homes)


def test_a_reply_of_another_version_is_refused(fleet):
    async def scenario():
        admin = await fleet.launch.admin()

        async def newer(message):
            await message.respond(json.dumps([2, {"homes": 5}]).encode())

        listening = await admin.subscribe(ListHomes.subject(), cb=newer)
        try:
            await wire.ask(admin, ListHomes("x"))
        finally:
            await listening.unsubscribe()

    with pytest.raises(VersionMismatch, match="the asking process is older"):
        fleet.do(scenario())


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (b"", "the request 'admin.forget' was not understood"),
        (b"[1, {}]", "the request 'admin.forget' was not understood: Object missing required field `broker`"),
        (b'[1, {"broker": 5}]', "Expected `str`, got `int` - at `\\$.broker`"),
        (b'{"broker": "b1"}', "Expected `array`, got `object`"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(fleet, message, sentence):
    reply = fleet.do(raw(fleet, ForgetBroker.subject(), message))

    with pytest.raises(BadInput, match=sentence):
        coding.decode_reply(reply, Homes)


@pytest.fixture
def server(tmp_path, nats_server):
    """A stock nats-server of this test alone, and its address."""
    (port,) = free_ports("127.0.0.1", 1)
    with (tmp_path / "log").open("w") as output:
        process = subprocess.Popen([find_nats_server(), "-a", "127.0.0.1", "-p", str(port)], stderr=output)
    yield process, f"nats://127.0.0.1:{port}"
    process.send_signal(signal.SIGCONT)
    process.terminate()
    process.wait()


async def confirmation(connection, _):
    await wire.confirmed(connection, 30.0)


async def end_of_subscriptions(_, subscriptions):
    await wire.unsubscribe(subscriptions)


async def short_confirmation(connection, _):
    await wire.confirmed(connection, 0.05)


@pytest.mark.parametrize("wait", [confirmation, end_of_subscriptions, short_confirmation])
def test_a_connection_goes_on_after_a_wait_for_a_server_that_hangs_was_given_up(server, wait):
    process, url = server

    async def scenario():
        connection = await wire.connect([url], "", "", name="test", wait_s=10.0)
        received = asyncio.Event()

        async def receive(_):
            received.set()

        subscriptions = [await connection.subscribe("ended", cb=receive)]
        await connection.subscribe("kept", cb=receive)
        await wire.confirmed(connection)
        process.send_signal(signal.SIGSTOP)
        waiting = asyncio.create_task(wait(connection, subscriptions))
        async with asyncio.timeout(10.0):
            while not connection._pongs:
                await asyncio.sleep(0.01)
        if wait is not short_confirmation:
            waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError, TimeoutError):
            await waiting

        process.send_signal(signal.SIGCONT)
        await connection.publish("kept", b"1")
        await asyncio.wait_for(received.wait(), 10.0)
        await wire.ping(connection, 10.0)
        assert not connection._reading_task.done()
        await wire.close(connection)

    asyncio.run(scenario())
