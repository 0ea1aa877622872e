"""Publish, process, subscribe and move on a real fleet."""

from __future__ import annotations

import asyncio

import pytest

from helpers.waiting import until
from trimtab.errors import AlreadyThere, BadInput, UnknownName
from trimtab.fleet.protocol.admin_verbs import (
    ListClients,
    ListTopics,
    MoveOrder,
    PlacedLink,
    PlaceLinks,
    StartMoves,
)
from trimtab.fleet.protocol.coding import MAX_MESSAGE
from trimtab.model.key import Key
from trimtab.observe.report import TopicReport


async def numbered(client, topic, stop):
    """Publish 1, 2, 3, ... until told to stop; how many."""
    count = 0
    while not stop.is_set():
        count += 1
        await client.publish(topic, str(count))
        await asyncio.sleep(0.002)  # the pace of the stream
    return count


async def flowing(client, topic, got, least=20):
    """A running stream of messages, of which some have arrived."""
    stop = asyncio.Event()
    task = asyncio.create_task(numbered(client, topic, stop))
    await until(lambda: len(got) >= least)
    return stop, task


def whole(got, count):
    return got == [str(number) for number in range(1, count + 1)]


def test_a_message_reaches_a_subscriber_at_another_broker(fleet, topic):
    async def scenario():
        got = []
        async with fleet.client("p1", "b1") as publisher, fleet.client("s1", "b2") as subscriber:
            await publisher.create_topic(topic)
            await subscriber.subscribe(topic, got.append)

            await publisher.publish(topic, b"hello")

            await until(lambda: got)
            assert (got[0].data, got[0].publisher, got[0].seq, got[0].topic) == (b"hello", "p1", 1, topic)
            assert got[0].sent_at > 1e9

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("settings", "durable"),
    [
        ({}, None),
        ({"processor": "burn?ms=0.1", "spool": 5}, None),
        ({"persistent": True}, None),
        ({"persistent": True}, "reader"),
        ({"persistent": True, "processor": "burn?ms=0.1"}, "reader"),
    ],
    ids=["plain", "processed", "persistent", "persistent-durable", "persistent-processed"],
)
def test_a_topic_moves_without_losing_repeating_or_reordering_a_message(fleet, topic, settings, durable):
    async def scenario():
        got = []
        async with fleet.client("p2", "b1") as publisher, fleet.client("s2", "b2") as subscriber:
            await publisher.create_topic(topic, broker="b1", **settings)
            subscription = await subscriber.subscribe(topic, lambda m: got.append(m.text), durable=durable)
            stop, task = await flowing(publisher, topic, got)

            for target in ("b2", "b3", "b1"):
                record = await fleet.move(unit="topic", topic=topic, to=target)
                assert (record.phase, record.reason) == ("done", "")
                assert await publisher.route(topic) == await subscriber.route(topic) == target

            stop.set()
            count = await task
            await until(lambda: len(got) >= count)
            assert whole(got, count)
            assert subscription.missed == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("settings", [{}, {"processor": "burn?ms=0.1", "spool": 3}], ids=["plain", "processed"])
def test_publisher_and_subscriber_change_their_homes_in_the_middle(fleet, topic, settings):
    async def scenario():
        got = []
        async with fleet.client("p3", "b1") as publisher, fleet.client("s3", "b2") as subscriber:
            await publisher.create_topic(topic, unit="client", **settings)
            await subscriber.subscribe(topic, lambda m: got.append(m.text))
            stop, task = await flowing(publisher, topic, got)

            for client, target in (("p3", "b3"), ("s3", "b1"), ("p3", "b2"), ("p3", "b1"), ("s3", "b2")):
                assert (await fleet.move(unit="client", client=client, to=target)).phase == "done"

            assert (publisher.home, subscriber.home) == ("b1", "b2")
            stop.set()
            count = await task
            await until(lambda: len(got) >= count)
            assert whole(got, count)

    asyncio.run(scenario())


