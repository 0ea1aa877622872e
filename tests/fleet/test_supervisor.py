"""Processes end with what they have started."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from helpers.waiting import until
from trimtab.errors import BadInput
from trimtab.fleet.site import supervisor as supervisor_module
from trimtab.fleet.site.supervisor import Child, Supervisor


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_killing_all_needs_no_event_loop_and_takes_grandchildren_along(tmp_path):
    noted = tmp_path / "pid"
    script = f"trap '' TERM; sleep 3600 & echo $! > {noted}.new; mv {noted}.new {noted}; wait"

    async def scenario():
        async with Supervisor() as supervisor:
            supervisor.start(Child("shell", ["sh", "-c", script], tmp_path / "log"))
            await until(noted.exists)
            shell, sleeper = supervisor.find("shell").pid, int(noted.read_text())
            assert alive(sleeper)

            supervisor.kill_all()

            assert not os.path.exists(f"/proc/{shell}")
            await until(lambda: not alive(sleeper))
            assert supervisor.find("shell").restarts == 0

    asyncio.run(scenario())


def test_a_process_that_cannot_be_started_again_is_tried_until_it_can(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(supervisor_module, "AGAIN_S", (0.01,))
    program = tmp_path / "program"

    def make():
        program.write_text("#!/bin/sh\nexec sleep 3600\n")
        program.chmod(0o700)

    def fails(_):
        raise BrokenPipeError

    async def scenario():
        async with Supervisor(fails) as supervisor:
            make()
            supervisor.start(Child("program", [str(program)], tmp_path / "log"))
            first = supervisor.find("program").pid
            program.unlink()
            os.kill(first, signal.SIGKILL)
            await until(lambda: "'program' cannot be started, and is tried again" in caplog.text)
            make()
            await until(lambda: supervisor.find("program").pid != first)
            assert alive(supervisor.find("program").pid)

    asyncio.run(scenario())


def test_two_processes_of_one_name_are_refused(tmp_path):
    async def scenario():
        async with Supervisor() as supervisor:
            child = Child("sleeper", ["sleep", "3600"], tmp_path / "log")
            supervisor.start(child)
            with pytest.raises(BadInput, match="process 'sleeper' runs already"):
                supervisor.start(Child("sleeper", ["sleep", "3600"], tmp_path / "log"))
            await supervisor.remove(child)
            supervisor.start(child)

    asyncio.run(scenario())
