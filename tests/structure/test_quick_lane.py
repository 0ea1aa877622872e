"""The quick lane starts no nats-server and no JVM: who does is marked by a fixture, and refused without it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from helpers import processes

TESTS = Path(__file__).parents[1]
PROGRAMS = ["nats-server", "/somewhere/bin/java", "spark-submit"]

SYNTHETIC = """
import subprocess

import pytest

@pytest.fixture
def by_way_of(fleet): ...

def test_pure(): ...
def test_live(fleet): ...
def test_live_by_way_of_another(by_way_of): ...
@pytest.mark.usefixtures("nats_server")
def test_live_by_hand(): ...
def test_spark(java): ...
def test_forgetful(): subprocess.run(["nats-server", "--version"])
"""


def pytest_of(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Of a file elsewhere, with our conftest and settings."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-c", str(TESTS.parent / "pyproject.toml")]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    return subprocess.run([*command, *options, str(path)], capture_output=True, text=True, env=environment)


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    path = tmp_path_factory.mktemp("synthetic") / "test_synthetic.py"
    path.write_text(SYNTHETIC)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expression", "chosen"),
    [
        ("live", ["test_live", "test_live_by_way_of_another", "test_live_by_hand"]),
        ("spark", ["test_spark"]),
    ],
)
def test_fixtures_make_the_markers(synthetic, expression, chosen):
    listed = pytest_of(synthetic, "--collect-only", "-m", expression).stdout

    assert [line.split("::")[1] for line in listed.splitlines() if "::" in line] == chosen


@pytest.mark.slow
def test_a_test_that_starts_a_server_without_the_fixture_fails(synthetic):
    done = pytest_of(synthetic, "-m", "not live and not spark")

    assert done.returncode == 1
    assert "1 failed, 1 passed, 4 deselected" in done.stdout
    assert "needs the fixture 'nats_server'" in done.stdout


def test_the_lane_leaves_both_markers_out():
    said = subprocess.run(["make", "-n", "quick"], cwd=TESTS.parent, capture_output=True, text=True, check=True).stdout

    assert '-m "not live and not spark and not slow"' in said


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_refused_in_this_process(program):
    with pytest.raises(processes.NotAsked):
        subprocess.Popen([program, "--version"])
    with pytest.raises(processes.NotAsked):
        subprocess.run(program, check=False)
    with pytest.raises(processes.NotAsked):
        asyncio.run(asyncio.create_subprocess_exec(program))


@pytest.mark.parametrize("program", PROGRAMS)
def test_it_is_refused_in_a_process_that_a_test_starts(program):
    code = f"import subprocess; subprocess.run([{program!r}, '--version'])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"a test that starts {program} needs the fixture" in done.stderr


def test_a_command_cannot_start_a_fleet(tmp_path):
    words = ["-m", "trimtab.cli.main", "up", "--brokers", "1", "--home", str(tmp_path)]

    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)

    assert done.returncode != 0
    assert "needs the fixture 'nats_server'" in done.stderr


def test_a_thread_that_was_allowed_to_stays_so(tmp_path):
    """The supervisor of a fleet that several tests share restarts its servers whenever they end."""
    program = tmp_path / "nats-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    outcomes = {}

    def start(name):
        try:
            outcomes[name] = subprocess.run([program], check=False).returncode
        except processes.NotAsked:
            outcomes[name] = "refused"

    threads = [threading.Thread(target=start, args=[name]) for name in ("allowed", "other")]
    processes.allow({"nats_server"})
    processes.keep_allowed(threads[0])
    processes.allow(set())
    for thread in threads:
        thread.start()
        thread.join()

    assert outcomes == {"allowed": 0, "other": "refused"}
