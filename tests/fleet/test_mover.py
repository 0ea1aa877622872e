"""Records of moves, and moves that end although something fails that nobody foresaw."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace

import pytest

from helpers.keeper import Bucket, keeper_of
from helpers.waiting import until
from trimtab.errors import Unreachable
from trimtab.fleet.hub import mover as mover_module
from trimtab.fleet.operator import Operator
from trimtab.fleet.protocol import move_executor as executor_module
from trimtab.fleet.protocol.admin_verbs import ListMoves, MoveRecords
from trimtab.fleet.protocol.entries import Topic
from trimtab.fleet.protocol.registry import topic_entry
from trimtab.migrate.move import Move, Phase, Succeeded, Switch
from trimtab.model.key import Key


def move(number, phase=Phase.PLANNED):
    return Move(f"m{number}", Key("topic", f"t{number}", ""), "b1", "b2", phase=phase)


@pytest.fixture
def short(monkeypatch):
    """Two records are kept, and finished ones at once dropped."""
    monkeypatch.setattr(mover_module, "HISTORY", 2)
    monkeypatch.setattr(mover_module, "KEPT_S", 0.0)


def kept(mover):
    return [record.id for record in mover.newest(100)]


def test_only_records_of_finished_moves_are_dropped_the_oldest_first(short):
    async def scenario():
        mover = keeper_of("b1", "b2").mover
        await mover.load(Bucket())
        for number in range(5):
            await mover._record(move(number))
        assert kept(mover) == ["m0", "m1", "m2", "m3", "m4"]
        for number in (3, 0, 1):
            await mover._record(replace(move(number), phase=Phase.DONE))
        assert kept(mover) == sorted(mover._bucket.entries) == ["m2", "m4"]

    asyncio.run(scenario())


def test_a_record_is_kept_for_a_while_for_the_process_that_ordered_the_move(short, monkeypatch):
    monkeypatch.setattr(mover_module, "KEPT_S", 60.0)

    async def scenario():
        mover = keeper_of("b1", "b2").mover
        for number in range(5):
            await mover._record(move(number, Phase.DONE))
        assert len(kept(mover)) == 5
        later = time.time() + 61.0
        monkeypatch.setattr(mover_module.time, "time", lambda: later)
        await mover._record(move(5))
        assert kept(mover) == ["m4", "m5"]

    asyncio.run(scenario())


def test_a_restarted_executor_loads_every_unfinished_move(short):
    async def scenario():
        bucket, first = Bucket(), keeper_of("b1", "b2").mover
        await first.load(bucket)
        for number in range(4):
            await first._record(move(number, Phase.PREPARING))
        for number in range(4, 8):
            await first._record(move(number, Phase.DONE))

        mover = keeper_of("b1", "b2").mover
        await mover.load(bucket)
        assert kept(mover) == sorted(bucket.entries) == ["m0", "m1", "m2", "m3"]
        assert mover.under_way == 4

    asyncio.run(scenario())


class Asked(Operator):
    """Answers from a keeper, after ``before_each`` has done what happens meanwhile."""

    def __init__(self, keeper, before_each):
        super().__init__(keeper.connection)
        self._keeper = keeper
        self._before_each = before_each

    async def ask(self, request, wait_s=1.0, *, broker=""):
        assert isinstance(request, ListMoves)
        await self._before_each()
        return MoveRecords(self._keeper.mover.records(request.ids), 0)


def test_a_record_that_was_seen_to_be_over_is_not_needed_again():
    async def scenario():
        keeper = keeper_of("b1", "b2")
        mover = keeper.mover
        await mover._record(move(0, Phase.DONE))
        await mover._record(move(1))
        looks = 0

        async def meanwhile():
            nonlocal looks
            looks += 1
            if looks == 2:  # the first record is dropped before the second move ends
                del mover._records["m0"]
                await mover._record(move(1, Phase.DONE))

        records = await Asked(keeper, meanwhile).finished(["m0", "m1", "m0"])
        assert [record.id for record in records] == ["m0", "m1", "m0"]

    asyncio.run(scenario())


def test_a_lost_record_is_told_once_the_other_moves_are_over():
    async def scenario():
        keeper = keeper_of("b1", "b2")
        await keeper.mover._record(move(1, Phase.DONE))

        async def meanwhile():
            pass

        with pytest.raises(Unreachable, match="lost the records of 1 of 2 moves, such as m0") as caught:
            await Asked(keeper, meanwhile).finished(["m0", "m1"], limit_s=5.0)
        assert caught.value.changed

    asyncio.run(scenario())


class Faulty(KeyError):
    """Nobody foresaw it."""


async def broken(monkeypatch, topic, phases, seconds=0.5):
    """Run a move of a topic in which every instruction of these phases fails unexpectedly."""
    monkeypatch.setattr(executor_module, "AGAIN_S", 0.0)
    keeper = keeper_of("b1", "b2")
    await keeper.write(topic_entry(topic.name), topic)
    mover = keeper.mover
    perform = mover._perform

    async def performed(move, instruction):
        if move.phase in phases:
            raise Faulty("oh")
        return await perform(move, instruction) if isinstance(instruction, Switch) else Succeeded()

    monkeypatch.setattr(mover, "_perform", performed)
    key = Key("topic", topic.name, "")
    await mover.start(mover.plan(key, "b2"))
    with contextlib.suppress(AssertionError):
        await until(lambda: not mover.moving(key), seconds)
    (record,) = mover.newest(9)
    await mover.stop()
    return keeper, mover.moving(key), record


@pytest.mark.parametrize(
    ("phases", "phase", "broker", "while_"),
    [
        ({Phase.PREPARING}, Phase.ROLLED_BACK, "b1", "preparing"),
        ({Phase.HANDING_OVER, Phase.ROLLING_BACK}, Phase.ROLLED_BACK, "b1", "rolling back"),
        ({Phase.DRAINING}, Phase.DONE, "b2", "draining"),
        ({Phase.DONE}, Phase.DONE, "b2", "done"),
    ],
)
def test_a_move_ends_after_an_exception_that_nobody_foresaw(monkeypatch, phases, phase, broker, while_):
    """Its key can be moved again."""

    async def scenario():
        keeper, moving, record = await broken(monkeypatch, Topic("cam", "b1", processor="a:b"), phases)
        assert not moving
        assert (record.phase, record.reason) == (phase, f"it failed while {while_}: Faulty 'oh'")
        assert keeper.registry.topic("cam").broker == broker
        keeper.mover.plan(Key("topic", "cam", ""), "b2" if broker == "b1" else "b1")

    asyncio.run(scenario())


@pytest.mark.slow
def test_stored_messages_that_are_not_all_at_the_target_are_not_given_up(monkeypatch):
    async def scenario():
        topic = Topic("cam", "b1", persistent=True)
        keeper, moving, record = await broken(monkeypatch, topic, {Phase.ACTIVATING})
        assert moving
        assert record.phase == Phase.ACTIVATING
        assert keeper.registry.topic("cam").broker == "b2"

    asyncio.run(scenario())


@pytest.mark.parametrize("phase", [Phase.PREPARING, Phase.HANDING_OVER, Phase.SWITCHING, Phase.ROLLING_BACK])
def test_a_move_whose_source_and_target_are_dead_ends_and_its_key_can_be_placed_elsewhere(monkeypatch, phase):
    monkeypatch.setattr(executor_module, "AGAIN_S", 0.0)

    async def scenario():
        keeper = keeper_of("b3", away=("b1", "b2"))
        await keeper.write(topic_entry("cam"), Topic("cam", "b1", processor="a:b"))
        mover, bucket = keeper.mover, Bucket()
        await mover.load(bucket)
        await mover._record(Move("m0", Key("topic", "cam", ""), "b1", "b2", stateful=True, phase=phase))
        mover._records.clear()
        await mover.load(bucket)
        mover.resume()

        await until(lambda: not mover.moving(Key("topic", "cam", "")), 5.0)
        (record,) = mover.newest(9)
        if phase in (Phase.HANDING_OVER, Phase.SWITCHING):  # the target was prepared, and is found dead later
            assert (record.phase, keeper.registry.topic("cam").broker) == (Phase.DONE, "b2")
        else:
            assert (record.phase, keeper.registry.topic("cam").broker) == (Phase.ROLLED_BACK, "b1")
        assert mover.plan(Key("topic", "cam", ""), "b3").takeover

    asyncio.run(scenario())
