"""The application's CPU time with the SDK and with bare nats-py, on one broker.

The two take turns, so that a busy machine disturbs both. The result is the ratio of the best rounds.
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
BURST = 50  # messages after which the receiver runs, as with other work of an application
ROUNDS = 5
SIZE = 256


async def _bare(url: str, login: dict) -> float:
    """CPU seconds to publish and receive all messages with nats-py and a callback."""
    publisher, subscriber = [await nats.connect(url, user=login["user"], password=login["password"]) for _ in range(2)]
    received, done = 0, asyncio.Event()

    async def on_message(_) -> None:
        nonlocal received
        received += 1
        if received == MESSAGES:
            done.set()

    await subscriber.subscribe("t.bare", cb=on_message)
    await subscriber.flush()
    payload = b"x" * SIZE
    began = time.process_time()
    for number in range(MESSAGES):
        await publisher.publish("t.bare", payload)
        if number % BURST == 0:
            await asyncio.sleep(0)
    await publisher.flush()
    await done.wait()
    cpu_s = time.process_time() - began
    await publisher.close()
    await subscriber.close()
    return cpu_s


async def _sdk(fleet: LiveFleet) -> float:
    """The same through the SDK."""
    async with fleet.client("publisher", "b1") as publisher, fleet.client("subscriber", "b1") as subscriber:
        await publisher.create_topic("sdk")
        received, done = 0, asyncio.Event()

        async def on_message(_) -> None:
            nonlocal received
            received += 1
            if received == MESSAGES + 1:
                done.set()

        await subscriber.subscribe("sdk", on_message)
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
        (name, f"{1e6 * min(cpu_s) / MESSAGES:.1f} µs", f"{1e6 * sorted(cpu_s)[ROUNDS // 2] / MESSAGES:.1f} µs",
         f"{min(cpu_s) / min(bare):.2f} x")
        for name, cpu_s in (("nats-py, callback (baseline)", bare), ("trimtab SDK, callback", sdk))
    ]  # fmt: skip
    print_table(
        f"CPU per message published and received, {MESSAGES:,} messages of {SIZE} bytes, {ROUNDS} rounds in turns",
        ["client", "best", "median", "best / baseline"], rows,
    )  # fmt: skip


def main() -> None:
    tasks.run(_run())
