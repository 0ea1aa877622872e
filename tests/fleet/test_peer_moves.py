"""Topics that brokers give to each other while the hub is away, and the keeper that takes this over afterwards."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import asynccontextmanager

import pytest

from helpers.fleet import RunningFleet
from helpers.waiting import until
from trimtab.errors import AlreadyThere, BadInput, Moving, UnknownName, Unreachable
from trimtab.fleet.broker.agent import Replica
from trimtab.fleet.hub.interim import REASON
from trimtab.fleet.protocol import coding, wire
from trimtab.fleet.protocol.admin_verbs import (
    CordonBroker,
    ListBrokers,
    ListMoves,
    ListTopics,
    SetTopic,
    UncordonBroker,
)
from trimtab.fleet.protocol.agent_verbs import GiveTopic, Ping, ReleaseTopic, ResumeTopic
from trimtab.fleet.protocol.entries import Change
from trimtab.fleet.protocol.registry import topic_entry
from trimtab.fleet.site.credentials import REPLICA_FILE

SLOW = {"processor": "burn?ms=300", "limit_ms": 60_000}  # its queue takes seconds to finish, so that a test can act


class Fleet(RunningFleet):
    """A fleet whose hub a test may kill, and whose agents it asks over the brokers."""

    def child(self, name):
        return self.launch.supervisor.find(name)

    async def lose_hub(self):
        """Kill the keeper and the hub's server; they are not started again."""
        hub = [self.child("keeper"), self.child("hub")]
        await asyncio.to_thread(self.do, self.launch.supervisor.kill(hub))

    async def restore_hub(self):
        async def start():
            supervisor = self.launch.supervisor
            for name in ("hub", "keeper"):
                child = supervisor.find(name)
                child.process.wait()
                child.start()
                supervisor._watchers[name] = asyncio.create_task(supervisor._watch(child))

        await asyncio.to_thread(self.do, start())

        async def back():
            try:
                return (await self.aask(ListBrokers())).heard == list(self.brokers)
            except Unreachable:
                return False

        await until(back, 60.0)

    @asynccontextmanager
    async def over(self, broker):
        """Ask agents over a broker's server: ``ask(broker, request)``."""
        urls = self.launch.sites[broker].urls
        connection = await wire.connect(urls, "fleet", self.launch.fleet.fleet, name="test")

        async def ask(of, request, limit_s=30.0):
            return await wire.ask(connection, request, limit_s, broker=of)

        try:
            yield ask
        finally:
            await wire.close(connection)

    def replica(self, broker):
        return self.home / broker / REPLICA_FILE

    def known(self, broker, topic):
        """The change of the topic's entry that the broker has on disk."""
        changes = coding.decode(self.replica(broker).read_bytes(), Replica).changes
        return next((change for change in changes if change.name == topic_entry(topic)), None)

    async def hosted(self, topic):
        return (await self.aask(ListTopics())).entries[topic].broker

    async def moves_of(self, topic):
        return [record for record in (await self.aask(ListMoves())).moves if record.topic == topic]


@pytest.fixture
def own_fleet(tmp_path, nats_server):
    running = Fleet(tmp_path / "home")
    try:
        running.start()
        yield running
    finally:
        running.stop()


class Stream:
    """A publisher that counts up, and what a subscriber has received from it."""

    def __init__(self, publisher, topic):
        self.topic = topic
        self.got = []
        self.count = 0
        self._publisher = publisher
        self._stop = asyncio.Event()
        self._task = None

    async def start(self, *subscribers):
        for subscriber in subscribers:
            await subscriber.subscribe(self.topic, lambda m: self.got.append(m.text))
        self._task = asyncio.create_task(self._publish())
        await until(lambda: len(self.got) > 20)

    async def _publish(self):
        while not self._stop.is_set():
            self.count += 1
            await self._publisher.publish(self.topic, str(self.count))
            await asyncio.sleep(0.01)  # the pace of the stream

    async def more(self):
        """Some messages later."""
        wanted = len(self.got) + 20
        await until(lambda: len(self.got) >= wanted)

    async def end(self):
        """Everything that was published, in order."""
        self._stop.set()
        await self._task
        await until(lambda: len(self.got) >= self.count)
        return [str(number) for number in range(1, self.count + 1)]


