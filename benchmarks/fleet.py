"""What the SDK costs beside bare nats-py, in CPU time of the application, on one broker in one run.

The two take turns, so that a busy machine disturbs both; the ratio of the best rounds is what counts.
"""

from __future__ import annotations

import asyncio
import json
import time

import nats

from trimtab.cli.output import print_table
from trimtab.fleet import tasks
from trimtab.lab.live import LiveFleet

MESSAGES = 30_000
BURST = 50  # then let the receiver run, as an application's other work would
ROUNDS = 5
SIZE = 256


async def _bare(url: str, login: dict) -> float:
    """CPU seconds to publish and receive all messages with nats-py and a callback."""
    publisher, subscriber = [await nats.connect(url, user=login["user"], password=login["password"]) for _ in range(2)]
    got, done = 0, asyncio.Event()

    async def heard(_) -> None:
        nonlocal got
        got += 1
        if got == MESSAGES:
            done.set()

    await subscriber.subscribe("t.bare", cb=heard)
    await subscriber.flush()
    payload = b"x" * SIZE
    began = time.process_time()
    for number in range(MESSAGES):
        await publisher.publish("t.bare", payload)
        if number % BURST == 0:
            await asyncio.sleep(0)
    await publisher.flush()
    await done.wait()
    used = time.process_time() - began
    await publisher.close()
    await subscriber.close()
    return used


async def _sdk(fleet: LiveFleet) -> float:
    """The same through the SDK."""
    async with fleet.client("publisher", "b1") as publisher, fleet.client("subscriber", "b1") as subscriber:
        await publisher.create_topic("sdk")
        got, done = 0, asyncio.Event()

        async def heard(_) -> None:
            nonlocal got
            got += 1
            if got == MESSAGES + 1:
                done.set()

        await subscriber.subscribe("sdk", heard)
        payload = b"x" * SIZE
        await publisher.publish("sdk", payload)  # opens the route
        await publisher.flush()
        began = time.process_time()
        for number in range(MESSAGES):
            await publisher.publish("sdk", payload)
            if number % BURST == 0:
                await asyncio.sleep(0)
        await publisher.flush()
        await done.wait()
        return time.process_time() - began


async def _run() -> None:
    async with LiveFleet(1) as fleet:
        login = json.loads((fleet.home / "client.json").read_text())
        bare, sdk = [], []
        for _ in range(ROUNDS):
            bare.append(await _bare(login["brokers"]["b1"][0], login))
            sdk.append(await _sdk(fleet))
    rows = [
        (name, f"{1e6 * min(used) / MESSAGES:.1f} µs", f"{1e6 * sorted(used)[ROUNDS // 2] / MESSAGES:.1f} µs",
         f"{min(used) / min(bare):.2f} x")
        for name, used in (("nats-py, callback (baseline)", bare), ("trimtab SDK, callback", sdk))
    ]  # fmt: skip
    print_table(
        f"CPU per message published and received, {MESSAGES:,} messages of {SIZE} bytes, {ROUNDS} rounds in turns",
        ["what", "best", "median", "best / baseline"], rows,
    )  # fmt: skip


def main() -> None:
    tasks.run(_run())