def test_a_publishers_link_to_a_processor_moves_in_order(fleet, topic):
    """Results of what is under way at the old broker come before those of the new one."""

    async def scenario():
        got = []
        async with fleet.client("p19", "b1") as publisher, fleet.client("s19", "b2") as subscriber:
            await publisher.create_topic(topic, unit="link", processor="burn?ms=2")
            links = [PlacedLink(c, topic, b) for c, b in (("p19", "b1"), ("s19", "b2"))]
            await fleet.aask(PlaceLinks(links))
            await subscriber.subscribe(topic, lambda m: got.append(m.text))
            stop, task = await flowing(publisher, topic, got)

            for target in ("b2", "b3", "b1"):
                record = await fleet.move(unit="link", client="p19", topic=topic, to=target)
                assert record.phase == "done"

            stop.set()
            count = await task
            await until(lambda: len(got) >= count)
            assert whole(got, count)

    asyncio.run(scenario())


def test_a_link_is_refused_until_a_placement_carries_it_and_moves_alone(fleet, topic):
    async def scenario():
        got = []
        async with fleet.client("p4", "b1") as publisher, fleet.client("s4", "b2") as subscriber:
            await publisher.create_topic(topic, unit="link")
            with pytest.raises(BadInput, match=f"link of client 's4' to topic '{topic}' is refused: no placement"):
                await subscriber.subscribe(topic, got.append)
            links = [PlacedLink(c, topic, b) for c, b in (("p4", "b1"), ("s4", "b2"))]
            await fleet.aask(PlaceLinks(links))
            await subscriber.subscribe(topic, lambda m: got.append(m.text))
            stop, task = await flowing(publisher, topic, got)

            record = await fleet.move(unit="link", client="s4", topic=topic, to="b3")

            assert record.phase == "done"
            assert (await publisher.route(topic), await subscriber.route(topic)) == ("b1", "b3")
            stop.set()
            count = await task
            await until(lambda: len(got) >= count)
            assert whole(got, count)

            await fleet.aask(PlaceLinks([PlacedLink("x4", topic, "")]))
            async with fleet.client("x4", "b1") as refused:
                with pytest.raises(BadInput, match="the placement leaves it out"):
                    await refused.publish(topic, b"?")

    asyncio.run(scenario())


def test_stored_messages_and_a_readers_position_move_along(fleet, topic):
    """A reader that was away during the move goes on where it was, and hears what was stored before."""

    async def scenario():
        first, second = [], []
        async with fleet.client("p5", "b1") as publisher:
            await publisher.create_topic(topic, broker="b1", persistent=True)
            async with fleet.client("r5", "b1") as reader:
                await asyncio.gather(*(publisher.publish(topic, str(n)) for n in range(1, 31)))
                await reader.subscribe(topic, lambda m: first.append(m.text), durable="notes")
                await until(lambda: len(first) == 30)
            await asyncio.gather(*(publisher.publish(topic, str(n)) for n in range(31, 51)))

            assert (await fleet.move(unit="topic", topic=topic, to="b2")).phase == "done"

            await publisher.publish(topic, "51")
            async with fleet.client("r5", "b3") as reader:
                await reader.subscribe(topic, lambda m: second.append(m.text), durable="notes")
                await until(lambda: len(second) == 21)
            assert first + second == [str(n) for n in range(1, 52)]

    asyncio.run(scenario())


def test_a_message_that_a_reader_failed_on_comes_again(fleet, topic):
    async def scenario():
        got = []

        def fragile(message):
            got.append(message.text)
            if got.count("2") == 1 and message.text == "2":
                raise ValueError("not today")

        async with fleet.client("p16", "b1") as client:
            await client.create_topic(topic, persistent=True)
            reader = await client.subscribe(topic, fragile, durable="fragile")
            for text in "123":
                await client.publish(topic, text)
            await until(lambda: got.count("2") == 2)
            assert reader.errors == 1
            assert sorted(got) == ["1", "2", "2", "3"]

    asyncio.run(scenario())


def test_a_durable_reader_needs_a_persistent_topic(fleet, topic):
    async def scenario():
        async with fleet.client("p17", "b1") as client:
            await client.create_topic(topic)
            with pytest.raises(BadInput, match="is not persistent"):
                await client.subscribe(topic, print, durable="d")

    asyncio.run(scenario())