def results(count, spool):
    """What ``helpers.processors:texts`` makes of messages that count up: each one with those before it."""
    texts = [str(number) for number in range(1, count + 1)]
    return [texts[max(0, end - spool) : end] for end in range(1, count + 1)]


def test_topics_are_given_on_while_the_hub_is_away_and_the_keeper_takes_it_over(own_fleet):
    """Nothing is lost, doubled or reordered; a processor keeps its spool."""

    async def scenario():
        async with (
            own_fleet.client("p", "b1") as publisher,
            own_fleet.client("s2", "b2") as near,
            own_fleet.client("s3", "b3") as far,
            own_fleet.over("b2") as ask,
        ):
            await publisher.create_topic("plain", broker="b1")
            await publisher.create_topic("worked", broker="b1", processor="helpers.processors:texts", spool=5)
            plain, worked = Stream(publisher, "plain"), Stream(publisher, "worked")
            await plain.start(near)
            await worked.start(far)
            await own_fleet.lose_hub()
            await asyncio.gather(plain.more(), worked.more())

            for source, target in (("b1", "b2"), ("b2", "b3")):
                await asyncio.gather(*(ask(source, GiveTopic(topic, target)) for topic in ("plain", "worked")))
                await asyncio.gather(plain.more(), worked.more())
            async with own_fleet.client("late", "b1") as late:  # its agent has heard where the topics are
                more = []
                await late.subscribe("plain", more.append)
                await until(lambda: more)
                assert late._routes.get("plain").broker == "b3"
            assert [own_fleet.known("b3", topic).term for topic in ("plain", "worked")] == [2, 2]
            assert (await ask("b3", Ping())).hosts == {"worked": True}
            assert "worked" not in {**(await ask("b1", Ping())).hosts, **(await ask("b2", Ping())).hosts}

            await own_fleet.restore_hub()
            for topic in ("plain", "worked"):

                async def taken_over(topic=topic):
                    return await own_fleet.hosted(topic) == "b3"

                await until(taken_over)
                (record,) = await own_fleet.moves_of(topic)
                assert (record.source, record.target, record.phase) == ("b1", "b3", "done")
                assert record.reason == REASON

                async def confirmed(topic=topic):
                    return all(own_fleet.known(broker, topic).term == 0 for broker in own_fleet.brokers)

                await until(confirmed)
                assert (await own_fleet.move(unit="topic", topic=topic, to="b1")).phase == "done"
            await asyncio.gather(plain.more(), worked.more())

            assert await plain.end() == plain.got
            await worked.end()
            assert [json.loads(result) for result in worked.got] == results(worked.count, 5)

    asyncio.run(scenario())


async def begin(fleet, publisher, subscriber, count=10):
    """A topic at b1 whose processor has a queue of some seconds, with the results as they come."""
    got = []
    await publisher.create_topic("slow", broker="b1", **SLOW)
    await subscriber.subscribe("slow", lambda m: got.append(m.text))
    for number in range(count):
        await publisher.publish("slow", str(number))
    return got


async def released(ask):
    """The giver has stopped, and finishes its queue."""

    async def stopped():
        return (await ask("b1", Ping())).hosts == {"slow": False}

    await until(stopped)


async def hosts(ask, broker):
    try:
        return (await ask(broker, Ping(), 1.0)).hosts
    except Unreachable:  # its agent has not started again yet
        return None


def once(got, count):
    return got == [str(number) for number in range(count)]


def test_a_giver_that_is_killed_before_its_decision_keeps_the_topic(own_fleet):
    """The target drops what it has prepared, and has not processed anything."""

    async def scenario():
        async with (
            own_fleet.client("p", "b3") as publisher,
            own_fleet.client("s", "b3") as subscriber,
            own_fleet.over("b3") as ask,
        ):
            got = await begin(own_fleet, publisher, subscriber)
            await own_fleet.lose_hub()
            giving = asyncio.create_task(ask("b1", GiveTopic("slow", "b2")))
            await released(ask)
            assert await hosts(ask, "b2") == {"slow": False}
            own_fleet.child("b1-agent").process.kill()

            async def served():
                assert await hosts(ask, "b2") in ({"slow": False}, {})
                return await hosts(ask, "b1") == {"slow": True}

            await until(served)
            before = list(got)
            assert once(before, len(before))
            for number in range(20, 23):
                await publisher.publish("slow", str(number))

            async def dropped():
                return await hosts(ask, "b2") == {}

            await until(dropped, 40.0)
            await until(lambda: len(got) >= len(before) + 3)
            assert got == [*before, "20", "21", "22"]
            assert own_fleet.known("b1", "slow").term == 0
            giving.cancel()

    asyncio.run(scenario())


