"""The agent of one broker that gives and takes topics; the test answers and asks as the agent of the other broker."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import pytest

from helpers.nats_server import PASSWORD, NatsServer
from helpers.waiting import until
from trimtab.errors import BadInput, Moving, Unreachable
from trimtab.fleet.broker import peer_moves as module
from trimtab.fleet.broker.agent import Agent, Replica
from trimtab.fleet.broker.host import HostState
from trimtab.fleet.protocol import coding, subjects, wire
from trimtab.fleet.protocol import move_executor as executor_module
from trimtab.fleet.protocol.agent_verbs import (
    AcceptTopic,
    OfferTopic,
    Ping,
    Pong,
    PrepareTopic,
    ReleaseTopic,
    ResumeTopic,
    RetireTopic,
    TakeState,
)
from trimtab.fleet.protocol.entries import BrokerEntry, Change, CordonEntry, Topic
from trimtab.fleet.protocol.registry import broker_entry, cordon_entry, topic_entry
from trimtab.fleet.protocol.request import Done
from trimtab.observe.report import BrokerReport, TopicReport

CAM = topic_entry("cam")
WORKED = {"processor": "helpers.processors:echo"}
ABOUT = BrokerEntry([], cores=2.0, bandwidth=1000.0)


@pytest.fixture
def server(tmp_path_factory, nats_server):
    running = NatsServer(tmp_path_factory.mktemp("n"))
    yield running
    running.kill()


@asynccontextmanager
async def agent_of(server, folder, *, at="b1", **settings):
    """The agent of b1, which knows b2, and a topic at ``at`` with revision 5; and a connection of the test."""
    url = "nats://{}:{}".format(*server.server.address)
    opened = [await wire.connect([url], "me", PASSWORD, name=name) for name in ("agent", "test")]
    agent = Agent("b1", opened[0], [], ABOUT, folder / "replica.json")
    for revision, broker in enumerate(("b1", "b2"), 1):
        agent.registry.apply(broker_entry(broker), ABOUT, revision)
    agent.registry.apply(CAM, Topic("cam", at, **settings), 5)
    await wire.serve(agent.connection, [*agent.hosting.handlers(), *agent.peer_moves.handlers()], broker="b1")
    await agent.connection.subscribe(subjects.PROBE, cb=agent._probe)
    await settled(agent.connection)
    await agent.hosting.settle()
    try:
        yield agent, opened[1]
    finally:
        await agent.peer_moves.stop()
        await agent.hosting.stop()
        for connection in opened:
            await wire.close(connection)


async def settled(connection):
    """Wait until the server has the connection's subscriptions: nats-py sends a PING ahead of what it has buffered."""
    for _ in range(2):
        await connection.flush()


def on_disk(agent):
    changes = coding.decode(agent._replica.read_bytes(), Replica).changes if agent._replica.exists() else []
    return next((change for change in changes if change.name == CAM), None)


class Target:
    """The agent of b2. Refuses what it has an error for, and notes what it gets."""

    def __init__(self, connection, agent) -> None:
        self.got = []
        self.errors = {}
        self.decided = []  # what the giver had on disk at each order
        self._connection = connection
        self._agent = agent

    async def serve(self, *kinds):
        async def answer(order):
            self.got.append(type(order))
            self.decided.append(on_disk(self._agent))
            if (error := self.errors.get(type(order))) is not None:
                raise error
            return Done()

        await wire.serve(self._connection, [kind.answered_by(answer) for kind in kinds], broker="b2")
        await settled(self._connection)


def test_the_decision_is_on_disk_before_the_target_may_serve_and_is_repeated_until_it_answers(server, tmp_path):
    async def scenario():
        async with agent_of(server, tmp_path, **WORKED) as (agent, connection):
            target = Target(connection, agent)
            await target.serve(OfferTopic, TakeState, RetireTopic)
            giving = asyncio.create_task(agent.peer_moves.give("cam", "b2"))
            await until(lambda: on_disk(agent) is not None)
            assert target.got == [OfferTopic, TakeState]
            assert target.decided == [None, None]
            assert (agent.registry.version(CAM), agent.peer_moves.moving) == ((5, 1), {"cam"})
            assert not agent.hosting.hosts["cam"].live
            with pytest.raises(Moving, match="'b1' is giving topic 'cam' to another broker"):
                await agent.hosting.release(ReleaseTopic("m", "cam", "b3"))
            await agent.hosting.resume(ResumeTopic("cam"))
            assert not agent.hosting.hosts["cam"].live

            await target.serve(AcceptTopic)
            await giving
            assert target.got == [OfferTopic, TakeState, AcceptTopic]
            assert target.decided[-1] == Change.of(CAM, Topic("cam", "b2", **WORKED), 5, 1)
            assert (agent.hosting.hosts, agent.peer_moves.moving) == ({}, set())

    asyncio.run(scenario())