def test_a_processor_sees_the_spool_of_the_old_broker_after_a_move(fleet, topic):
    async def scenario():
        got = []
        async with fleet.client("p6", "b1") as publisher, fleet.client("s6", "b2") as subscriber:
            await publisher.create_topic(topic, broker="b1", processor="helpers.processors:spooled", spool=3)
            await subscriber.subscribe(topic, lambda m: got.append(m.text))
            for text in "abc":
                await publisher.publish(topic, text)
            await until(lambda: len(got) == 3)

            await fleet.move(unit="topic", topic=topic, to="b2")
            await publisher.publish(topic, "d")

            await until(lambda: len(got) == 4)
            assert got == ["a", "ab", "abc", "bcd"]

    asyncio.run(scenario())


def test_spools_of_one_topic_on_several_brokers_share_messages(fleet, topic):
    """Tanaka, Section 4: what was published at another edge server is there when a notification is made here."""

    async def scenario():
        got = []
        async with (
            fleet.client("p7", "b1") as here,
            fleet.client("q7", "b2") as there,
            fleet.client("s7", "b3") as subscriber,
        ):
            await here.create_topic(topic, unit="client", processor="helpers.processors:spooled", spool=10)
            await subscriber.subscribe(topic, lambda m: got.append(m.text))
            await here.publish(topic, "a")
            await until(lambda: got == ["a"])

            async def seen_there():
                before = len(got)
                await there.publish(topic, "b")
                await until(lambda: len(got) > before)
                return got[-1].startswith("a")

            await until(seen_there)

    asyncio.run(scenario())


def test_a_processor_that_fails_costs_only_its_own_message(fleet, topic):
    async def scenario():
        got, dead = [], []
        async with fleet.client("p8", "b1") as publisher, fleet.client("s8", "b2") as subscriber:
            await publisher.create_topic(topic, processor="helpers.processors:obey", limit_ms=500)
            await subscriber.subscribe(topic, lambda m: got.append(m.text))
            await subscriber.dead_letters(topic, lambda data, reason: dead.append((data, reason)))

            for text in ("one", "raise", "two", "kill", "three", "hang", "four", "skip", "five"):
                await publisher.publish(topic, text)

            await until(lambda: len(got) == 5 and len(dead) == 3)
            assert got == ["one", "two", "three", "four", "five"]
            assert [data for data, _ in dead] == [b"raise", b"kill", b"hang"]
            assert "ValueError" in dead[0][1]
            assert "died" in dead[1][1]
            assert "longer than 0.5 s" in dead[2][1]

    asyncio.run(scenario())


@pytest.mark.parametrize("persistent", [False, True])
def test_a_result_too_large_to_be_sent_goes_to_the_dead_letters(fleet, topic, persistent):
    """And so does a message that fits without headers only."""

    async def scenario():
        got, dead = [], []
        async with fleet.client("p18", "b1") as publisher, fleet.client("s18", "b2") as subscriber:
            await publisher.create_topic(
                topic, broker="b1", processor="helpers.processors:double", persistent=persistent
            )
            await subscriber.subscribe(topic, lambda m: got.append(m.text))
            await subscriber.dead_letters(topic, lambda data, reason: dead.append((len(data), reason)))
            largest = MAX_MESSAGE - 1_000

            await publisher.publish(topic, "one")
            await publisher.publish(topic, b"x" * 700_000)
            await publisher.publish(topic, b"x" * largest)
            await publisher.publish(topic, "two")

            await until(lambda: len(got) == 2 and len(dead) == 2)
            assert got == ["oneone", "twotwo"]
            limit = f"is over the limit of {MAX_MESSAGE - 512:,}"
            assert dead[0] == (700_000, f"its result of 1,400,000 bytes {limit}")
            assert dead[1][1] == f"its result of {2 * largest:,} bytes {limit}"
            assert dead[1][0] < largest  # the rest is cut off

            async def counted():
                state = await fleet.aask(ListTopics(reports=True))
                return state.reports["b1"].topics.get(topic, TopicReport()).dead

            await publisher.publish(topic, b"x" * 700_000)
            await until(counted)

    asyncio.run(scenario())


