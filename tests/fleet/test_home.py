"""Changes of a client's home, failover and upkeep, also while callbacks are slow and connections fail."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from types import SimpleNamespace

import nats.errors
import pytest

from helpers.fleet import StoredChannel
from helpers.relay import Relay
from helpers.waiting import until
from trimtab.fleet.protocol import coding, subjects, wire
from trimtab.fleet.protocol.entries import Change, ClientEntry
from trimtab.fleet.protocol.message import stamped
from trimtab.fleet.sdk.dead_letters import DeadLetters
from trimtab.fleet.sdk.wires import Wires

OF_BASE = ("c.", "route.", "dead.")  # subjects of subscriptions over the base connection


@pytest.fixture
def channel(fleet):
    return StoredChannel(fleet)


async def urls(fleet):
    async with fleet.client("home-urls") as client:
        return {broker: client._addresses[broker][0] for broker in fleet.brokers}


async def subscribed(fleet, broker, client):
    """The subjects of a client's base connection that it is subscribed to at a broker, as the server counts them."""
    server = await wire.connect([(await urls(fleet))[broker]], "system", fleet.launch.fleet.system, name="trimtab:test")
    try:
        request = subjects.server_request(server._server_info["server_id"], "CONNZ")
        options = json.dumps({"subscriptions": True, "limit": 1000}).encode()
        listing = json.loads((await server.request(request, options)).data)["data"]["connections"]
    finally:
        await wire.close(server)
    mine = [each for each in listing if each.get("name") == f"trimtab:{client}"]
    counted = Counter(subject for each in mine for subject in each.get("subscriptions_list", ()))
    return {subject: count for subject, count in counted.items() if subject.startswith(OF_BASE)}


class Slow:
    """A callback that is at work until ``go_on`` is set."""

    def __init__(self):
        self.begun, self.got, self.go_on = [], [], asyncio.Event()

    async def __call__(self, came):
        self.begun.append(came)
        await self.go_on.wait()
        self.got.append(came)


def test_after_a_change_of_home_nothing_comes_over_the_old_connection(fleet, channel, topic):
    """A route of a default topic keeps the old connection open."""

    async def scenario():
        async with fleet.client("home-1", "b1") as client:
            await client.create_topic(topic, broker="b1")
            await client.subscribe(topic, print)
            await client.dead_letters(topic, print)
            subscription = await channel.follow(client, [])
            expected = {
                subjects.channel(channel.name, subscription.id): 1,
                subjects.change(f"topic.{topic}"): 1,
                subjects.change("client.home-1"): 1,
                subjects.dead(topic): 1,
            }
            assert await subscribed(fleet, "b1", "home-1") == expected

            await fleet.move(unit="client", client="home-1", to="b2")

            await until(lambda: client.serving == "b2")

            async def moved():
                return not await subscribed(fleet, "b1", "home-1")

            await until(moved)
            assert await subscribed(fleet, "b2", "home-1") == expected
            assert client._wires.get("b1") is not None
            assert (client._base.unfinished, client._base.changes) == (0, 2)

    asyncio.run(scenario())


def test_a_change_of_home_that_is_announced_twice_subscribes_once(fleet, channel, monkeypatch):
    """As when the push and the reply to a report come together."""
    monkeypatch.setattr("trimtab.fleet.sdk.client.REPORT_S", 3600.0)  # agents would send the client back

    async def scenario():
        async with fleet.client("home-2", "b1") as client:
            subscription = await channel.follow(client, [])
            raw = SimpleNamespace(data=coding.to_json(Change.of("client.home-2", ClientEntry("b2"), 1)))

            for _ in range(3):
                await client._home_changed(raw)

            await until(lambda: client.serving == client.home == "b2")
            await until(lambda: client._wires.get("b1") is None)
            assert await subscribed(fleet, "b2", "home-2") == {
                subjects.channel(channel.name, subscription.id): 1,
                subjects.change("client.home-2"): 1,
            }
            assert len(client._wires.get("b2").users) == 1

    asyncio.run(scenario())


