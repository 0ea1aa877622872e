"""Controllers over a real fleet: they level it, say why, stop and go back; one dies, the other leads; brokers die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import threading
from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner
from nats.js.errors import BadRequestError

from helpers.control import CLIENTS, MeasuredFleet, people
from helpers.waiting import always, until
from trimtab.cli.main import trimtab as commands
from trimtab.control.decide import NoPlan, Question, warm_up
from trimtab.control.memory import ControllerState
from trimtab.control.record import Record
from trimtab.errors import BadInput, UnknownName, Unreachable
from trimtab.fleet.hub.presence import ALIVE_S
from trimtab.fleet.protocol.admin_verbs import (
    EmptyBroker,
    GetStatus,
    ListBrokers,
    ListClients,
    ListCordons,
    ListTopics,
    Pause,
    Rebalance,
    Resume,
    RollBack,
    StopPlan,
    UncordonBroker,
)
from trimtab.fleet.protocol.streams import CONTROL

SETTINGS = "[control]\nperiod_s = 0.5\nbudget = 1.0\nbudget_s = 1.0\ncool_s = 0.1\n"


class Controlled(MeasuredFleet):
    """With two controllers."""

    def start(self) -> None:
        super().start()

        async def controllers():
            for name in ("controller-1", "controller-2"):
                self.launch.start_controller(name)
            await self.launch.serve_hosts()

        self.do(controllers())

    def status(self):
        return self.ask(GetStatus())

    async def record(self, work):
        async def run():
            admin = await self.launch.admin()
            return await work(Record(admin, await admin.jetstream().key_value(CONTROL)))

        return await asyncio.to_thread(self.do, run())


@pytest.fixture(scope="module")
def controlled(tmp_path_factory, nats_server):
    folder = tmp_path_factory.mktemp("controlled")
    (folder / "trimtab.toml").write_text(SETTINGS)
    before = os.environ.get("TRIMTAB_CONFIG")
    os.environ["TRIMTAB_CONFIG"] = str(folder / "trimtab.toml")
    running = Controlled(folder / "home")
    warm_up("trim")  # here, and not in two controllers at once
    try:
        running.start()
        yield running
    finally:
        running.stop()
        os.environ.pop("TRIMTAB_CONFIG")
        if before is not None:
            os.environ["TRIMTAB_CONFIG"] = before


def run(*words, home):
    return CliRunner().invoke(commands, [*words, "--home", str(home)], catch_exceptions=False, standalone_mode=False)


def test_it_levels_says_why_can_be_replayed_and_taken_back(controlled):
    async def scenario():
        async with people(controlled):

            async def level():
                return await controlled.homes() == Counter(b1=8, b2=8, b3=8)

            await until(level, 30.0)

            async def at_rest():
                return (await asyncio.to_thread(controlled.status)).progress is None

            await until(at_rest)
            numbers = await controlled.record(lambda record: record.numbers())
            said = await controlled.record(lambda record: record.decision(numbers[-1]))
            assert said.plan.before.spread > 1.0 > 0.1 > said.plan.predicted.spread
            assert "spread" in said.question.reasons[0]
            assert said.outcome.states.count("moved") == 16
            same = await controlled.record(lambda record: record.replay(numbers[-1]))
            assert same[1] is True

            moved = said.plan.steps[0].client
            told = await asyncio.to_thread(run, "why", moved, "--replay", home=controlled.home)
            assert "decided again from what was kept: the same" in told.output
            assert moved in told.output
            listed = await asyncio.to_thread(run, "decisions", home=controlled.home)
            assert "16 of 16" in listed.output

            # Nothing moves while it is paused, but by hand.
            await controlled.aask(Pause("test"))
            back = await asyncio.to_thread(run, "rollback", str(numbers[-1]), "--json", home=controlled.home)
            assert len(json.loads(back.output)["plan"]["steps"]) == 16
            assert await controlled.homes() == Counter(b1=24)

            async def all_there():
                return await controlled.homes() == Counter(b1=24)

            await always(all_there, 2.0)  # four periods of the controller
            status = await asyncio.to_thread(run, "status", home=controlled.home)
            assert "paused" in status.output

            dry = await asyncio.to_thread(run, "rebalance", "--json", home=controlled.home)
            plan = json.loads(dry.output)
            assert plan["applied"] is False
            assert len(plan["plan"]["steps"]) == 16
            assert await controlled.homes() == Counter(b1=24)
            little = await asyncio.to_thread(
                run, "rebalance", "--apply", "--budget", "0.25", "--reason", "a little", "--json", home=controlled.home
            )
            assert len(json.loads(little.output)["plan"]["steps"]) == 6
            assert (await controlled.homes())["b1"] == 18
            last = await controlled.record(lambda record: record.numbers())
            why = await controlled.record(lambda record: record.decision(last[-1]))
            assert why.question.reasons == ("asked for: a little",)
            await controlled.aask(Resume())
            await until(level, 30.0)

    asyncio.run(scenario())


def test_people_give_orders_to_a_controller(controlled):
    """In words, and answered in words: all that the tests above and below ask for as JSON."""

    async def said(*words):
        return (await asyncio.to_thread(run, *words, home=controlled.home)).output

    async def scenario():
        async with people(controlled):
            await until(lambda: _level(controlled), 30.0)
            await until(lambda: asyncio.to_thread(lambda: controlled.status().progress is None))
            assert "nothing moves by itself" in await said("pause", "--reason", "a test of words")
            assert "a test of words" in await said("status")
            controlled.rates = np.full(CLIENTS, 1000.0)
            homes = (await controlled.aask(ListClients())).entries
            heavy = [int(name[1:]) for name, each in homes.items() if name.startswith("p") and each.home == "b1"]
            controlled.rates[heavy] = 9000.0

            async def seen():
                load = (await asyncio.to_thread(controlled.status)).brokers
                return load["b1"] > 5 * load["b2"]

            await until(seen)
            dry = await said("rebalance")
            assert ", not carried out: " in dry
            assert "carry it out with --apply" in dry
            assert await _level(controlled)
            carried = await said("rebalance", "--apply", "--reason", "words")
            assert ", carried out: " in carried
            assert re.search(r"│ b1\s*│ b[23]\s*│", carried)
            assert not await _level(controlled)
            number = re.search(r"plan (\d+),", carried).group(1)
            assert ", carried out: " in await said("rollback", number)
            assert await _level(controlled)
            controlled.rates = np.full(CLIENTS, 1000.0)
            await until(lambda: asyncio.to_thread(lambda: controlled.status().load.spread < 0.1))
            assert await said("resume") == "the controller goes on\n"
            assert "│ paused" not in await said("status")

    try:
        asyncio.run(scenario())
    finally:
        controlled.rates = np.full(CLIENTS, 1000.0)


def test_what_cannot_be_done_is_said_in_a_sentence(controlled):
    async def scenario():
        async with people(controlled):
            await until(lambda: asyncio.to_thread(lambda: controlled.status().load is not None))
            await controlled.aask(Pause("test"))  # or a plan may begin
            await until(lambda: asyncio.to_thread(lambda: controlled.status().progress is None), 30.0)
            for request, sentence in (
                (StopPlan(), "no plan is under way"),
                (RollBack(plan=999_999), "there is no decision '999999'"),
                (Rebalance(policy="link/gs"), "policies of client/, but 'link/gs' is one of link/"),
                (EmptyBroker("b9"), "broker 'b9' is not alive"),
            ):
                with pytest.raises(BadInput, match=sentence):
                    await controlled.aask(request)
            await controlled.aask(Resume())

    asyncio.run(scenario())
    with pytest.raises(BadInput, match="there is no decision 'nobody'"):
        run("why", "nobody", home=controlled.home)


def test_a_broker_comes_is_filled_and_goes_again(controlled):
    async def scenario():
        async with people(controlled):
            added = await asyncio.to_thread(run, "add-broker", "b4", home=controlled.home)
            assert "b4 is up at" in added.output

            async def level():
                return await controlled.homes() == Counter(b1=6, b2=6, b3=6, b4=6)

            await until(level, 40.0)
            await until(lambda: asyncio.to_thread(lambda: controlled.status().progress is None))
            gone = await asyncio.to_thread(run, "remove-broker", "b4", home=controlled.home)
            assert "b4 is removed" in gone.output
            assert (await controlled.homes())["b4"] == 0
            assert "b4" not in (await controlled.aask(ListBrokers())).entries

    asyncio.run(scenario())


def test_rightsize_empties_the_brokers_that_are_not_needed(controlled):
    async def scenario():
        async with people(controlled):
            await until(lambda: _level(controlled), 30.0)
            await until(lambda: asyncio.to_thread(lambda: controlled.status().progress is None))
            asked = await asyncio.to_thread(run, "rightsize", "--json", home=controlled.home)
            answer = json.loads(asked.output)
            assert (answer["brokers"], answer["in_use"], answer["needed"], answer["done"]) == (3, 3, 1, [])
            assert asked.exit_code == 0
            assert set((await controlled.homes()).values()) == {8}  # only asked

            (kept,) = answer["kept"]
            try:
                done = await asyncio.to_thread(run, "rightsize", "--apply", home=controlled.home)
                assert "the next 1 h needs 1 broker of 3; 3 in use now" in done.output
                assert "no history yet: the present traffic, with a margin of 20%" in done.output
                assert "no processed topic has a latency bound, so only the limits of brokers count" in done.output
                assert all(f"emptied {name}" in done.output for name in answer["idle"])
                assert await controlled.homes() == Counter({kept: CLIENTS})
                assert set((await controlled.aask(ListCordons())).entries) == set(answer["idle"])
            finally:
                for name in (await controlled.aask(ListCordons())).entries:
                    await controlled.aask(UncordonBroker(name))

    asyncio.run(scenario())


def test_a_killed_brokers_clients_are_served_elsewhere_and_a_standby_takes_over(controlled):
    async def scenario():
        async with people(controlled) as clients:
            await until(lambda: _level(controlled), 30.0)
            victims = [client for client in clients if client.home == "b2"]
            assert victims
            await asyncio.to_thread(controlled.do, controlled.launch.end_broker("b2", kill=True))
            await until(lambda: all(client.serving not in ("", "b2") for client in victims), 20.0)

            async def nobody_there():
                return (await controlled.homes())["b2"] == 0

            await until(nobody_there, 30.0)
            assert (await controlled.homes()).total() == CLIENTS

            # The leader dies; another one leads, and the fleet goes on being looked after.
            before = (await asyncio.to_thread(controlled.status)).leader
            for child in list(controlled.launch.supervisor.children):
                if child.name.startswith("controller") and f"{before} leads" in child.log.read_text():
                    os.kill(child.pid, signal.SIGKILL)

            async def another():
                with contextlib.suppress(BadInput, Unreachable):
                    return (await asyncio.to_thread(controlled.status)).leader != before

            await until(another, 20.0)
            await asyncio.to_thread(controlled.do, controlled.launch.start_broker("b2"))

            async def used_again():
                return (await controlled.homes())["b2"] == 8

            await until(used_again, 60.0)

    asyncio.run(scenario())


@pytest.mark.parametrize("how", ["killed", "asleep"])
def test_nobody_moves_because_the_keeper_was_away(controlled, how):
    """When it is back, brokers call one after the other; the first is not the only one there is."""

    async def scenario():
        async with people(controlled):
            await until(lambda: _level(controlled), 30.0)
            await until(lambda: asyncio.to_thread(lambda: controlled.status().progress is None))
            numbers = await controlled.record(lambda record: record.numbers())
            keeper = controlled.launch.supervisor.find("keeper")
            if how == "killed":
                before = keeper.pid
                os.kill(before, signal.SIGKILL)
                await until(lambda: keeper.pid not in (None, before), 20.0)
            else:
                os.kill(keeper.pid, signal.SIGSTOP)
                await asyncio.sleep(ALIVE_S + 1.5)  # as long as it takes until nobody has called, for who has slept
                os.kill(keeper.pid, signal.SIGCONT)

            async def answers():
                with contextlib.suppress(BadInput, Unreachable):
                    return len((await controlled.aask(ListBrokers())).alive) == 3

            await until(answers, 20.0)
            await always(lambda: _level(controlled), 6.0)
            assert await controlled.record(lambda record: record.numbers()) == numbers

    asyncio.run(scenario())


async def _paused(fleet):
    """Nothing is under way, and nothing begins by itself."""

    async def at_rest():
        with contextlib.suppress(Unreachable):
            await fleet.aask(Pause("test"))
            return (await asyncio.to_thread(fleet.status)).progress is None

    await until(at_rest, 30.0)


def test_a_broker_that_is_away_for_good_can_be_removed(controlled):
    async def scenario():
        async with people(controlled):
            await _paused(controlled)
            await asyncio.to_thread(run, "add-broker", "b8", home=controlled.home)
            async with controlled.client("whole", "b8") as client:
                await client.create_topic("whole.topic", unit="topic", broker="b8")
            await asyncio.to_thread(controlled.do, controlled.launch.end_broker("b8", kill=True))

            async def away():
                return "b8" not in (await controlled.aask(ListBrokers())).alive

            async def nobody_there():
                known = (await controlled.aask(ListClients())).entries
                return all(each.home != "b8" for each in known.values())

            await until(away, 20.0)
            await until(nobody_there, 30.0)

            async def hosted_elsewhere():
                return (await controlled.aask(ListTopics())).entries["whole.topic"].broker != "b8"

            await until(hosted_elsewhere, 30.0)  # though the controller is paused
            gone = await asyncio.to_thread(run, "remove-broker", "b8", home=controlled.home)
            assert "b8 is removed; moved: nothing" in gone.output
            with pytest.raises(UnknownName, match="b8"):
                await asyncio.to_thread(run, "remove-broker", "b8", home=controlled.home)
            await controlled.aask(Resume())

    asyncio.run(scenario())


def test_a_removal_can_be_given_up_and_repeated(controlled):
    async def scenario():
        async with people(controlled):
            await _paused(controlled)
            await asyncio.to_thread(run, "add-broker", "b7", home=controlled.home)
            for _ in range(2):
                answer = await controlled.aask(EmptyBroker("b7"))
                assert answer.why_not == "no client, topic or link is placed at 'b7'"
            assert (await asyncio.to_thread(controlled.status)).leaving == ["b7"]
            stopped = await asyncio.to_thread(run, "stop", home=controlled.home)
            assert "b7 was to be removed, and stays" in stopped.output
            assert (await asyncio.to_thread(controlled.status)).leaving == []
            gone = await asyncio.to_thread(run, "remove-broker", "b7", "--json", home=controlled.home)
            assert json.loads(gone.output) == {"removed": "b7", "topics": 0, "clients": 0, "links": 0}
            await controlled.aask(Resume())

    asyncio.run(scenario())


def test_a_broker_that_is_level_but_full_is_relieved(controlled):
    """It has as many bytes as the others, and hardly a core left."""

    async def scenario():
        async with people(controlled):
            await until(lambda: _level(controlled), 30.0)
            await until(lambda: asyncio.to_thread(lambda: controlled.status().progress is None))
            controlled.cores = {"b1": 0.95 * os.cpu_count()}

            async def relieved():
                return (await controlled.homes())["b1"] < 8

            try:
                await until(relieved, 30.0)
                await until(lambda: asyncio.to_thread(lambda: controlled.status().progress is None))
            finally:
                controlled.cores = {}  # so it has helped
            numbers = await controlled.record(lambda record: record.numbers())

            async def measured():
                said = await controlled.record(lambda record: record.decision(numbers[-1]))
                return said.outcome is not None and isinstance(said.outcome.helped, bool) and said

            said = await until(measured, 30.0)
            assert (said.plan.policy, said.plan.goal, said.outcome.helped) == ("relieve", "limits", True)
            assert {step.source for step in said.plan.steps} == {"b1"}
            why = await asyncio.to_thread(run, "why", str(numbers[-1]), "--replay", home=controlled.home)
            assert "overload: b1 above 85% of cores: 95% at most" in why.output
            assert "cores of b1: 95%, 71% as predicted, 0% as measured" in why.output
            assert "decided again from what was kept: the same" in why.output

    asyncio.run(scenario())


async def _level(fleet) -> bool:
    return set((await fleet.homes()).values()) == {8}


def test_a_leader_that_slept_finds_another_and_stands_by(controlled):
    def leader():
        with contextlib.suppress(BadInput, Unreachable):
            return controlled.status().leader

    def leads(child):
        """It said so, and nothing else since."""
        return [line for line in child.log.read_text().splitlines() if "lead" in line][-1:]

    async def scenario():
        before = leader()
        [asleep] = [
            child for child in controlled.launch.supervisor.children
            if child.name.startswith("controller") and f"{before} leads" in child.log.read_text()
        ]  # fmt: skip
        os.kill(asleep.pid, signal.SIGSTOP)
        try:
            await until(lambda: leader() not in (None, before), 20.0)
            after = leader()
        finally:
            os.kill(asleep.pid, signal.SIGCONT)
        await until(lambda: "standing by" in leads(asleep)[0], 20.0)
        assert leader() == after

    asyncio.run(scenario())


def state(leader, says):
    return ControllerState(leader=leader, says=says)


def test_a_deposed_leader_writes_nothing(controlled):
    async def contest():
        admin = await controlled.launch.admin()
        bucket = await admin.jetstream().create_key_value(bucket=f"state{threading.get_ident()}")
        one, two = Record(admin, bucket), Record(admin, bucket)
        assert await one.take_over("one") == ControllerState()
        await one.write_state(state("one", "first"))
        assert await two.take_over("two") == state("one", "first")
        for _ in range(2):  # the refusal does not make the next write succeed
            with pytest.raises(Unreachable, match="two has taken over from one"):
                await one.write_state(state("one", "second"))
        await two.write_state(state("two", "third"))
        two._revision -= 1  # as if the reply to that had been lost
        await two.write_state(state("two", "fourth"))
        assert await one.take_over("three") == state("two", "fourth")

        number = max(await one.numbers(), default=0) + 1
        nothing = NoPlan(number, 0.0, ("a test",), "it is one")
        await one.record_decision(None, Question(number, 0.0, ("a test",), "trim", 0, 0.0, 0), nothing)
        with pytest.raises(BadRequestError):
            await two.record_decision(None, Question(number, 1.0, ("another",), "trim", 0, 0.0, 0), nothing)
        assert (await two.decision(number)).question.at == 0.0

    controlled.do(contest())


def test_without_a_measurement_it_says_what_it_waits_for(controlled):
    controlled.measuring = False
    try:

        async def scenario():
            def waits():
                return "waiting for a measurement" in controlled.status().says

            await until(lambda: asyncio.to_thread(waits), 60.0)

        asyncio.run(scenario())
        with pytest.raises(BadInput, match="no measurement of the fleet"):
            controlled.ask(Rebalance(apply=False))
    finally:
        controlled.measuring = True
