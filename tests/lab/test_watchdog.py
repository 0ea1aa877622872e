"""A run that is stuck says where, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import time

import pytest

from trimtab.fleet import tasks
from trimtab.lab.watchdog import Stuck, Watchdog


@pytest.mark.slow
def test_stages_within_their_limits_are_not_mentioned():
    said = []

    async def run(watchdog):
        for number in range(5):
            watchdog.stage(f"stage {number}", 60.0, 60.0)
            await asyncio.sleep(0.1)
        watchdog.clean_up("leaving", 60.0)
        return "done"

    with Watchdog(said.append, clean_up_s=60.0) as watchdog:
        assert tasks.run(run(watchdog)) == "done"
    assert said == []


def test_a_stage_that_is_slow_is_described_and_goes_on():
    said = []

    async def spark_answers():
        while not said:
            await asyncio.sleep(0.01)

    async def run(watchdog):
        watchdog.stage("starting Spark", 0.1, 60.0)
        await asyncio.create_task(spark_answers(), name="Spark")
        return "done"

    with Watchdog(said.append, clean_up_s=60.0) as watchdog:
        assert tasks.run(run(watchdog)) == "done"
    assert re.match(r"'starting Spark' has taken \d+ s so far. It waits for:\n", said[0])
    assert re.search(r"\n  Spark: .*spark_answers \(test_watchdog.py:\d+\) > sleep", said[0])


def test_a_stage_that_passes_its_limit_is_ended_and_cleaned_up_after():
    said, cleaned = [], []

    async def run(watchdog):
        watchdog.stage("starting Spark", 60.0, 0.1)
        try:
            await asyncio.Event().wait()
        finally:
            watchdog.clean_up("leaving", 60.0)
            await asyncio.sleep(0)
            cleaned.append(True)

    with (
        pytest.raises(Stuck, match="'starting Spark' has not ended within 0 s, so the run was ended"),
        Watchdog(said.append, clean_up_s=60.0) as watchdog,
    ):
        tasks.run(run(watchdog))
    assert cleaned == [True]
    assert "'starting Spark' has not ended" in said[0]
    assert "run (test_watchdog.py:" in said[0]


def test_a_stage_that_swallows_its_end_is_ended_at_the_next_one():
    async def run(watchdog):
        watchdog.stage("first", 60.0, 0.1)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        watchdog.stage("second", 60.0, 60.0)
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="'first'"), Watchdog(lambda _: None, clean_up_s=60.0) as watchdog:
        tasks.run(run(watchdog))


NEVER_ENDS = """
import asyncio, contextlib, sys, time
from pathlib import Path
from trimtab.fleet import tasks
from trimtab.fleet.site.supervisor import Child, Supervisor
from trimtab.lab.watchdog import Watchdog

async def run(watchdog):
    watchdog.stage("levelling", 60.0, 0.2)
    async with Supervisor() as supervisor:
        watchdog.before_exit(supervisor.kill_all)
        supervisor.start(Child("sleeper", ["sleep", "3600"], Path(sys.argv[1])))
        print(supervisor.find("sleeper").pid, flush=True)
        while True:
            BLOCK

def say(text):
    print(text, file=sys.stderr, flush=True)

with Watchdog(say, clean_up_s=0.5) as watchdog:
    tasks.run(run(watchdog))
"""
BLOCKS = {
    "a task": "with contextlib.suppress(BaseException): await asyncio.sleep(3600)",
    "the event loop": "time.sleep(3600)",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", BLOCKS)
def test_a_process_that_cannot_be_cleaned_up_ends_with_its_children(what, tmp_path):
    script = NEVER_ENDS.replace("BLOCK", BLOCKS[what])
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "log")], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 1, done.stderr
    assert "'levelling' has not ended within" in done.stderr
    assert "run (<string>:" in done.stderr
    assert ("The event loop does not answer" in done.stderr) == (what == "the event loop")
    assert "without the rest of its clean-up" in done.stderr.splitlines()[-1]
    assert not os.path.exists(f"/proc/{int(done.stdout)}")


STUCK_DEMO = """
import asyncio, os, sys
from trimtab.cli.main import main
from trimtab.fleet.site.launch import Launch
from trimtab.lab import demo, demo_progress

demo_progress.LIMIT_S, demo.CLEAN_UP_S = 5.0, float(sys.argv[2])
start_broker = Launch.start_broker

async def stuck(self, name, **options):
    if name != "b1":
        print(self.home, flush=True)
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if sys.argv[1] == "hangs":
                    raise
    return await start_broker(self, name, **options)

Launch.start_broker = stuck
main(["demo", "--fast", "--out", sys.argv[3]])
"""


@pytest.mark.parametrize(
    ("how", "clean_up_s", "last"),
    [("hangs", 60.0, "so the run was ended"), ("never ends", 1.0, "without the rest of its clean-up")],
)
def test_a_stuck_demo_says_what_it_waits_for_and_ends_with_exit_code_1(how, clean_up_s, last, tmp_path, java):
    done = subprocess.run(
        [sys.executable, "-c", STUCK_DEMO, how, str(clean_up_s), str(tmp_path / "demo")],
        capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip

    assert done.returncode == 1, done.stderr
    assert re.search(r"'starting' has not ended within \d+ s. It waits for:", done.stderr)
    assert "stuck (<string>:" in done.stderr
    assert last in done.stderr.strip().splitlines()[-1]
    home = done.stdout.strip()
    deadline = time.monotonic() + 10.0
    while home in (listed := subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True).stdout):
        assert time.monotonic() < deadline, listed
    assert not os.path.exists(home)
