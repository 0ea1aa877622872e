"""The turnstile keeps the order of publishers, whoever waits and whoever comes."""

from __future__ import annotations

import asyncio
import random
from itertools import count

import pytest

from helpers.waiting import turns
from trimtab.fleet.sdk.turnstile import Turnstile


class Street:
    """Publishers that come to a gate; ``passed`` says in which order they came through."""

    def __init__(self, gate):
        self.gate = gate
        self.passed = []
        self.tasks = []

    def come(self, *who):
        for each in who:
            self.tasks.append(asyncio.create_task(self._pass(each)))
        return self.tasks[-1]

    async def _pass(self, who):
        if self.gate.busy:
            await self.gate.enter()
        self.passed.append(who)

    async def all(self):
        await asyncio.gather(*self.tasks, return_exceptions=True)


def test_an_open_gate_is_not_busy():
    assert not Turnstile().busy
    assert Turnstile(closed=True).busy


def test_nobody_passes_a_closed_gate():
    async def scene():
        street = Street(Turnstile(closed=True))
        street.come(1, 2, 3)
        await turns()
        before = list(street.passed)
        street.gate.open()
        await street.all()
        return before, street.passed, street.gate.busy

    assert asyncio.run(scene()) == ([], [1, 2, 3], False)


def test_who_enters_an_open_gate_passes():
    async def scene():
        gate = Turnstile()
        async with asyncio.timeout(5.0):
            await gate.enter()
        return gate.busy

    assert asyncio.run(scene()) is False


@pytest.mark.parametrize("later", range(6), ids=lambda later: f"{later}-turns-later")
def test_who_comes_while_others_still_wait_passes_behind_them(later):
    """The gate is open again, but those who waited have not run yet."""

    async def scene():
        street = Street(Turnstile(closed=True))
        street.come(1, 2, 3)
        await turns()
        street.come(4)  # has not even begun when the gate opens
        street.gate.open()
        for who in range(5, 5 + later):
            street.come(who)
            await asyncio.sleep(0)
        street.come(99)
        await street.all()
        return street.passed

    assert asyncio.run(scene()) == [1, 2, 3, 4, *range(5, 5 + later), 99]


def test_the_gate_is_busy_until_the_last_who_waited_has_passed():
    async def scene():
        street = Street(Turnstile(closed=True))
        street.come(1, 2)
        await turns()
        street.gate.open()
        opened = street.gate.busy
        await street.all()
        return opened, street.gate.busy

    assert asyncio.run(scene()) == (True, False)


def test_a_gate_that_closes_again_keeps_who_comes_then():
    async def scene():
        street = Street(Turnstile(closed=True))
        street.come(1)
        await turns()
        street.gate.open()
        street.gate.close()
        street.come(2)
        await turns()
        before = list(street.passed)
        busy = street.gate.busy
        street.gate.open()
        await street.all()
        return before, busy, street.passed

    assert asyncio.run(scene()) == ([1], True, [1, 2])


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_kept_over_many_rounds(seed):
    async def scene():
        draw, who = random.Random(seed), count()
        street = Street(Turnstile())
        for _ in range(60):
            for _ in range(draw.randrange(4)):
                street.come(next(who))
            if draw.random() < 0.5:
                await turns(draw.randrange(4))
            draw.choice([street.gate.open, street.gate.close, lambda: None])()
        street.gate.open()
        await street.all()
        return street.passed, next(who), street.gate.busy

    passed, came, busy = asyncio.run(scene())

    assert passed == list(range(came))
    assert not busy


def test_who_gives_up_waiting_does_not_hold_up_the_others():
    async def scene():
        street = Street(Turnstile(closed=True))
        street.come(1)
        impatient = street.come(2)
        street.come(3)
        await turns()
        impatient.cancel()
        await turns()
        street.gate.open()
        street.come(4)
        await street.all()
        return street.passed, impatient.cancelled(), street.gate.busy

    assert asyncio.run(scene()) == ([1, 3, 4], True, False)


def test_who_gives_up_when_its_turn_has_come_does_not_hold_up_the_others():
    async def scene():
        street = Street(Turnstile(closed=True))
        street.come(1)
        impatient = street.come(2)
        street.come(3)
        await turns()
        street.gate.open()
        impatient.cancel()
        await street.all()
        return street.passed, impatient.cancelled(), street.gate.busy

    assert asyncio.run(scene()) == ([1, 3], True, False)


def test_a_gate_is_free_again_when_all_who_waited_have_given_up():
    async def scene():
        street = Street(Turnstile(closed=True))
        street.come(1, 2)
        await turns()
        for task in street.tasks:
            task.cancel()
        await street.all()
        closed = street.gate.busy
        street.gate.open()
        return closed, street.gate.busy, street.passed

    assert asyncio.run(scene()) == (True, False, [])