def test_a_slow_subscriber_keeps_a_bounded_number_of_messages(fleet, topic):
    async def scenario():
        got, go_on = [], asyncio.Event()

        async def slow(message):
            got.append(message.seq)
            await go_on.wait()

        async with fleet.client("p9", "b1") as publisher, fleet.client("s9", "b1") as subscriber:
            await publisher.create_topic(topic)
            subscription = await subscriber.subscribe(topic, slow, pending=10)
            for _ in range(100):
                await publisher.publish(topic, b"x")
            await publisher.flush()
            await until(lambda: subscription.dropped >= 80)
            go_on.set()
            await until(lambda: len(got) + subscription.dropped == 100)
            assert got == sorted(set(got))
            assert len(got) <= 20

    asyncio.run(scenario())


def test_a_subscriber_that_is_behind_loses_nothing_when_it_moves(fleet, topic):
    """What waits on the old route fills the gap, however old the gap is."""

    async def scenario():
        got, go_on = [], asyncio.Event()

        async def slow(message):
            got.append(message.text)
            await go_on.wait()

        async with fleet.client("p18", "b1") as publisher, fleet.client("s18", "b2") as subscriber:
            await publisher.create_topic(topic, broker="b1")
            subscription = await subscriber.subscribe(topic, slow)
            subscription._catchup.wait_s = 1e-9  # every gap is too old at once
            for number in range(1, 51):
                await publisher.publish(topic, str(number))
            await publisher.flush()
            await until(lambda: got)
            moving = asyncio.create_task(fleet.move(unit="topic", topic=topic, to="b3"))

            async def on_the_new_route():
                await publisher.publish(topic, str(len(sent) + 51))
                sent.append(True)
                return subscription._catchup.holds

            sent = []
            await until(on_the_new_route)
            subscription.tick()
            go_on.set()
            await moving
            await until(lambda: len(got) >= 50 + len(sent))
            assert whole(got, 50 + len(sent))
            assert (subscription.missed, subscription.dropped) == (0, 0)

    asyncio.run(scenario())


def test_a_clients_position_is_in_the_registry_and_changes(fleet):
    async def scenario():
        async with fleet.client("p15", position=(47.07, 15.44)) as client:
            seen = []

            async def known():
                seen.append((await fleet.aask(ListClients())).entries["p15"].position)
                return seen[-1]

            assert await known() == (47.07, 15.44)
            await client.move_to((48.2, 16.37))
            await until(lambda: known())
            assert seen[-1] == (48.2, 16.37)

    asyncio.run(scenario())


