"""A controller that dies at any step of a plan leaves a state from which the next one goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import pytest

from helpers.control import CLIENTS, MeasuredFleet, people
from helpers.waiting import until
from trimtab.control.controller import Controller
from trimtab.control.decide import warm_up
from trimtab.control.plan_orders import PlanOrders
from trimtab.control.record import Record
from trimtab.control.settings import Settings
from trimtab.fleet import tasks
from trimtab.fleet.protocol.admin_verbs import ListMoves
from trimtab.fleet.protocol.plans import MOVED
from trimtab.fleet.protocol.streams import CONTROL
from trimtab.fleet.site.launch import admin_connection

SETTINGS = Settings(period_s=0.5, budget=1.0, budget_s=1.0, cool_s=0.1)
STEPS = ("decided", "begun", "before an order", "after an order", "over")


class Dead(BaseException):
    """The controller has died here."""


class MortalOrders(PlanOrders):
    def __init__(self, connection, record, die_at) -> None:
        super().__init__(connection, record)
        self.die_at = die_at

    async def begin(self, runner, progress, rows):
        self.die_at("before an order", progress.count(MOVED) >= 3)
        await super().begin(runner, progress, rows)
        self.die_at("after an order", progress.count(MOVED) >= 3)  # which is not written down

    async def record_end(self, progress, links=""):
        self.die_at("over")
        await super().record_end(progress, links)


class Mortal(Controller):
    """Dies when it is told to, the way a killed process does: without another word."""

    def __init__(self, connection, step) -> None:
        super().__init__(connection, SETTINGS, lambda _: None)
        self.step = step

    async def begin(self, plan, **more):
        self.die_at("decided")
        await super().begin(plan, **more)
        self.die_at("begun")

    async def _take_over(self):
        await super()._take_over()
        self._orders = MortalOrders(self._connection, self.record, self.die_at)

    def die_at(self, step, now=True):
        if step == self.step and now:
            self._lease.give_back = lambda: asyncio.sleep(0)
            raise Dead


@pytest.fixture
def measured(tmp_path, nats_server):
    running = MeasuredFleet(tmp_path / "home")
    warm_up("trim")
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.mark.parametrize("step", STEPS)
def test_the_next_one_goes_on(measured, step):
    async def controllers():
        """One that dies, then one that stands by and leads; until everybody is where he should be."""
        admin = await admin_connection(measured.launch.fleet)
        mortal = asyncio.create_task(Mortal(admin, step).run())
        with contextlib.suppress(Dead):
            await tasks.within(40.0, mortal)
        assert isinstance(mortal.exception(), Dead)
        await admin.close()
        other = await admin_connection(measured.launch.fleet)
        said = []
        successor = asyncio.create_task(Controller(other, SETTINGS, said.append).run())
        try:
            await until(lambda: any("leads" in each for each in said), 10.0)
            await until(lambda: bool(said) and said[-1].startswith("level"), 40.0)
            record = Record(other, await other.jetstream().key_value(CONTROL))
            return said, [await record.decision(number) for number in await record.numbers()]
        finally:
            await tasks.end(successor)
            await other.close()

    async def scenario():
        async with people(measured) as clients:
            said, decisions = await asyncio.to_thread(measured.do, controllers())

            assert await measured.homes() == Counter(b1=8, b2=8, b3=8)
            await until(lambda: Counter(client.home for client in clients) == Counter(b1=8, b2=8, b3=8))
            assert (await measured.aask(ListMoves())).under_way == 0
            assert ("goes on with a plan" in " ".join(said)) == (step != "decided")
            plans = [each for each in decisions if each.plan]
            assert all(each.outcome and each.outcome.ended for each in plans)
            moved = sum(each.outcome.states.count(MOVED) for each in plans)
            assert moved == CLIENTS - 8  # nobody twice

    asyncio.run(scenario())