def test_a_later_change_of_the_keeper_ends_the_wait_for_a_target_that_is_gone(server, tmp_path):
    async def scenario():
        async with agent_of(server, tmp_path) as (agent, connection):
            await Target(connection, agent).serve(OfferTopic)
            giving = asyncio.create_task(agent.peer_moves.give("cam", "b2"))
            await until(lambda: on_disk(agent) is not None)

            agent.registry.apply(CAM, Topic("cam", "b3"), 6)
            await giving
            assert agent.registry.version(CAM) == (6, 0)

    asyncio.run(scenario())


def test_a_queue_that_takes_too_long_ends_the_gift(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "HAND_OVER_S", 0.2)
    slow = {"processor": "burn?ms=1500", "limit_ms": 60_000}

    async def scenario():
        async with agent_of(server, tmp_path, **slow) as (agent, connection):
            await Target(connection, agent).serve(OfferTopic, RetireTopic)
            done = []

            async def heard(message):
                done.append(message.data)

            await connection.subscribe(subjects.deliver("cam"), cb=heard)
            for number in (b"1", b"2"):
                await connection.publish(subjects.work("cam"), number)
            await until(lambda: agent.hosting.hosts["cam"]._processor.backlog == 2)
            with pytest.raises(BadInput, match=r"'b1' has not handed over topic 'cam' within 0\.2 s"):
                await agent.peer_moves.give("cam", "b2")
            assert agent.hosting.hosts["cam"].live
            await connection.publish(subjects.work("cam"), b"3")
            await until(lambda: done == [b"1", b"2", b"3"])

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("answer", "handed_over", "dropped"),
    [
        ({"cam": True}, True, True),  # the giver serves the topic, so the move has failed
        ({"cam": False}, False, False),  # the move is under way
        ({}, True, False),  # the giver was started again, and may have decided
        ({}, False, True),
        (None, True, False),
        (None, False, True),
    ],
)
def test_an_offer_without_a_decision_is_dropped_unless_it_may_have_the_only_state(
    server, tmp_path, answer, handed_over, dropped
):
    async def scenario():
        async with agent_of(server, tmp_path, at="b2", **WORKED) as (agent, connection):
            if answer is not None:

                async def pong(_):
                    return Pong("b2", 1, answer)

                await wire.serve(connection, [Ping.answered_by(pong)], broker="b2")
                await settled(connection)
            await agent.hosting.offer(PrepareTopic("m", Topic("cam", "b2", **WORKED), "b2"), (5, 0))
            offer = agent.hosting.offers["cam"]
            offer.handed_over = handed_over
            assert not await agent.peer_moves._is_void("cam", offer)  # ordered lately
            agent.hosting.settled("cam")
            assert await agent.peer_moves._is_void("cam", offer) == dropped

            agent.registry.apply(CAM, Topic("cam", "b1", **WORKED), 6)
            assert not await agent.peer_moves._is_void("cam", offer)  # it is served here in a moment
            agent.registry.apply(CAM, Topic("cam", "b3", **WORKED), 7)
            assert await agent.peer_moves._is_void("cam", offer)

    asyncio.run(scenario())


def test_a_topic_that_the_keeper_leaves_here_is_served_here(server, tmp_path):
    """The keeper has changed its bound while the giver decided."""

    async def scenario():
        async with agent_of(server, tmp_path, **WORKED) as (agent, connection):
            await Target(connection, agent).serve(OfferTopic, TakeState)
            giving = asyncio.create_task(agent.peer_moves.give("cam", "b2"))
            await until(lambda: on_disk(agent) is not None)

            agent.registry.apply(CAM, Topic("cam", "b1", latency_ms=5.0, **WORKED), 6)
            with pytest.raises(BadInput, match="topic 'cam' stays at 'b1': the hub has changed its entry meanwhile"):
                await giving
            assert agent.hosting.hosts["cam"].live

    asyncio.run(scenario())