def test_changes_of_home_there_and_back_leave_the_last_one_in_use(fleet, monkeypatch):
    """A change that still leaves its old connection must not close it after the client has returned to it."""
    monkeypatch.setattr("trimtab.fleet.sdk.client.REPORT_S", 3600.0)

    async def scenario():
        async with fleet.client("home-3", "b1") as client:
            for home in ("b2", "b1", "b3", "b1"):
                client._start(client._home.change(home))
            await until(lambda: client._base.changes == 5)
            await until(lambda: [opened.broker for opened in client._wires] == ["b1"])
            assert (client.serving, client.home) == ("b1", "b1")
            assert await client.topic("nothing") is None

    asyncio.run(scenario())


def test_no_result_is_lost_repeated_or_out_of_order_while_the_home_changes(fleet, channel):
    async def scenario():
        got = []
        async with fleet.client("home-4", "b1") as client:
            subscription = await channel.follow(client, got)
            stop = asyncio.Event()

            async def store():
                count = 0
                while not stop.is_set():
                    count += 1
                    await channel.store(subscription, {"execution": count, "at": "then", "rows": []})
                return count

            storing = asyncio.create_task(store())
            for home in ("b2", "b3", "b1"):
                enough = len(got) + 3
                await until(lambda enough=enough: len(got) >= enough)
                await fleet.move(unit="client", client="home-4", to=home)
                await until(lambda home=home: client.serving == home)
            stop.set()
            count = await storing
            await until(lambda: len(got) >= count)
            assert [result.execution for result in got] == list(range(1, count + 1))

    asyncio.run(scenario())


def test_a_slow_callback_and_a_gap_do_not_stop_the_failover(fleet, topic):
    async def scenario():
        slow = Slow()
        async with (
            Relay((await urls(fleet))["b2"]) as relay,
            fleet.client("home-5", "b2", addresses={"b2": relay.url}) as client,
        ):
            await client.create_topic(topic, broker="b1")
            subscription = await client.subscribe(topic, slow)
            await client.publish(topic, "slow")
            await until(lambda: slow.begun)
            for number in (1, 3):  # 3 waits for 2
                gapped = stamped(topic, b"", f"other.run.{number}.0")
                subscription._catchup.accept(gapped, 0.0)
            await asyncio.sleep(0.2)  # some ticks

            await relay.cut()

            await until(lambda: client.serving in ("b1", "b3"), 5.0)
            assert slow.got == []
            slow.go_on.set()

    asyncio.run(scenario())


def test_a_slow_callback_of_a_channel_stops_neither_reports_nor_failover(fleet, channel, topic, monkeypatch):
    async def scenario():
        slow, got = Slow(), []
        async with (
            Relay((await urls(fleet))["b2"]) as relay,
            fleet.client("home-6", "b2", addresses={"b2": relay.url}) as client,
            fleet.client("home-7", "b1") as publisher,
        ):
            await client.create_topic(topic, unit="client")
            await client.subscribe(topic, got.append)
            subscription = await client.subscribe_channel(channel.name, slow, kind="fire")
            await channel.store(subscription, {"execution": 1, "at": "then", "rows": []})
            await until(lambda: slow.begun)
            reports = []
            monkeypatch.setattr(client, "_send_report", reported(client._send_report, reports))
            client._channels._missed += 1  # a result may be missing, so the next report fetches results

            await until(lambda: len(reports) >= 3, 10.0)

            await relay.cut()
            await until(lambda: client.serving in ("b1", "b3"), 5.0)
            await until(lambda: client._routes.get(topic).broker == client.serving, 10.0)
            await publisher.publish(topic, "heard")
            await until(lambda: got)
            assert slow.got == []
            slow.go_on.set()
            await until(lambda: slow.got)

    asyncio.run(scenario())


