"""A live fleet out of balance, repeatedly: time until it is level, lost messages, and moves after that.

The fleet has five brokers, the pipeline for measurements, and a controller with default settings. Every subscriber has
an own topic and some shared topics. Most subscribers are moved to one broker while the controller is paused; then the
controller is resumed. Every message that is published after a subscription must be delivered once, also during moves.
Then nothing may move for two minutes: in every other run under a steady load, in the others with 10 % noise in all
rates.

At the end, brokers are killed one after the other, and the time is measured until each of their clients gets a message
again. Then the leading controller is killed several times.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.cli.output import print_table
from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.operator import Operator
from trimtab.fleet.operator.measurements import newest_snapshot
from trimtab.fleet.protocol.admin_verbs import MoveOrder
from trimtab.fleet.sdk.client import connect
from trimtab.fleet.site.launch import Launch
from trimtab.model.key import Key

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.fleet.protocol.message import Message
    from trimtab.fleet.sdk.client import Client

RUNS = 10
REST_S = 120.0
CLIENTS = 60
SHARED = 12  # number of shared topics
PER_CLIENT = 3  # shared topics of every client
BROKERS = ("b1", "b2", "b3", "b4", "b5")
SKEW = 0.6  # share of the clients that are moved to one broker
LEVEL = 0.1  # spread of loads below which the fleet is level
BAR_S = 30.0  # limit of the time until the fleet is level, beyond which the controllers' logs are printed
NOISE = 0.1
RATE = 400.0  # messages a second, over all topics
TICK_S = 0.05
PATIENCE_S = 120.0
SEED = 0
LEADERS = 5  # number of leaders killed


class Audit:
    """The numbers of published messages by topic, and of received messages by subscriber."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()  # the last number of each topic
        self.received: dict[tuple[int, str], Counter[int]] = {}  # (client, topic) -> numbers
        self.last_at: dict[int, float] = {}  # client -> time of its last message

    def receiver(self, client: int, topic: str) -> Callable[[Message], None]:
        received = self.received[client, topic] = Counter()

        def on_message(message: Message) -> None:
            received[int(message.data[:10])] += 1
            self.last_at[client] = time.monotonic()

        return on_message

    def lost_and_doubled(self) -> tuple[int, int]:
        lost = sum(
            sum(n not in received for n in range(1, self.sent[topic] + 1))
            for (_, topic), received in self.received.items()
        )
        return lost, sum(count - 1 for received in self.received.values() for count in received.values())

    @property
    def delivered(self) -> int:
        return sum(received.total() for received in self.received.values())


class Load:
    """Publishes at rates drawn once for all topics, with or without noise."""

    def __init__(self, rng: np.random.Generator, topics: list[str], audit: Audit) -> None:
        self.topics = topics
        weight = np.exp(rng.uniform(0.0, np.log(10.0), len(topics)))
        self.rate = RATE * weight / weight.sum()
        self.noise = 0.0
        self._rng = rng
        self._audit = audit
        self._due = np.zeros(len(topics))

    async def run(self, client: Client) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            noise = 1.0 + self.noise * self._rng.standard_normal(len(self.topics))
            self._due += self.rate * (now - last) * np.maximum(noise, 0.0)
            last = now
            for row in np.flatnonzero(self._due >= 1.0).tolist():
                for _ in range(int(self._due[row])):
                    self._audit.sent[self.topics[row]] += 1
                    await client.publish(self.topics[row], f"{self._audit.sent[self.topics[row]]:010d}{'.' * 190}")
                self._due[row] %= 1.0


async def _operator(launch: Launch) -> Operator:
    return Operator(await launch.admin())


async def _until(condition: Callable[[], Any], limit_s: float = PATIENCE_S) -> float:
    """Wait until the condition holds; returns the seconds."""
    began = time.monotonic()
    while not await condition():
        assert time.monotonic() < began + limit_s, "the condition did not hold in time"
        await asyncio.sleep(0.2)
    return time.monotonic() - began


async def _skew(launch: Launch, rng: np.random.Generator, broker: str) -> None:
    """Move most subscribers to one broker, and the others to random brokers."""
    moves = []
    operator = await _operator(launch)
    homes = {row.client: row.home for row in await operator.clients()}
    for number in range(CLIENTS):
        target = broker if rng.random() < SKEW else BROKERS[rng.integers(len(BROKERS))]
        if homes[f"sub-{number}"] != target:
            moves.append(MoveOrder(Key("client", "", f"sub-{number}"), target))
    await operator.move(moves)


async def _run(launch: Launch, load: Load, rng: np.random.Generator, number: int) -> tuple[str, ...]:
    broker, operator = BROKERS[number % len(BROKERS)], await _operator(launch)
    await operator.pause("benchmark")
    load.noise = 0.0
    await _skew(launch, rng, broker)

    async def uneven() -> bool:
        status = await operator.status()
        return bool(status.load) and status.load.spread > 0.5

    async def level() -> bool:
        status = await operator.status()
        return bool(status.load.spread < LEVEL)

    await _until(uneven)
    before = (await operator.status()).load.spread
    await operator.resume()
    level_s = await _until(level)

    async def at_rest() -> bool:
        return (await operator.status()).progress is None

    await _until(at_rest)
    after = (await operator.status()).load.spread
    load.noise = NOISE if number % 2 else 0.0
    moves_before = await _moved(launch)
    print(f"run {number + 1}: spread {before:.2f}, below {LEVEL} after {level_s:.1f} s", flush=True)
    if level_s > BAR_S:
        for log in sorted(launch.home.glob("controller-*/log")):
            print("".join(log.read_text().splitlines(keepends=True)[-12:]), flush=True)
    await asyncio.sleep(REST_S)
    late_moves = await _moved(launch) - moves_before
    end = (await operator.status()).load.spread
    return (
        f"{number + 1}", f"{NOISE:.0%} noise" if number % 2 else "steady", f"{before:.2f}", f"{level_s:.1f} s",
        f"{after:.3f}", f"{end:.3f}", f"{late_moves}",
    )  # fmt: skip


