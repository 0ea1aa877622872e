"""The leader's lease: who takes it and when, by clocks that tests turn; in memory and in a real bucket."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

import pytest
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

from trimtab.control.lease import RENEW_S, VALID_S, LeaderLease


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Entry:
    value: bytes
    revision: int


@dataclass
class Bucket:
    """Compare-and-set in memory; ``before_update`` runs between a candidate's look and its attempt."""

    entry: Entry | None = None
    before_update: list = field(default_factory=list)

    async def get(self, key):
        if self.entry is None:
            raise KeyNotFoundError
        return Entry(self.entry.value, self.entry.revision)

    async def update(self, key, value, last=None):
        if self.before_update:
            await self.before_update.pop()()
        revision = self.entry.revision if self.entry else 0
        if (last or 0) != revision:
            raise KeyWrongLastSequenceError
        self.entry = Entry(value, revision + 1)
        return revision + 1


async def a_holder_that_renews_keeps_it(bucket):
    clock = Clock()
    one, two = LeaderLease(bucket, "one", clock), LeaderLease(bucket, "two", clock)
    for _ in range(20):  # far longer than it is valid
        assert await one.try_to_hold()
        assert not await two.try_to_hold()
        assert one.held
        assert not two.held
        clock.now += RENEW_S


async def it_is_taken_over_when_nobody_has_renewed_it_for_as_long_as_it_is_valid(bucket):
    clock = Clock()
    one, two = LeaderLease(bucket, "one", clock), LeaderLease(bucket, "two", clock)
    assert await one.try_to_hold()
    assert not await two.try_to_hold()  # has seen it now
    clock.now += VALID_S
    assert not await two.try_to_hold()
    assert not one.held  # gave up before anybody else may lead
    clock.now += 0.01
    assert await two.try_to_hold()
    assert two.held
    assert not await one.try_to_hold()
    assert not one.held


async def a_renewal_makes_a_standby_wait_from_the_start(bucket):
    clock = Clock()
    one, two = LeaderLease(bucket, "one", clock), LeaderLease(bucket, "two", clock)
    assert await one.try_to_hold()
    assert not await two.try_to_hold()
    clock.now += VALID_S - 0.01
    assert await one.try_to_hold()
    clock.now += 0.02  # longer than it is valid since the standby saw it first, but not since it was renewed
    assert not await two.try_to_hold()
    clock.now += VALID_S
    assert not await two.try_to_hold()  # since it has seen the renewal
    clock.now += 0.01
    assert await two.try_to_hold()


async def a_newcomer_waits_although_the_lease_is_old(bucket):
    clock = Clock()
    assert await LeaderLease(bucket, "one", clock).try_to_hold()
    clock.now += 10 * VALID_S
    late = LeaderLease(bucket, "late", clock)
    assert not await late.try_to_hold()  # when it was renewed, it cannot know
    clock.now += VALID_S + 0.01
    assert await late.try_to_hold()


async def a_holder_that_was_late_takes_it_again_if_nobody_else_has(bucket):
    clock = Clock()
    one = LeaderLease(bucket, "one", clock)
    assert not one.held
    assert await one.try_to_hold()
    clock.now += 0.75 * VALID_S - 0.01
    assert one.held
    clock.now += 0.02
    assert not one.held
    assert await one.try_to_hold()
    assert one.held


async def what_is_given_back_is_free_at_once(bucket):
    clock = Clock()
    one, two = LeaderLease(bucket, "one", clock), LeaderLease(bucket, "two", clock)
    assert await one.try_to_hold()
    assert not await two.try_to_hold()
    await one.give_back()
    assert not one.held
    assert await two.try_to_hold()
    assert not await one.try_to_hold()
    await one.give_back()  # which it does not hold
    assert two.held
    assert await two.try_to_hold()


async def clocks_need_not_agree(bucket):
    early, late = Clock(5.0), Clock(5e9)
    one, two = LeaderLease(bucket, "one", early), LeaderLease(bucket, "two", late)
    assert await one.try_to_hold()
    assert not await two.try_to_hold()
    late.now += VALID_S + 0.01
    early.now += VALID_S + 0.01
    assert await two.try_to_hold()
    assert not await one.try_to_hold()


SCENES = [
    a_holder_that_renews_keeps_it,
    it_is_taken_over_when_nobody_has_renewed_it_for_as_long_as_it_is_valid,
    a_renewal_makes_a_standby_wait_from_the_start,
    a_newcomer_waits_although_the_lease_is_old,
    a_holder_that_was_late_takes_it_again_if_nobody_else_has,
    what_is_given_back_is_free_at_once,
    clocks_need_not_agree,
]
each_scene = pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)


@each_scene
def test_in_memory(scene):
    asyncio.run(scene(Bucket()))


_numbers = itertools.count()


@each_scene
def test_in_a_real_bucket(fleet, scene):
    async def run():
        jetstream = (await fleet.launch.admin()).jetstream()
        await scene(await jetstream.create_key_value(bucket=f"lease{next(_numbers)}"))

    fleet.do(run())


@pytest.mark.parametrize("begun", [False, True], ids=["never held", "free again"])
def test_of_two_who_see_it_free_one_takes_it(begun):
    async def scene():
        clock, bucket = Clock(), Bucket()
        one, two = LeaderLease(bucket, "one", clock), LeaderLease(bucket, "two", clock)
        if begun:
            assert await one.try_to_hold()
            await one.give_back()
        bucket.before_update.append(two.try_to_hold)

        assert not await one.try_to_hold()
        assert not one.held
        assert two.held

    asyncio.run(scene())