def test_a_gift_whose_target_does_not_answer_goes_on_after_the_caller_was_told(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GIVE_S", 0.2)

    async def scenario():
        async with agent_of(server, tmp_path) as (agent, connection):
            target = Target(connection, agent)
            await target.serve(OfferTopic)
            with pytest.raises(Unreachable, match="topic 'cam' is given to 'b2', which has not answered yet") as caught:
                await agent.peer_moves.give("cam", "b2")
            assert caught.value.changed

            await target.serve(AcceptTopic)
            await until(lambda: not agent.peer_moves.moving)

    asyncio.run(scenario())


@pytest.mark.parametrize("refused", [OfferTopic, TakeState])
def test_a_target_that_refuses_leaves_the_topic_here(server, tmp_path, refused):
    async def scenario():
        async with agent_of(server, tmp_path, **WORKED) as (agent, connection):
            target = Target(connection, agent)
            target.errors[refused] = BadInput("no room")
            await target.serve(OfferTopic, TakeState, RetireTopic)
            with pytest.raises(BadInput, match="no room"):
                await agent.peer_moves.give("cam", "b2")

            assert target.got[-1] is RetireTopic
            assert agent.hosting.hosts["cam"].live
            assert (on_disk(agent), agent.registry.version(CAM)) == (None, (5, 0))

    asyncio.run(scenario())


def test_a_target_that_is_not_there_is_unreachable(server, tmp_path):
    async def scenario():
        async with agent_of(server, tmp_path) as (agent, _):
            with pytest.raises(Unreachable, match=r"nobody answers to 'ask\.b2\.offer'"):
                await agent.peer_moves.give("cam", "b2")
            assert agent.registry.version(CAM) == (5, 0)

    asyncio.run(scenario())


def test_without_the_decision_on_disk_there_is_none(server, tmp_path):
    """The disk is full, or broken."""
    (tmp_path / "file").write_text("")

    async def scenario():
        async with agent_of(server, tmp_path / "file", **WORKED) as (agent, connection):
            target = Target(connection, agent)
            await target.serve(OfferTopic, TakeState, RetireTopic, AcceptTopic)
            with pytest.raises(BadInput, match="'b1' cannot write the change to its disk"):
                await agent.peer_moves.give("cam", "b2")

            assert target.got == [OfferTopic, TakeState, RetireTopic]
            assert (agent.registry.version(CAM), agent.hosting.hosts["cam"].live) == ((5, 0), True)

    asyncio.run(scenario())


def test_a_topic_that_the_keeper_moves_meanwhile_is_not_given(server, tmp_path):
    async def scenario():
        async with agent_of(server, tmp_path) as (agent, connection):

            async def moved(_):
                agent.registry.apply(CAM, Topic("cam", "b3"), 6)
                return Done()

            await wire.serve(connection, [OfferTopic.answered_by(moved)], broker="b2")
            await settled(connection)
            with pytest.raises(BadInput, match="topic 'cam' was deleted or moved by the hub meanwhile"):
                await agent.peer_moves.give("cam", "b2")
            assert on_disk(agent) is None

    asyncio.run(scenario())


def test_a_fault_of_the_agent_leaves_the_topic_here(server, tmp_path, monkeypatch):
    monkeypatch.setattr(executor_module, "AGAIN_S", 0.0)

    async def scenario():
        async with agent_of(server, tmp_path, **WORKED) as (agent, connection):
            target = Target(connection, agent)
            await target.serve(OfferTopic, TakeState, RetireTopic)

            async def broken(*_):
                raise KeyError("nobody foresaw it")

            monkeypatch.setattr(agent.peer_moves, "_switch", broken)
            with pytest.raises(BadInput, match="it failed while switching: KeyError 'nobody foresaw it'"):
                await agent.peer_moves.give("cam", "b2")
            assert (agent.hosting.hosts["cam"].live, agent.peer_moves.moving) == (True, set())

    asyncio.run(scenario())


def test_a_broker_gives_a_bounded_number_of_topics_at_once(server, tmp_path):
    async def scenario():
        async with agent_of(server, tmp_path) as (agent, connection):
            for number in range(5):
                agent.registry.apply(topic_entry(f"t{number}"), Topic(f"t{number}", "b1"), 10 + number)
            waiting = asyncio.Event()

            async def answer(_):
                await waiting.wait()
                return Done()

            kinds = (OfferTopic, AcceptTopic)
            await wire.serve(connection, [kind.answered_by(answer) for kind in kinds], broker="b2")
            await settled(connection)
            giving = [asyncio.create_task(agent.peer_moves.give(f"t{number}", "b2")) for number in range(4)]
            await until(lambda: len(agent.peer_moves.moving) == 4)
            with pytest.raises(BadInput, match="'b1' gives 4 topics away already, the most at once"):
                await agent.peer_moves.give("t4", "b2")
            with pytest.raises(Moving, match="topic 't0' is moving already"):
                await agent.peer_moves.give("t0", "b2")

            waiting.set()
            await asyncio.gather(*giving)
            assert [agent.registry.topic(f"t{number}").broker for number in range(5)] == ["b2"] * 4 + ["b1"]

    asyncio.run(scenario())


# Taking.


def current(revision=5, term=0, broker="b2", **settings):
    return Change.of(CAM, Topic("cam", broker, **settings), revision, term)


def test_a_target_with_the_state_waits_for_the_decision(server, tmp_path):
    async def scenario():
        async with agent_of(server, tmp_path, at="b2", **WORKED) as (agent, connection):

            async def ask(order):
                return await wire.ask(connection, order, 5.0, broker="b1")

            state = coding.to_json(HostState("results", 7, {"p": 3}, {}, [], [])).decode()
            await ask(OfferTopic("m", current(**WORKED), "b2"))
            for _ in range(2):  # the giver may repeat it
                await ask(TakeState("m", "cam", 0, 1, state))
            host = agent.hosting.hosts["cam"]
            assert (host.live, agent.hosting.offers["cam"].handed_over) == (False, True)
            agent.hosting.settled("cam")  # a long time later
            agent.hosting._swept = time.monotonic()  # this server has no stored topics
            await agent.hosting.sweep()
            assert agent.hosting.hosts["cam"] is host

            for _ in range(2):
                await ask(AcceptTopic(current(5, 1, "b1", **WORKED)))
            assert (host.live, host._results, agent.hosting.offers) == (True, 7, {})
            assert on_disk(agent).version == agent.registry.version(CAM) == (5, 1)

            agent.registry.apply(CAM, Topic("cam", "b2", **WORKED), 6)
            announced = []

            async def heard(message):
                announced.append(coding.decode(message.data, Change).version)

            await connection.subscribe(subjects.change(CAM), cb=heard)
            with pytest.raises(BadInput, match="'b1' has a later change of topic 'cam'"):
                await ask(AcceptTopic(current(5, 1, "b1", **WORKED)))  # the keeper has placed it elsewhere
            assert agent.registry.version(CAM) == (6, 0)
            await until(lambda: announced == [(6, 0)])
            with pytest.raises(BadInput, match=r"'topic\.cam' was not given to 'b1'"):
                await ask(AcceptTopic(current(7, 1, "b2", **WORKED)))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("prepare", "sentence"),
    [
        (lambda a: a.registry.apply(CAM, Topic("cam", "b3"), 6), "'b2' has missed a change of topic 'cam'"),
        (lambda a: a.registry.apply(cordon_entry("b1"), CordonEntry("", 0.0), 6), "broker 'b1' is cordoned"),
        (lambda a: a.hosting.moving.add("cam"), "topic 'cam' is moving already"),
        (lambda a: a.peer_moves.moving.add("cam"), "topic 'cam' is moving already"),
        (
            lambda a: setattr(a, "report", BrokerReport("b1", 0.0, 2.0, 1.0, topics={"x": TopicReport(busy_s=1.8)})),
            "broker 'b1' is full: it uses 1.9 of its 2 cores",
        ),
        (
            lambda a: setattr(a, "report", BrokerReport("b1", 0.0, 2.0, in_bytes=1500, out_bytes=500)),
            "it uses 1,000 of its 1,000 bytes/s",
        ),
        (
            lambda a: a.hosting.offers.update(dict.fromkeys("abcd")),
            "broker 'b1' takes 4 topics already, the most at once",
        ),
    ],
)
def test_an_offer_that_cannot_be_taken_is_refused_with_the_reason(server, tmp_path, prepare, sentence):
    async def scenario():
        async with agent_of(server, tmp_path, at="b2", **WORKED) as (agent, connection):
            prepare(agent)
            with pytest.raises(BadInput, match=sentence):
                await wire.ask(connection, OfferTopic("m", current(**WORKED), "b2"), 5.0, broker="b1")
            assert agent.hosting.hosts == {}

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "offered",
    [
        current(broker="b3"),
        current(persistent=True),
        current(unit="client"),
        Change.of(CAM, None, 5),
        Change.of(broker_entry("b2"), ABOUT, 5),
    ],
)
def test_only_a_host_can_offer_a_topic(server, tmp_path, offered):
    async def scenario():
        async with agent_of(server, tmp_path, at="b2") as (_, connection):
            with pytest.raises(BadInput, match="'b2' cannot give away"):
                await wire.ask(connection, OfferTopic("m", offered, "b2"), 5.0, broker="b1")

    asyncio.run(scenario())