def test_a_decision_on_disk_is_carried_out_by_the_next_agent_and_the_target_may_die_too(own_fleet):
    async def scenario():
        async with (
            own_fleet.client("p", "b3") as publisher,
            own_fleet.client("s", "b3") as subscriber,
            own_fleet.over("b3") as ask,
        ):
            got = await begin(own_fleet, publisher, subscriber, 1)
            await until(lambda: once(got, 1))
            await own_fleet.lose_hub()
            giver, target = own_fleet.child("b1-agent"), own_fleet.child("b2-agent")
            known = await until(lambda: own_fleet.known("b1", "slow"))
            os.kill(target.pid, signal.SIGSTOP)
            os.kill(giver.pid, signal.SIGSTOP)
            write_decision(own_fleet, "b1", known, "b2")
            giver.process.kill()

            async def released_by_giver():
                return await hosts(ask, "b1") == {}

            await until(released_by_giver)
            target.process.kill()

            async def served():
                return await hosts(ask, "b2") == {"slow": True}

            await until(served)
            assert own_fleet.known("b2", "slow").version == (known.revision, 1)
            with pytest.raises(BadInput, match="'b1' gave topic 'slow' away while the hub was away; it is at 'b2' now"):
                await ask("b1", ReleaseTopic("m", "slow", "b3"))
            await ask("b1", ResumeTopic("slow"))
            assert await hosts(ask, "b1") == {}
            for number in range(1, 4):
                await publisher.publish("slow", str(number))
            await until(lambda: once(got, 4))

            await own_fleet.restore_hub()

            async def taken_over():
                return await own_fleet.hosted("slow") == "b2"

            await until(taken_over)

    asyncio.run(scenario())


def write_decision(fleet, broker, known, target):
    """What a broker has on its disk if it is killed right after its decision."""
    path = fleet.replica(broker)
    replica = coding.decode(path.read_bytes(), Replica)
    decided = Change.of(known.name, known.entry().placed_at(target), known.revision, known.term + 1)
    changes = [change for change in replica.changes if change.name != known.name]
    path.write_bytes(coding.to_json(Replica([*changes, decided], replica.revision)))


def test_a_target_that_dies_before_the_decision_leaves_the_topic_to_the_giver(own_fleet):
    async def scenario():
        async with (
            own_fleet.client("p", "b3") as publisher,
            own_fleet.client("s", "b3") as subscriber,
            own_fleet.over("b3") as ask,
        ):
            got = await begin(own_fleet, publisher, subscriber)
            await own_fleet.lose_hub()
            giving = asyncio.create_task(ask("b1", GiveTopic("slow", "b2")))
            await released(ask)
            own_fleet.child("b2-agent").process.kill()
            for number in range(10, 15):
                await publisher.publish("slow", str(number))

            with pytest.raises((BadInput, Unreachable), match="b2"):
                await giving
            assert await hosts(ask, "b1") == {"slow": True}
            await until(lambda: len(got) >= 15)
            assert once(got, 15)
            await ask("b1", GiveTopic("slow", "b2"))  # the target has started again
            await publisher.publish("slow", "15")
            await until(lambda: once(got, 16))
            assert (await hosts(ask, "b1"), await hosts(ask, "b2")) == ({}, {"slow": True})

    asyncio.run(scenario())


def test_a_later_change_of_the_keeper_wins(own_fleet):
    async def scenario():
        async with own_fleet.client("p", "b3") as publisher, own_fleet.client("s", "b3") as subscriber:
            got = await begin(own_fleet, publisher, subscriber, 1)
            await until(lambda: once(got, 1))
            async with own_fleet.over("b3") as ask:
                giver = own_fleet.child("b1-agent")
                known = await until(lambda: own_fleet.known("b1", "slow"))
                os.kill(giver.pid, signal.SIGSTOP)
                await own_fleet.aask(SetTopic("slow", 500.0))
                write_decision(own_fleet, "b1", known, "b2")
                giver.process.kill()

                async def confirmed():
                    change = own_fleet.known("b1", "slow")
                    return change.revision > known.revision and await hosts(ask, "b1") == {"slow": True}

                await until(confirmed)
                assert own_fleet.known("b1", "slow").entry().broker == "b1"
                assert (await own_fleet.hosted("slow"), await own_fleet.moves_of("slow")) == ("b1", [])
                await publisher.publish("slow", "1")
                await until(lambda: once(got, 2))

    asyncio.run(scenario())


