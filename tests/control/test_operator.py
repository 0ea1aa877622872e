"""What people do through a controller on a fleet of topics, clients and links."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from helpers.control import MeasuredFleet, people
from helpers.waiting import until
from trimtab.cli.main import trimtab as commands
from trimtab.control.decide import warm_up
from trimtab.errors import BadInput, UnknownName, Unreachable
from trimtab.fleet.operator import Operator
from trimtab.fleet.protocol.admin_verbs import GetStatus, PlacedLink, PlaceLinks
from trimtab.model.folder import read_workload
from trimtab.model.key import Key
from trimtab.model.placement_file import read_keys, write_keys

WHOLE, LINKED = Key("topic", "t0", ""), Key("link", "t1", "p1")


class Controlled(MeasuredFleet):
    """With a controller that moves nothing by itself."""

    def start(self) -> None:
        super().start()

        async def controller():
            settings = {"period_s": 0.5, "policy": "ldm"}
            self.launch.start_controller(paused=True, settings=settings)

        self.do(controller())


@pytest.fixture(scope="module")
def controlled(tmp_path_factory, nats_server):
    warm_up("ldm")
    running = Controlled(tmp_path_factory.mktemp("controlled") / "home")
    try:
        running.start()
        yield running
    finally:
        running.stop()


def run(controlled, *words):
    words = [*map(str, words), "--home", str(controlled.home)]
    return CliRunner().invoke(commands, words, catch_exceptions=False, standalone_mode=False).output


async def mixed(controlled, client):
    """Topic t0 is placed as a whole, t1 by link; everything is at b1 and measured."""
    await client.create_topic("t0", broker="b1")
    await client.create_topic("t1", broker="b1", unit="link")
    await controlled.aask(PlaceLinks([PlacedLink("p1", "t1", "b1")]))

    async def measured():
        try:
            status = await controlled.aask(GetStatus())
        except Unreachable:
            return False
        return status.load is not None and status.brokers["b1"] > 0 == status.brokers["b2"]

    await until(measured, 30.0)


def test_a_live_fleet_is_written_planned_applied_and_rolled_back(controlled, tmp_path):
    folder, placement = tmp_path / "live", tmp_path / "live" / "placement.csv"

    async def command(*words):
        return await asyncio.to_thread(run, controlled, *words)

    async def where():
        async with Operator.open(controlled.home) as operator:
            return dict((await operator.state()).routing().brokers)

    async def scenario():
        async with people(controlled) as clients:
            await mixed(controlled, clients[0])
            before = await where()
            assert set(before.values()) == {"b1"}

            # The fleet as a folder: its placement is the one it has.
            written = await command("workload", "--live", "--out", folder)
            assert "placement of 1 topic, 24 clients and 1 link" in written
            again = json.loads(await command("workload", "--live", "--out", folder, "--json"))
            assert again["rows"] == {"topics": 24, "clients": 24, "brokers": 3, "links": 24}
            keys = read_keys(read_workload(folder), placement)
            assert keys == before
            judged = json.loads(CliRunner().invoke(commands, ["judge", str(folder), str(placement), "--json"]).output)
            assert judged["unit"] == "mixed"
            assert "the fleet is as the file says" in await command("apply", folder, placement)

            # A plan for clients, made elsewhere, is carried out.
            CliRunner().invoke(
                commands,
                ["plan", str(folder), "--family", "client", "--policy", "round-robin", "--current", str(placement),
                 "--out", str(tmp_path / "plan")],
            )  # fmt: skip
            dry = await command("apply", folder, tmp_path / "plan" / "placement.csv")
            assert "not carried out: 16 clients" in dry
            assert "through the controller" in dry
            assert re.search(r"spread 1\.\d+ -> 0\.\d+", dry)
            assert await where() == before

            # So is one that mixes topics, clients and links.
            write_keys(keys | {WHOLE: "b2", LINKED: "b3", Key("client", "", "p5"): "b3"}, tmp_path / "mixed.csv")
            done = await command("apply", folder, tmp_path / "mixed.csv", "--yes", "--reason", "a test")
            assert re.search(r"mixed\.csv, plan \d+, carried out: 1 topic, 1 client and 1 link", done)
            moved = await where()
            assert {key for key in before if moved[key] != before[key]} == {WHOLE, LINKED, Key("client", "", "p5")}

            # It is remembered by key.
            for words in (("t1", "p1"), ("p5",), ("t0",), ("topic", "t0")):
                why = await command("why", *words)
                assert "a placement is applied: a test" in why
                assert "1 topic, 1 client and 1 link: 3 moved" in why
                assert "nothing: an operator requested the plan" in why
            assert "link t1 p1 from b1 to b3: moved" in await command("why", "t1 p1")
            assert "3 of 1 topic, 1 client and 1 link" in await command("decisions")
            listed = json.loads(await command("decisions", "--json"))
            assert ["link", "t1", "p1", "b1", "b3"] in listed[-1]["plan"]["steps"]

            back = await command("rollback")
            assert "carried out: 1 topic, 1 client and 1 link" in back
            assert await where() == before

            # Links that a file admits or refuses are part of the plan, and are taken back with it.
            admitted = Key("link", "t1", "p2")
            write_keys(keys | {LINKED: "", admitted: "b2"}, tmp_path / "links.csv")
            done = await command("apply", folder, tmp_path / "links.csv", "--yes")
            assert "1 link admitted; 1 link refused" in done
            assert await where() == {key: broker for key, broker in before.items() if key != LINKED} | {admitted: "b2"}
            for words in (("t1", "p2"), ("t1", "p1")):
                assert "links" in await command("why", *words)
            assert "link t1 p2 admitted at b2: placed" in await command("why", "t1 p2")
            assert "1 link" in await command("rollback")
            assert await where() == before

    asyncio.run(scenario())


def test_knobs_are_set_for_one_plan(controlled):
    async def command(*words):
        return await asyncio.to_thread(run, controlled, *words)

    async def scenario():
        async with people(controlled) as clients:
            await mixed(controlled, clients[0])
            assert "│ policy" in await command("status")
            assert re.search(r"plan \d+, not carried out: .*clients", await command("rebalance", "--set", "alpha=0.03"))
            done = json.loads(await command("rebalance", "--apply", "--set", "alpha=0.03", "--json"))
            assert set(done["outcome"]) == {"moved"}
            [*_, decision] = json.loads(await command("decisions", "--json"))
            assert (decision["question"]["number"], decision["question"]["knobs"]) == (
                done["plan"]["number"], {"alpha": 0.03},
            )  # fmt: skip
            assert "carried out" in await command("rollback")
            with pytest.raises(UnknownName, match="there is no knob of client/ldm 'nope'"):
                await command("rebalance", "--set", "nope=1")
            with pytest.raises(BadInput, match="alpha must be"):
                await command("rebalance", "--policy", "sdm", "--set", "alpha=many")
            with pytest.raises(BadInput, match="is not of family 'client'"):
                await command("rebalance", "--policy", "link/gs", "--set", "alpha=1")

    asyncio.run(scenario())


def test_status_shows_cordons(controlled):
    run(controlled, "cordon", "b3")
    try:
        asyncio.run(until(lambda: "b3" in controlled.ask(GetStatus()).cordoned))
        assert re.search(r"│ cordoned\s*│ b3; end it with trimtab uncordon BROKER", run(controlled, "status"))
    finally:
        run(controlled, "uncordon", "b3")


def test_following_a_plan_survives_a_change_of_leader(controlled, tmp_path):
    async def scenario():
        async with people(controlled) as clients:
            await mixed(controlled, clients[0])
            async with Operator.open(controlled.home) as operator:
                reply = await operator.rebalance(apply=True, policy="trim")
                seen = []

                def progress(over, of):
                    seen.append((over, of))
                    if len(seen) == 1:
                        leader = controlled.launch.supervisor.find("controller")
                        leader.process.kill()

                states = (await operator.follow(reply.plan.number, progress)).states
                assert len(states) == len(reply.plan.steps) == seen[0][1]
                assert set(states) == {"moved"}
                await operator.roll_back(reply.plan.number)

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("module", ["trimtab.control.process", "trimtab.pipeline.process"])
def test_a_process_says_what_is_wrong_with_its_settings(module, tmp_path):
    def ends(*arguments):
        done = subprocess.run([sys.executable, "-m", module, *map(str, arguments)], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        return done.stderr

    path = tmp_path / "process.json"
    assert "needs one argument" in ends()
    assert "there is no" in ends(path)
    path.write_text('{"home": 3}')
    assert "trimtab: Expected `str`, got `int`" in ends(path)
    path.write_text(json.dumps({"home": str(tmp_path)}))
    assert "fleet.json" in ends(path)
