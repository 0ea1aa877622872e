"""The pipeline is killed repeatedly in every phase while publications continue; then all results are counted.

The pipeline is a separate process that kills itself in the middle of a phase: while it reads, while Spark executes,
while results are published, or after that but before the ledger is written. Publishers never stop, and subscribers
never leave. At the end each subscriber must have every publication of its kind once, from each of two channels.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trimtab.cli.output import print_table
from trimtab.fleet import tasks
from trimtab.fleet.sdk.client import connect
from trimtab.fleet.site.launch import Launch

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.fleet.sdk.results import Result

PHASES: Final = ("reading", "executing", "publishing", "before commit")
TIMES = 10  # kills per phase
RATE = 200  # publications per second
KINDS = 20
CLIENTS = 20
SEED = 0
PATIENCE_S = 120.0
MANIFEST = """app: kills
feeds:
  reports:
    topic: kills.reports
    schema: {id: int, kind: string}
channels:
  kills_now:
    parameters: {kind: string}
    period: continuous
    query: SELECT id FROM reports WHERE kind = :kind
  kills_often:
    parameters: {kind: string}
    period: 2s
    query: SELECT id FROM reports WHERE kind = :kind
"""
CHANNELS: Final = ("kills_now", "kills_often")


def pipeline(home: Path, phase: str, seed: int) -> None:
    """Run the pipeline of the manifest in ``home``. It kills itself in ``phase``, not before its third execution."""
    from trimtab.pipeline import driver, run

    chance = random.Random(seed)

    class Mortal(driver.Driver):
        executed = 0

        def _read(self, wait_s: float = 0.0) -> None:
            self._die("reading", chance.uniform(0.0, 0.2))
            super()._read(wait_s)

        def _results(self, sql: str, execution: Any) -> Any:
            self._die("executing", chance.uniform(0.0, 0.2))
            return super()._results(sql, execution)

        def _publish(self, *args: Any, **options: Any) -> dict[str, int]:
            self._die("publishing", chance.uniform(0.05, 0.4))
            return super()._publish(*args, **options)

        def _commit(self, *args: Any) -> None:
            self._die("before commit", 0.0)
            super()._commit(*args)
            self.executed += 1

        def _die(self, current: str, after_s: float) -> None:
            if phase == current and self.executed >= 2:
                if not after_s:
                    os.kill(os.getpid(), signal.SIGKILL)
                threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGKILL)).start()

    driver.Driver = Mortal  # type: ignore[misc]
    settings = {"spark.driver.memory": "2g"}
    quiet: dict[str, Callable[[Any], None]] = dict.fromkeys(("step", "on_execution", "on_ready"), lambda _: None)
    run.run(home / "kills.yaml", home, settings, stopping=lambda: False, **quiet)


def _start(home: Path, phase: str, seed: int) -> subprocess.Popen[bytes]:
    words = (sys.executable, "-m", "benchmarks.kills", str(home), phase, str(seed))
    return subprocess.Popen(words, stderr=subprocess.DEVNULL)


class Audit:
    """Published messages, and the messages in results."""

    def __init__(self) -> None:
        self.published: dict[str, list[int]] = {f"kind-{kind}": [] for kind in range(KINDS)}
        self.received: list[tuple[str, Counter[int]]] = []  # of each subscription: kind, ids
        self.twice = 0  # results of an execution that had been delivered before

    def receiver(self, kind: str) -> Callable[[Result], None]:
        ids: Counter[int] = Counter()
        last = 0
        self.received.append((kind, ids))

        def on_result(result: Result) -> None:
            nonlocal last
            self.twice += result.execution <= last
            last = result.execution
            ids.update(row["id"] for row in result.rows)

        return on_result

    @property
    def missing(self) -> int:
        return sum(len(set(self.published[kind]) - set(ids)) for kind, ids in self.received)

    @property
    def repeated(self) -> int:
        return sum(ids.total() - len(ids) for _, ids in self.received)


async def _publish(client: Any, audit: Audit, stop: asyncio.Event) -> None:
    chance, number, began = random.Random(SEED), 0, time.monotonic()
    while not stop.is_set():
        while number < (time.monotonic() - began) * RATE:
            kind = f"kind-{chance.randrange(KINDS)}"
            await client.publish("kills.reports", f'{{"id": {number}, "kind": "{kind}"}}')
            audit.published[kind].append(number)
            number += 1
        await asyncio.sleep(0.01)
    await client.flush()


async def _run() -> None:
    audit = Audit()
    rows = []
    with tempfile.TemporaryDirectory(prefix="trimtab-kills-") as folder:
        home = Path(folder)
        (home / "kills.yaml").write_text(MANIFEST)
        async with Launch(home) as launch, contextlib.AsyncExitStack() as stack:
            await launch.start_hub()
            for name in ("b1", "b2"):
                await launch.start_broker(name)
            await launch.ready(["b1", "b2"])
            publisher = await stack.enter_async_context(connect(home, name="publisher", home="b1"))
            await publisher.create_topic("kills.reports")
            first = _start(home, "never", 0)
            stack.callback(first.kill)
            while not (home / "pipeline" / "ready").exists():
                await asyncio.sleep(0.2)
            for number in range(CLIENTS):
                client = await stack.enter_async_context(
                    connect(home, name=f"subscriber-{number}", home=f"b{1 + number % 2}")
                )
                kind = f"kind-{number % KINDS}"
                await client.subscribe_channels(
                    [(channel, audit.receiver(kind), {"kind": kind}) for channel in CHANNELS]
                )
            stop = asyncio.Event()
            publishing = asyncio.create_task(_publish(publisher, audit, stop))
            await asyncio.sleep(5.0)
            first.kill()
            await asyncio.to_thread(first.wait)
            for phase in PHASES:
                killed, lifetimes_s = 0, []
                for seed in range(TIMES):
                    began = time.monotonic()
                    process = _start(home, phase, seed)
                    code = await asyncio.to_thread(process.wait)
                    killed += code == -signal.SIGKILL
                    lifetimes_s.append(time.monotonic() - began)
                rows.append((phase, f"{killed}", f"{min(lifetimes_s):.0f} to {max(lifetimes_s):.0f} s"))
                print(f"{phase}: {killed} kills", flush=True)
            stop.set()
            await publishing
            last = _start(home, "never", 0)
            stack.callback(last.kill)
            began = time.monotonic()
            while audit.missing and time.monotonic() - began < PATIENCE_S:
                await asyncio.sleep(0.5)
            await asyncio.sleep(5.0)
            last.kill()
            published = sum(map(len, audit.published.values()))
            received = sum(ids.total() for _, ids in audit.received)
    print_table(
        f"{published:,} publications, {len(audit.received)} subscriptions, {received:,} rows received",
        ["killed while", "kills", "lifetime"],
        rows,
        note=f"missing: {audit.missing}; twice: {audit.repeated} rows, {audit.twice} results",
    )


def main() -> None:
    tasks.run(_run())


if __name__ == "__main__":
    pipeline(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