def test_creating_a_topic_twice_is_fine_unless_it_differs(fleet, topic):
    async def scenario():
        async with fleet.client("p10") as client:
            assert await client.create_topic(topic) == await client.create_topic(topic)
            with pytest.raises(BadInput, match=r"exists with other settings: the defaults; asked: persistent=True"):
                await client.create_topic(topic, persistent=True)
            await client.delete_topic(topic)

            async def gone():
                return await client.topic(topic) is None

            await until(gone)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("act", "sentence"),
    [
        (lambda c, t: c.publish("nowhere", b""), "there is no topic 'nowhere'"),
        (lambda c, t: c.subscribe("nowhere", print), "there is no topic 'nowhere'"),
        (lambda c, t: c.publish("a b", b""), "a topic is called by words"),
        (lambda c, t: c.create_topic(t, broker="b9"), "there is no broker 'b9'"),
        (lambda c, t: c.create_topic(t, processor="no.such:thing"), "no.such"),
        (lambda c, t: c.create_topic(t, processor="json:nothing"), "nothing"),
        (lambda c, t: c.create_topic(t, processor="json"), "MODULE:FUNCTION"),
        (lambda c, t: c.create_topic(t, unit="planet"), "unit must be one of"),
        (lambda c, t: c.create_topic(t, persistent=True, unit="client"), "placed as a whole"),
        (lambda c, t: c.create_topic(t, persistent=True, replicas=3), "replicas|3"),
        (
            lambda c, t: c.create_topic(t, processor="burn?ms=20", latency_ms=5.0, rate=5.0, processing_ms=20.0),
            "cannot keep its bound of 5 ms: processing one message takes 20 ms",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence_and_changes_nothing(fleet, topic, act, sentence):
    async def scenario():
        async with fleet.client("p11") as client:
            with pytest.raises(BadInput, match=sentence):
                await act(client, topic)
            assert await client.topic(topic) is None

    asyncio.run(scenario())


@pytest.mark.parametrize("settings", [{}, {"persistent": True}], ids=["plain", "persistent"])
def test_a_message_over_the_limit_is_refused_and_the_next_one_goes_through(fleet, topic, settings):
    async def scenario():
        got = []
        async with fleet.client("p12") as client:
            await client.create_topic(topic, **settings)
            await client.subscribe(topic, got.append)
            with pytest.raises(BadInput, match="a message of 2,000,000 bytes is over the limit of 1,04"):
                await client.publish(topic, b"x" * 2_000_000)
            await client.publish(topic, b"small")
            await until(lambda: got)
            assert (got[0].data, got[0].seq) == (b"small", 1)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("key", "to", "error", "sentence"),
    [
        (("topic", "nope", ""), "b2", UnknownName, "there is no topic 'nope'"),
        (("client", "", "nope"), "b2", UnknownName, "there is no client 'nope'"),
        (("topic", "T", ""), "b9", UnknownName, "there is no broker 'b9'"),
        (("topic", "T", ""), "b1", AlreadyThere, "topic 'T' is at 'b1' already"),
        (("link", "T", "p13"), "b2", BadInput, "topic 'T' is placed by topic, not by link; move its topic instead"),
        (("house", "T", ""), "b2", BadInput, "Invalid enum value 'house' - at `\\$.moves\\[0\\].key\\[0\\]`"),
    ],
)
def test_a_move_that_makes_no_sense_is_refused(fleet, topic, key, to, error, sentence):
    async def scenario():
        async with fleet.client("p13") as client:
            await client.create_topic(topic, broker="b1")
            named = Key(*(topic if each == "T" else each for each in key))
            with pytest.raises(BadInput, match=sentence.replace("'T'", f"'{topic}'")) as caught:
                await fleet.aask(StartMoves([MoveOrder(named, to)]))
            assert type(caught.value) is error

    asyncio.run(scenario())


def test_a_move_whose_target_cannot_load_the_processor_is_rolled_back(fleet, topic, modules):
    """The topic stays where it was and goes on; the record says why."""
    module = modules / "vanishing.py"
    module.write_text("def echo(message, spool):\n    return message.data\n")

    async def scenario():
        got = []
        async with fleet.client("p14", "b1") as client:
            await client.create_topic(topic, broker="b1", processor="vanishing:echo")
            await client.subscribe(topic, lambda m: got.append(m.text))
            stop, task = await flowing(client, topic, got)
            module.unlink()

            record = await fleet.move(unit="topic", topic=topic, to="b2")

            assert record.phase == "rolled back"
            assert "vanishing" in record.reason
            assert await client.route(topic) == "b1"
            stop.set()
            count = await task
            await until(lambda: len(got) >= count)
            assert whole(got, count)

    asyncio.run(scenario())


def test_deleting_a_topic_ends_what_was_going_on_with_it(fleet, topic):
    """And a new one of the same name starts afresh, whatever its settings."""

    async def scenario():
        got = []
        async with fleet.client("p40", "b1") as publisher, fleet.client("s40", "b2") as subscriber:
            await publisher.create_topic(topic, persistent=True, broker="b1")
            await subscriber.subscribe(topic, lambda m: got.append(m.text), durable="r")
            await publisher.publish(topic, "old")
            await until(lambda: got == ["old"])

            await subscriber.delete_topic(topic)

            await until(lambda: topic not in publisher._routes and topic not in subscriber._routes)
            with pytest.raises(BadInput, match="there is no topic"):
                await publisher.publish(topic, "to nobody")
            await publisher.create_topic(topic, broker="b3")
            await subscriber.subscribe(topic, lambda m: got.append(m.text))
            await publisher.publish(topic, "new")
            await until(lambda: got == ["old", "new"])

    asyncio.run(scenario())


def test_a_processor_of_a_new_topic_of_an_old_name_is_the_new_one(fleet, topic):
    async def scenario():
        got = []
        async with fleet.client("p41", "b1") as publisher:
            await publisher.create_topic(topic, unit="client", processor="burn?ms=0.1")
            await publisher.delete_topic(topic)
            await publisher.create_topic(topic, unit="client", processor="helpers.processors:spooled", spool=3)
            await publisher.subscribe(topic, lambda m: got.append(m.text))
            await publisher.publish(topic, "x")
            await until(lambda: got)
            assert got == ["x"]

    asyncio.run(scenario())