def reported(send, reports):
    async def count(to):
        reports.append(to.broker)
        await send(to)

    return count


@pytest.mark.parametrize("error", [nats.errors.ConnectionClosedError(), nats.errors.Error("odd"), TimeoutError()])
def test_reports_go_on_after_every_error_of_a_connection(fleet, topic, monkeypatch, caplog, error):
    async def scenario():
        got = []
        async with fleet.client("home-8", "b1") as client, fleet.client("home-9", "b2") as publisher:
            await client.create_topic(topic, broker="b1")
            await client.subscribe(topic, got.append)
            real, fails_until = Wires.to, time.monotonic() + 3.0

            async def fails(self, broker, *arguments, **options):
                if self is client._wires and broker == "b1" and time.monotonic() < fails_until:
                    raise error
                return await real(self, broker, *arguments, **options)

            monkeypatch.setattr(Wires, "to", fails)
            await client._base.nats.close()

            async def heard():
                await publisher.publish(topic, "x")
                return got

            await until(heard, 30.0)
            await until(lambda: client.serving == "b1", 30.0)

    asyncio.run(scenario())
    assert "client home-8: " in caplog.text


def test_a_new_home_whose_connection_fails_leaves_everything_as_it_is(fleet, channel, monkeypatch):
    """Also when it fails in the middle of the subscriptions."""
    monkeypatch.setattr("trimtab.fleet.sdk.client.REPORT_S", 3600.0)

    async def scenario():
        got = []
        async with fleet.client("home-10", "b1") as client:
            subscription = await channel.follow(client, got)
            before = await subscribed(fleet, "b1", "home-10")
            real, seen = Wires.to, []

            async def breaks(self, *arguments, **options):
                opened = await real(self, *arguments, **options)
                if opened.broker == "b2" and self is client._wires:
                    subscribe = opened.nats.subscribe

                    async def once(*subject, **more):
                        if seen:
                            raise nats.errors.ConnectionClosedError
                        seen.append(subject)
                        return await subscribe(*subject, **more)

                    opened.nats.subscribe = once
                return opened

            monkeypatch.setattr(Wires, "to", breaks)

            await client._home.change("b2")

            assert seen
            assert (client.home, client.serving, client._wires.get("b2")) == ("b1", "b1", None)
            assert await subscribed(fleet, "b1", "home-10") == before
            await channel.store(subscription, {"execution": 1, "at": "then", "rows": []})
            await until(lambda: [result.execution for result in got] == [1])

    asyncio.run(scenario())


def letter(data, connection, number=1):
    return SimpleNamespace(data=data, headers={"Trimtab-Reason": "why", "Trimtab-Seq": str(number)}, _client=connection)


def test_a_dead_letter_that_comes_over_two_connections_is_given_once():
    async def scenario():
        got = []
        letters = DeadLetters("t", lambda data, reason: got.append((data, reason)))
        for data, connection in ((b"a", "old"), (b"a", "new"), (b"b", "new"), (b"b", "new"), (b"a", "new")):
            await letters.receive(letter(data, connection))
        await letters.receive(letter(b"a", "new", 2))
        return got

    assert asyncio.run(scenario()) == [(data, "why") for data in (b"a", b"b", b"b", b"a", b"a")]


def test_a_dead_letter_callback_that_fails_is_logged_as_an_error(fleet, topic, caplog):
    def fails(data, reason):
        raise ValueError("no disk")

    async def scenario():
        async with fleet.client("home-11", "b1") as client:
            await client.create_topic(topic, processor="helpers.processors:obey", limit_ms=500)
            await client.dead_letters(topic, fails)
            await client.publish(topic, "raise")
            await until(lambda: "the dead letters" in caplog.text)

    asyncio.run(scenario())
    [record] = [record for record in caplog.records if "dead letters" in record.message]
    assert (record.levelname, bool(record.exc_info)) == ("ERROR", True)