def test_a_second_offer_does_not_use_the_state_of_the_first_one(server, tmp_path):
    async def scenario():
        async with agent_of(server, tmp_path, at="b2", **WORKED) as (agent, _):
            order = PrepareTopic("m", Topic("cam", "b2", **WORKED), "b2")
            await agent.hosting.offer(order, (5, 0))
            first = agent.hosting.hosts["cam"]
            await agent.hosting.offer(order, (5, 0))
            assert agent.hosting.hosts["cam"] is not first

            await agent.hosting.hosts["cam"].resume()  # processing here, after a move that the hub has not ended
            agent.hosting.offers.clear()
            with pytest.raises(Moving, match="'b1' processes topic 'cam' still"):
                await agent.hosting.offer(order, (5, 0))

    asyncio.run(scenario())


def test_the_end_of_another_move_leaves_an_offer(server, tmp_path):
    """The keeper has ordered a move to this broker, which the giver refuses."""

    async def scenario():
        async with agent_of(server, tmp_path, at="b2", **WORKED) as (agent, _):
            await agent.hosting.offer(PrepareTopic("m", Topic("cam", "b2", **WORKED), "b2"), (5, 0))
            await agent.hosting.retire(RetireTopic("cam", "b1", "of the keeper"))
            assert (list(agent.hosting.hosts), list(agent.hosting.offers)) == (["cam"], ["cam"])

            await agent.hosting.retire(RetireTopic("cam", "b1", "m"))
            assert (agent.hosting.hosts, agent.hosting.offers) == ({}, {})

    asyncio.run(scenario())


