"""What people see: every command without ``--json``.

Most commands are tested in this form where their fixtures are; ``HUMAN_FORM`` says where. Those that have no better
place are tested here.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from helpers.fleet import StoredChannel
from helpers.waiting import until
from trimtab.cli.main import COMMANDS
from trimtab.cli.main import trimtab as commands
from trimtab.lab import demo as lab_demo

TESTS = Path(__file__).parents[1]
TRIMTAB = (sys.executable, "-m", "trimtab.cli.main")

CONTROL = "control/test_live.py::test_people_give_orders_to_a_controller"
FLEET = "cli/test_fleet_commands.py::test_topics_clients_and_brokers_are_tables_and_json"
JOIN = "cli/test_human_form.py::test_a_hub_and_a_broker_that_joins_it_from_another_folder"
OPERATOR = "cli/test_operator_commands.py::test_"
SPARK = "pipeline/test_spark_commands.py::test_"
HUMAN_FORM = {
    "demo": "cli/test_human_form.py::test_demo_prints_what_it_has_shown",
    "world": "cli/test_human_form.py::test_world_and_judge_print_tables",
    "plan": "cli/test_commands.py::test_plan_shows_a_table_and_where_the_placement_is",
    "judge": "cli/test_human_form.py::test_world_and_judge_print_tables",
    "compare": "cli/test_commands.py::test_compare_shows_the_chosen_policies_in_a_table",
    "policies": "cli/test_policy_knobs.py::test_policies_are_listed_with_their_knobs_and_defaults",
    "up": "cli/test_human_form.py::test_up_says_where_everything_is",
    "hub": JOIN,
    "broker": JOIN,
    "topic": "cli/test_fleet_commands.py::test_a_latency_bound_is_set_and_removed",
    "topics": FLEET,
    "clients": FLEET,
    "brokers": FLEET,
    "top": "cli/test_fleet_commands.py::test_top_shows_a_number_of_rounds",
    "rtt": "cli/test_rtt_command.py::test_the_time_between_two_brokers_is_a_table_and_json",
    "move": "cli/test_fleet_commands.py::test_a_move_is_made_shown_and_remembered",
    "drain": "cli/test_human_form.py::test_drain_lists_what_has_moved",
    "cordon": f"{OPERATOR}a_broker_is_cordoned_and_used_again",
    "uncordon": f"{OPERATOR}a_broker_is_cordoned_and_used_again",
    "moves": "cli/test_fleet_commands.py::test_a_move_is_made_shown_and_remembered",
    "controller": "cli/test_human_form.py::test_a_controller_says_what_it_does",
    "status": CONTROL,
    "pause": CONTROL,
    "resume": CONTROL,
    "rightsize": "cli/test_rightsize_command.py::test_a_table_says_how_many_brokers_are_needed_and_why",
    "rebalance": CONTROL,
    "apply": "control/test_operator.py::test_a_live_fleet_is_written_planned_applied_and_rolled_back",
    "stop": "control/test_live.py::test_a_removal_can_be_given_up_and_repeated",
    "rollback": CONTROL,
    "decisions": "control/test_live.py::test_it_levels_says_why_can_be_replayed_and_taken_back",
    "why": "control/test_live.py::test_it_levels_says_why_can_be_replayed_and_taken_back",
    "add-broker": "control/test_live.py::test_a_broker_comes_is_filled_and_goes_again",
    "remove-broker": "control/test_live.py::test_a_broker_comes_is_filled_and_goes_again",
    "history": f"{SPARK}history_is_a_table",
    "workload": f"{SPARK}a_workload_is_summed_up",
    "pipeline": "cli/test_pipeline_commands.py::test_a_pipeline_that_is_killed_goes_on_where_it_was",
    "channel": f"{SPARK}a_channel_is_explained",
    "channels": "cli/test_human_form.py::test_channels_and_their_results",
    "subscribe": "cli/test_human_form.py::test_channels_and_their_results",
    "query": f"{SPARK}a_query_is_answered_with_a_table",
    "train": "pipeline/test_training.py::test_measured_samples_adapt_a_model_of_other_hardware",
    "profile": "lab/test_profile.py::test_an_interrupted_profile_goes_on_where_it_was",
    "lab": "cli/test_human_form.py::test_lab_prints_what_an_experiment_must_show",
}


def test_every_command_is_tested_in_its_human_form():
    assert list(HUMAN_FORM) == list(COMMANDS)
    for command, place in HUMAN_FORM.items():
        path, name = place.split("::")
        text = (TESTS / path).read_text()
        body = re.search(rf"^def {name}\(.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
        assert body, f"{command}: there is no {place}"
        started = text if command == "pipeline" else body.group()  # by a helper of that file
        assert f'"{command}"' in started, f"{place} does not use {command}"


def test_world_and_judge_print_tables(trimtab, tmp_path):
    made = trimtab("world", "maxdata", "--out", tmp_path, "--publishers", 7, "--machines", 3)
    trimtab("plan", tmp_path, "--family", "link", "--policy", "gs", "--out", tmp_path)

    judged = trimtab("judge", tmp_path, tmp_path / "placement.csv")

    assert (made.code, judged.code) == (0, 0)
    assert re.search(r"topics\s*│\s*7\b", made.out)
    assert "data received" in judged.out


def test_demo_prints_what_it_has_shown(trimtab, tmp_path, monkeypatch, java):
    """The demo itself is run in tests/lab; this is what it prints when it is over."""

    async def run(out, script, seed, report, watchdog):
        progress = lab_demo.Progress(script, delivered=1234, migrations=56, served_again_s=0.7, marks=[(0.0, "killed")])
        for at, phase in enumerate(("skewed", "trimmed")):
            sample = lab_demo.Sample(float(at), phase, 0.9 - 0.8 * at, 5000.0, {"b1": 5000.0}, {"b1": 3}, "says", 617)
            progress.samples.append(sample)
            progress.phase = phase
            report(progress)
        return progress

    monkeypatch.setattr(lab_demo, "run", run)

    done = trimtab("demo", "--fast", "--out", tmp_path / "demo")

    assert done.code == 0
    assert "spread before trimming 0.900, after 0.100" in done.out
    assert re.search(r"│\s*56\s*│\s*1,234\s*│\s*0\s*│", done.out)
    assert f"plot: {tmp_path / 'demo' / 'demo.png'}" in done.out
    assert "trimmed" in done.err


@pytest.mark.timeout(120)
def test_lab_prints_what_an_experiment_must_show(trimtab, tmp_path):
    done = trimtab("lab", "run", "reloc-optimum", "--seeds", 1, "--workers", 1, "--out", tmp_path / "lab")

    assert done.code == 0
    assert "must show" in done.out
    assert str(tmp_path / "lab" / "report.md") in done.out


def test_drain_lists_what_has_moved(fleet, topic, trimtab, open_brokers):
    async def create():
        async with fleet.client("maker", "b1") as client:
            await client.create_topic(topic, broker="b3")

    asyncio.run(create())

    done = trimtab("drain", "b3", "--home", fleet.home)

    assert done.code == 0
    assert re.search(rf"{topic} .*b3.*b[12].*done", done.out)


def run(*words, home):
    """In a thread other than the main one, while a test does something else."""
    return CliRunner().invoke(commands, [*words, "--home", str(home)], catch_exceptions=False, standalone_mode=False)


def test_channels_and_their_results(fleet):
    """``trimtab subscribe`` prints a line for each row, for what was left out, and the part where others are lost."""
    channel = StoredChannel(fleet)

    async def scenario():
        async with fleet.client(f"{channel.name}-s") as client:
            subscription = await channel.follow(client, [])  # so that its id is known
            words = ("subscribe", channel.name, "-p", "kind=fire", "--count", "4", "--name", f"{channel.name}-p")
            printing = asyncio.create_task(asyncio.to_thread(run, *words, home=fleet.home))
            await until(lambda: channel.subscribers(subscription), 20.0)
            for number in (1, 2):
                await channel.store(subscription, *await channel.execution(number))
            first, _ = await channel.execution(3, count=2)
            [last] = await channel.execution(4, count=1)
            await channel.store(subscription, first, last | {"left_out": 2, "reason": "a row of 9 bytes"})
            return (await printing).output

    said = asyncio.run(scenario())
    lines = [line for line in said.splitlines() if line.startswith("then")]
    assert lines == [
        "then #1  n=0", "then #1  n=1", "then #1  n=2", "then #2  n=0", "then #2  n=1", "then #2  n=2",
        "then #3 part 1 of 2  n=0", "then #4  n=0", "then #4  2 rows left out: a row of 9 bytes",
    ]  # fmt: skip
    shown = run("channels", home=fleet.home).output
    assert re.search(rf"{channel.name}\s*│ {channel.name}\s*│ kind: string\s*│ continuous │\s*0 │", shown)


class Running:
    """A command in a process of its own, whose output is a file that can be looked at."""

    def __init__(self, folder: Path, *words) -> None:
        folder.mkdir(exist_ok=True)
        self._log = folder / f"{words[0]}.log"
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(
                [*TRIMTAB, *map(str, words)], stdout=out, stderr=out, cwd=folder, start_new_session=True
            )

    @property
    def said(self) -> str:
        return self._log.read_text()

    def until_it_says(self, sentence: str) -> None:
        def says() -> bool:
            assert sentence in self.said or self.process.poll() is None, self.said
            return sentence in self.said

        asyncio.run(until(says, 60.0))

    def stop(self, number: int = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()  # the processes it has started end with it
            self.process.wait()


def test_a_hub_and_a_broker_that_joins_it_from_another_folder(tmp_path, trimtab, nats_server):
    with Running(tmp_path / "one", "hub", "--home", "fleet") as hub:
        hub.until_it_says("Ctrl-C")
        join = re.search(r"trimtab broker --name NAME --join (.*);", hub.said).group(1)
        with Running(tmp_path / "two", "broker", "--name", "east", "--join", join, "--home", "own") as broker:
            broker.until_it_says("Ctrl-C")
            address = re.search(r"the hub is up at (\S+)", hub.said).group(1)
            assert f"joined the fleet of the hub at {address}" in broker.said
            row = re.search(r"│ east │ (nats://127\.0\.0\.1:\d+) │ 127\.0\.0\.1:\d+ │\s*(\d+) │", broker.said)
            assert row, broker.said
            os.kill(int(row.group(2)), 0)
            assert "│ hub" not in broker.said
            assert f"trimtab.connect('{tmp_path / 'two' / 'own'}')" in broker.said
            assert row.group(1) in trimtab("brokers", "--home", tmp_path / "one" / "fleet").out
            assert broker.stop() == 0
        assert hub.stop(signal.SIGTERM) == 0
    assert "stopping" in broker.said
    assert "Traceback" not in hub.said + broker.said


def test_up_says_where_everything_is(tmp_path, nats_server):
    with Running(tmp_path, "up", "--brokers", 1, "--controllers", 0, "--home", "fleet") as up:
        up.until_it_says("Ctrl-C")
        assert f"the fleet in {tmp_path / 'fleet'} is up" in up.said
        for name in ("hub", "b1"):
            pid = re.search(rf"│ {name}\s*│ nats://127\.0\.0\.1:\d+ │.*│\s*(\d+) │", up.said).group(1)
            os.kill(int(pid), 0)
        assert up.stop() == 0


def test_a_controller_says_what_it_does(fleet, tmp_path):
    with Running(tmp_path, "controller", "--paused", "--period", 0.5, "--home", fleet.home) as controller:
        controller.until_it_says(" leads")
        assert re.search(r"^\d\d:\d\d:\d\d \S+ leads", controller.said, re.MULTILINE)
        assert controller.stop() == 0
    assert "Traceback" not in controller.said