async def _killed(launch: Launch, audit: Audit, clients: list[Client], broker: str) -> list[float]:
    """Kill a broker; returns the seconds until each of its clients got a message from another broker."""
    waiting = {number for number, client in enumerate(clients) if client.home == broker}
    times_s: list[float] = []
    began = time.monotonic()
    await launch.end_broker(broker, kill=True)
    while waiting:
        assert time.monotonic() < began + PATIENCE_S, f"{len(waiting)} clients are not served"
        for number in list(waiting):
            if clients[number].serving not in ("", broker) and audit.last_at.get(number, 0.0) > began + 0.05:
                times_s.append(audit.last_at[number] - began)
                waiting.discard(number)
        await asyncio.sleep(0.005)

    async def rehomed() -> bool:
        return all(client.home != broker for client in clients)

    await _until(rehomed)
    await launch.start_broker(broker)

    async def used_again() -> bool:
        with contextlib.suppress(BadInput, Unreachable):
            status = await (await _operator(launch)).status()
            return status.progress is None and len(status.brokers) == len(BROKERS) and status.load.spread < LEVEL
        return False

    await _until(used_again, 2 * PATIENCE_S)
    return times_s


async def _leader_killed(launch: Launch) -> float:
    """Kill the leading controller; returns the seconds until another one leads."""
    before = (await (await _operator(launch)).status()).leader
    for child in launch.supervisor.children:
        if child.name.startswith("controller") and f"{before} leads" in child.log.read_text():
            os.kill(child.pid, signal.SIGKILL)

    async def another() -> bool:
        with contextlib.suppress(BadInput, Unreachable):
            return bool((await (await _operator(launch)).status(0.3)).leader != before)
        return False

    return await _until(another)


async def _moved(launch: Launch) -> int:
    """The total number of moves so far."""
    return len(await (await _operator(launch)).moves(100_000))


async def _watch(launch: Launch, ages: list[float]) -> None:
    """Record the age of the newest measurement, five times a second."""
    admin = await launch.admin()
    number, at = 0, 0.0
    while True:
        if (newest := await newest_snapshot(admin, number)) is not None:
            number, at = newest[0], newest[1].at
        if at:
            ages.append(time.time() - at)
        await asyncio.sleep(0.2)


async def _all(home: Path) -> None:
    rng = np.random.default_rng(SEED)
    own = [f"own.{number}" for number in range(CLIENTS)]
    shared = [f"shared.{number}" for number in range(SHARED)]
    audit = Audit()
    async with Launch(home) as launch, contextlib.AsyncExitStack() as stack:
        await launch.start_hub()
        for name in BROKERS:
            await launch.start_broker(name)
        await launch.ready(BROKERS)
        for name in ("controller-1", "controller-2"):
            launch.start_controller(name, paused=True)
        await launch.start_pipeline()
        publisher = await stack.enter_async_context(connect(home, name="pub", home="b1"))
        for topic in (*own, *shared):
            await publisher.create_topic(topic, unit="client")
        clients = []
        for number in range(CLIENTS):
            client = await stack.enter_async_context(connect(home, name=f"sub-{number}", home="b1"))
            topics = rng.choice(shared, PER_CLIENT, replace=False).tolist()
            for topic in (own[number], *topics):
                await client.subscribe(topic, audit.receiver(number, topic))
            clients.append(client)
        load = Load(rng, [*own, *shared], audit)
        publishing = asyncio.create_task(load.run(publisher))
        ages: list[float] = []
        first = await _run(launch, load, rng, 0)  # Spark's first measurements take longer
        watching = asyncio.create_task(_watch(launch, ages))
        rows = [first, *[await _run(launch, load, rng, number) for number in range(1, RUNS)]]
        await tasks.end(publishing, watching)
        await publisher.flush()
        last = itertools.count()
        while audit.lost_and_doubled()[0] and next(last) < 50:  # the last messages may still be in flight
            await asyncio.sleep(0.2)
        lost, doubled = audit.lost_and_doubled()
        publishing = asyncio.create_task(load.run(publisher))
        await (await _operator(launch)).resume()
        served = [seconds for broker in BROKERS[1:] for seconds in await _killed(launch, audit, clients, broker)]
        leads = [await _leader_killed(launch) for _ in range(LEADERS)]
        await tasks.end(publishing)
    print_table(
        f"{CLIENTS} subscribers, {SKEW:.0%} of them moved to one of {len(BROKERS)} brokers, {RUNS} times",
        ["run", "load", "spread", f"below {LEVEL} after", "spread then", f"{REST_S:.0f} s later", "moves meanwhile"],
        rows,
        note=f"{audit.sent.total():,} published, {audit.delivered:,} delivered, {lost:,} lost, {doubled:,} twice; the "
        f"newest measurement was {np.median(ages):.1f} s old in the median, {max(ages):.1f} s at most, after run 1",
    )
    p50, p99 = np.quantile(served, [0.5, 0.99])
    print(
        f"{len(BROKERS) - 1} brokers killed: {len(served)} clients had a message again after {p50:.2f} s (median), "
        f"{p99:.2f} s (p99), {max(served):.2f} s (last)\n{LEADERS} leading controllers killed: another one led after "
        f"{np.median(leads):.2f} s (median), {max(leads):.2f} s (longest)"
    )


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder:
        tasks.run(_all(Path(folder)))