def test_a_move_by_the_keeper_during_a_gift_is_rolled_back_and_does_no_harm(own_fleet):
    async def scenario():
        async with (
            own_fleet.client("p", "b3") as publisher,
            own_fleet.client("s", "b3") as subscriber,
            own_fleet.over("b3") as ask,
        ):
            got = await begin(own_fleet, publisher, subscriber)
            giving = asyncio.create_task(ask("b1", GiveTopic("slow", "b2")))
            await released(ask)

            record = await own_fleet.move(unit="topic", topic="slow", to="b3")
            assert (record.phase, record.reason) == ("rolled back", "'b1' is giving topic 'slow' to another broker")
            with pytest.raises(Moving, match="topic 'slow' is moving already; wait until that is over"):
                await ask("b1", GiveTopic("slow", "b3"))
            await giving
            await publisher.publish("slow", "10")

            await until(lambda: len(got) >= 11)
            assert once(got, 11)

            async def taken_over():
                return await own_fleet.hosted("slow") == "b2"

            await until(taken_over)
            assert (await own_fleet.move(unit="topic", topic="slow", to="b1")).phase == "done"
            assert [await hosts(ask, broker) for broker in own_fleet.brokers] == [{"slow": True}, {}, {}]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("settings", "of", "to", "error", "sentence"),
    [
        ({}, "b2", "b3", BadInput, "topic '{}' is at 'b1', so 'b2' cannot give it away"),
        ({}, "b1", "b1", AlreadyThere, "topic '{}' is at 'b1' already"),
        ({}, "b1", "b9", UnknownName, "there is no broker 'b9'"),
        ({"persistent": True}, "b1", "b2", BadInput, "topic '{}' is persistent: its stored messages move only with"),
        ({"unit": "client"}, "b1", "b2", BadInput, "topic '{}' is placed by client, and no broker hosts it as a whole"),
    ],
)
def test_a_gift_that_makes_no_sense_is_refused(fleet, topic, settings, of, to, error, sentence):
    async def scenario():
        async with fleet.client("gift", "b1") as client:
            await client.create_topic(topic, broker="b1", **settings)
            with pytest.raises(error, match=sentence.format(topic)):
                await fleet.aask(GiveTopic(topic, to), broker=of)

    asyncio.run(scenario())


def test_a_cordoned_broker_takes_no_topic_and_says_so(fleet, topic, open_brokers):
    async def scenario():
        async with fleet.client("gift", "b1") as client:
            await client.create_topic(topic, broker="b1")
            await fleet.aask(CordonBroker("b2", "test"))

            async def refused():
                try:
                    await fleet.aask(GiveTopic(topic, "b2"), broker="b1")
                except BadInput as error:
                    return "broker 'b2' is cordoned, so nothing is placed there" in str(error)
                await fleet.aask(GiveTopic(topic, "b1"), broker="b2")  # the cordon was not known yet
                return False

            await until(refused)
            await fleet.aask(UncordonBroker("b2"))

    asyncio.run(scenario())


def test_a_target_that_cannot_load_the_processor_refuses(fleet, topic, modules):
    """The topic is served by its host as before."""
    (modules / f"{topic[:-2]}_once.py").write_text("def echo(message, spool):\n    return message.data\n")

    async def scenario():
        got = []
        async with fleet.client("gift", "b1") as client:
            await client.create_topic(topic, broker="b1", processor=f"{topic[:-2]}_once:echo")
            await client.subscribe(topic, lambda m: got.append(m.text))
            (modules / f"{topic[:-2]}_once.py").unlink()

            with pytest.raises(BadInput, match=f"{topic[:-2]}_once"):
                await fleet.aask(GiveTopic(topic, "b2"), broker="b1")
            await client.publish(topic, "still here")
            await until(lambda: got == ["still here"])

    asyncio.run(scenario())
