"""What the keeper makes of the placements of brokers that could not reach it."""

from __future__ import annotations

import asyncio

import pytest

from helpers.keeper import keeper_of
from trimtab.errors import BadInput
from trimtab.fleet.hub.interim import REASON
from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.protocol.entries import Change, Topic
from trimtab.fleet.protocol.hub_verbs import Sync
from trimtab.fleet.protocol.registry import topic_entry
from trimtab.migrate.move import Move, Phase, Succeeded
from trimtab.model.key import Key

CAM, KEY = topic_entry("cam"), Key("topic", "cam", "")


async def hosting(*alive, away=(), **settings):
    """A keeper that knows the topic to be at b1, and the revision of its entry."""
    keeper = keeper_of(*alive, away=away)
    await keeper.write(CAM, Topic("cam", "b1", **settings))
    return keeper, keeper.registry.at(CAM)


async def sync(keeper, broker, *changes):
    return await keeper._sync(Sync(broker, 0, interim=changes))


def given_to(broker, revision, term=1):
    return Change.of(CAM, Topic("cam", broker), revision, term)


def records(keeper):
    return [(record.source, record.target, record.phase, record.reason) for record in keeper.mover.newest(9)]


def test_the_hosts_placement_becomes_a_change_of_the_keeper_with_a_record():
    async def scenario():
        keeper, revision = await hosting("b1", "b2")
        news = await sync(keeper, "b2", given_to("b2", revision))

        assert (keeper.registry.topic("cam").broker, keeper.registry.version(CAM)) == ("b2", (revision + 1, 0))
        subject, data = keeper.connection.published[-1]
        published = coding.decode(data, Change)
        assert (subject, published.entry(), published.version) == (subjects.change(CAM), Topic("cam", "b2"), (4, 0))
        assert published.name in [change.name for change in news.changes]
        assert records(keeper) == [("b1", "b2", "done", REASON)]

        await sync(keeper, "b2", given_to("b2", revision))  # the reply to the first one was lost
        assert (keeper.registry.at(CAM), len(records(keeper))) == (revision + 1, 1)

    asyncio.run(scenario())


def test_the_highest_term_counts_although_a_lower_one_comes_first():
    """Only the present host's word counts, as long as it is alive."""

    async def scenario():
        keeper, revision = await hosting("b1", "b2", "b3")
        await sync(keeper, "b1", given_to("b2", revision, 1))
        assert keeper.registry.topic("cam").broker == "b1"
        await sync(keeper, "b2", given_to("b3", revision, 2))
        assert keeper.registry.topic("cam").broker == "b1"
        await sync(keeper, "b3", given_to("b3", revision, 2))
        await sync(keeper, "b1", given_to("b2", revision, 1))

        assert records(keeper) == [("b1", "b3", "done", REASON)]
        assert keeper.registry.topic("cam").broker == "b3"

    asyncio.run(scenario())


@pytest.mark.parametrize("late", ["b1", "b2"])
def test_the_word_of_others_counts_if_the_host_is_dead(late):
    async def scenario():
        keeper, revision = await hosting("b1", "b2", away=("b3",))
        words = {"b1": given_to("b2", revision, 1), "b2": given_to("b3", revision, 2)}
        first = "b2" if late == "b1" else "b1"
        await sync(keeper, first, words[first])
        await sync(keeper, late, words[late])

        assert keeper.registry.topic("cam").broker == "b3"
        assert records(keeper) == [("b1", "b3", "done", REASON)]

    asyncio.run(scenario())


def test_a_host_that_may_call_yet_is_waited_for():
    """A keeper that has just started does not know who is alive."""

    async def scenario():
        keeper, revision = await hosting("b1", "b2", away=("b3",))
        keeper.presence._listened = 0.0
        await sync(keeper, "b1", given_to("b3", revision))

        assert keeper.registry.topic("cam").broker == "b1"

    asyncio.run(scenario())


def test_a_later_change_of_the_keeper_wins():
    async def scenario():
        keeper, revision = await hosting("b1", "b2", "b3")
        await keeper.write(CAM, Topic("cam", "b3"))
        await sync(keeper, "b2", given_to("b2", revision))

        assert (keeper.registry.topic("cam").broker, records(keeper)) == ("b3", [])

    asyncio.run(scenario())


def test_a_topic_in_a_move_is_taken_over_when_the_move_is_over():
    async def scenario():
        keeper, revision = await hosting("b1", "b2", "b3")
        move = keeper.mover.plan(KEY, "b3")
        await sync(keeper, "b2", given_to("b2", revision))
        assert keeper.registry.topic("cam").broker == "b1"

        keeper.mover.forget([move])
        await sync(keeper, "b2", given_to("b2", revision))
        assert keeper.registry.topic("cam").broker == "b2"

    asyncio.run(scenario())


def test_what_no_broker_may_do_is_ignored():
    async def scenario():
        keeper, revision = await hosting("b1", "b2", persistent=True)
        stored = Change.of(CAM, Topic("cam", "b2", persistent=True), revision, 1)
        await sync(keeper, "b2", stored, given_to("b2", revision, 0), Change.of(CAM, None, revision, 2))
        await sync(keeper, "b2", Change.of("topic.gps", Topic("gps", "b2"), 0, 1))

        assert keeper.registry.topics() == {"cam": Topic("cam", "b1", persistent=True)}

    asyncio.run(scenario())


def test_a_write_that_fails_is_tried_again_with_the_next_sync():
    async def scenario():
        keeper, revision = await hosting("b1", "b2")
        keeper._store.failures.append(("update", TimeoutError(), False))
        await sync(keeper, "b2", given_to("b2", revision))
        assert (keeper.registry.topic("cam").broker, records(keeper)) == ("b1", [])

        await sync(keeper, "b2", given_to("b2", revision))
        assert (keeper.registry.topic("cam").broker, len(records(keeper))) == ("b2", 1)

    asyncio.run(scenario())


def test_a_rollback_leaves_a_placement_that_is_not_the_moves_own():
    async def scenario():
        keeper, _ = await hosting("b1", "b2", "b3")
        move = Move("m1", KEY, "b1", "b3", phase=Phase.ROLLING_BACK)
        await keeper.write(CAM, Topic("cam", "b2"))

        assert await keeper.mover._switch(move, "b1") == Succeeded()
        assert keeper.registry.topic("cam").broker == "b2"

    asyncio.run(scenario())


def test_a_topic_that_has_changed_during_the_takeover_stays():
    async def scenario():
        keeper, revision = await hosting("b1", "b2")
        await keeper.write(CAM, Topic("cam", "b1", latency_ms=5.0))

        with pytest.raises(BadInput, match="topic 'cam' has changed meanwhile"):
            await keeper.mover.adopt(KEY, Topic("cam", "b2"), revision, REASON)
        assert not keeper.mover.moving(KEY)

    asyncio.run(scenario())
