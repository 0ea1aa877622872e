"""Processes end with what they have started."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from helpers.waiting import until
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
