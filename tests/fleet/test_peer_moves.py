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
from trimtab.fleet.protocol.agent_verbs import CloseLink, GiveTopic, OpenLink, Ping, ReleaseTopic, ResumeTopic
from trimtab.fleet.protocol.entries import Change, Topic
from trimtab.fleet.protocol.registry import topic_entry
from trimtab.fleet.site.credentials import REPLICA_FILE

SLOW = {"processor": "burn?ms=300", "limit_ms": 60_000}  # its queue takes seconds to finish, so that a test can act


class Fleet(RunningFleet):
    """A fleet whose hub a test may kill, and whose agents it asks over the brokers."""

    def child(self, name):
        return self.launch.supervisor.find(name)

    async def lose_hub(self):
        """Kill the keeper and the hub's server; they are not started again."""
        for broker in self.brokers:  # from then on, an agent goes by the brokers that the hub named last
            async with self.over(broker) as ask:

                async def complete(broker=broker, ask=ask):
                    peers = (await ask(broker, OpenLink("nobody", "nothing", "sub"))).peers
                    return set(self.brokers) <= set(peers)

                await until(complete)
                await ask(broker, CloseLink("nobody", "nothing"))
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
