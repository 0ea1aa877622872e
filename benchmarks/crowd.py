"""The cost of idle clients: each reports to its broker's agent once a second, with all its links.

The reports are those of the SDK, without connected clients. The fleet's registry grows with the number of clients.
"""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from trimtab.cli.output import print_table
from trimtab.fleet import tasks
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.agent_verbs import Ping, ReportClient
from trimtab.fleet.protocol.entries import Topic
from trimtab.fleet.protocol.hub_verbs import CreateTopic, Register
from trimtab.lab.live import LiveFleet

CROWDS = (100, 1_000, 10_000)
LINKS = 10  # links of each client
TOPICS = 1_000
REPORTS = 10_000
AT_ONCE = 32
REST_S = 5.0


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _all(work: list) -> None:
    limit = asyncio.Semaphore(AT_ONCE)

    async def run(request) -> None:
        async with limit:
            await request

    await asyncio.gather(*(run(request) for request in work))


async def _run() -> None:
    rows = []
    async with LiveFleet(2) as fleet:
        admin = await fleet.launch.admin()
        agent = (await wire.ask(admin, Ping(), broker="b1")).pid
        [keeper] = [child.pid for child in fleet.launch.supervisor.children if "keeper" in child.name]
        await _all([wire.ask(admin, CreateTopic(Topic(f"t{n}", "b1", "client")), 60.0) for n in range(TOPICS)])
        registered = 0

        def report(number: int):
            topics = [f"t{(number * 7 + link * 13) % TOPICS}" for link in range(LINKS)]
            links = {topic: ["sub"] for topic in topics}
            request = ReportClient(f"c{number}", "b1", {}, links, dict.fromkeys(topics, "b1"))
            return wire.ask(admin, request, 60.0, broker="b1")

        for crowd in CROWDS:
            await _all([wire.ask(admin, Register(f"c{n}", "b1", True), 60.0) for n in range(registered, crowd)])
            registered = crowd
            await asyncio.sleep(3.0)  # until agents know the clients
            await _all([report(n) for n in range(crowd)])
            before, began = _cpu_s(agent), time.monotonic()
            await _all([report(n % crowd) for n in range(REPORTS)])
            cpu_s, time_s = _cpu_s(agent) - before, time.monotonic() - began
            before = _cpu_s(keeper)
            await asyncio.sleep(REST_S)
            keeper_load = (_cpu_s(keeper) - before) / REST_S
            rows.append((
                f"{crowd:,}", f"{1e6 * cpu_s / REPORTS:,.0f} µs", f"{REPORTS / time_s:,.0f}",
                f"{REPORTS / cpu_s:,.0f}", f"{keeper_load:.1%}",
            ))  # fmt: skip
    print_table(
        f"clients at one broker, {LINKS} links each",
        ["clients", "agent's CPU per report", "reports/s answered", "clients that a core carries", "keeper at rest"],
        rows,
    )


def main() -> None:
    tasks.run(_run())