def test_an_agent_announces_what_it_was_given_and_what_it_gave(server, tmp_path, monkeypatch):
    """The keeper does not answer, and an earlier announcement was lost."""
    monkeypatch.setattr(module, "CHECK_S", 0.02)

    async def scenario():
        async with agent_of(server, tmp_path) as (agent, connection):
            target = Target(connection, agent)
            agent.registry.apply(CAM, Topic("cam", "b2"), 5, term=1)
            agent.registry.apply(topic_entry("gps"), Topic("gps", "b1"), 5, term=3)
            announced = []

            async def heard(message):
                announced.append(coding.decode(message.data, Change).version)

            await connection.subscribe("route.topic.gps", cb=heard)
            await settled(connection)
            agent.peer_moves.start()
            running = asyncio.create_task(agent.peer_moves.run())
            await until(lambda: announced)
            await target.serve(AcceptTopic)

            await until(lambda: target.got == [AcceptTopic])
            await until(lambda: not agent.peer_moves._unanswered)
            assert set(announced) == {(5, 3)}
            agent.registry.apply(topic_entry("gps"), Topic("gps", "b1"), 6)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())


# The replica.


@pytest.mark.parametrize(("complete", "revision"), [(7, 7), (None, 9)])
def test_a_replica_on_disk_knows_terms_and_up_to_where_it_is_complete(tmp_path, complete, revision):
    """A change that came over the mesh is stored too, although the ones before it may be missing."""
    changes = [current(7), current(7, 2, "b3"), Change.of(broker_entry("b2"), ABOUT, 9)]
    (tmp_path / "replica.json").write_bytes(coding.to_json(Replica(changes, complete)))
    agent = Agent("b1", None, [], ABOUT, tmp_path / "replica.json")
    agent._load_replica()

    assert (agent.registry.revision, agent.registry.version(CAM)) == (revision, (7, 2))
    assert agent.registry.interim() == [current(7, 2, "b3")]


def test_without_the_hub_a_probe_waits_for_all_brokers(tmp_path):
    agent = Agent("b1", None, [], ABOUT, tmp_path / "replica.json")
    agent.registry.apply(broker_entry("b2"), ABOUT, 1)

    assert agent.peers() == ["b1", "b2"]
    agent._hub_seen = time.monotonic()
    assert agent.peers() == ["b1", "hub"]
