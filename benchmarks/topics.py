"""Topics on a live fleet: first all placed as a whole, then a third each placed as a whole, by client and by link.

Of forty topics, some have a processor. Most topics are moved to one broker while the controller is paused; then it is
resumed. Measured are the time until the spread of loads is below 0.1, lost and repeated messages, the moves after that,
and the deviation of the load that the controller shows for each broker from the count of that broker's server. At the
end every broker is killed once, and the time is measured until each delivery path over it delivers again.

``TRIMTAB_RUNS``, ``TRIMTAB_REST_S`` and ``TRIMTAB_KINDS`` (topics, mixed) make the benchmark shorter; ``TRIMTAB_SEED``
is the seed (0).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.balance import BAR_S, LEVEL, Audit, _operator, _until
from trimtab.cli.output import print_table
from trimtab.errors import AlreadyThere, BadInput, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.protocol.admin_verbs import ListBrokers, MoveOrder, PlacedLink
from trimtab.fleet.sdk.client import connect
from trimtab.fleet.site.launch import Launch
from trimtab.model.key import Key

if TYPE_CHECKING:
    from trimtab.fleet.sdk.client import Client

RUNS = int(os.environ.get("TRIMTAB_RUNS", "10"))
REST_S = float(os.environ.get("TRIMTAB_REST_S", "120"))
BROKERS = ("b1", "b2", "b3", "b4")
TOPICS = 40
PUBLISHERS = 4
SUBSCRIBERS = 16
PER_TOPIC = 3  # subscribers of a topic
RATE = 400.0  # messages/s, over all topics
SIZE = 500
SKEW = 0.8
TICK_S = 0.05
WATCH_S = 30.0  # time over which loads are compared
SETTLE_S = 25.0  # the loads shown are means that begin up to 17 s earlier
SEED = int(os.environ.get("TRIMTAB_SEED", "0"))
UNITS = {"topics": ("topic",), "mixed": ("topic", "client", "link")}


class Fleet:
    """Topics with a publisher and some subscribers each."""

    def __init__(self, launch: Launch, kind: str, rng: np.random.Generator) -> None:
        self.launch = launch
        self.rng = rng
        self.audit = Audit()
        units = UNITS[kind]
        self.unit = {f"topic.{number}": units[number % len(units)] for number in range(TOPICS)}
        self.publisher = {topic: int(rng.integers(PUBLISHERS)) for topic in self.unit}
        self.subscribers = {topic: rng.choice(SUBSCRIBERS, PER_TOPIC, replace=False).tolist() for topic in self.unit}
        weight = np.exp(rng.uniform(0.0, np.log(10.0), TOPICS))
        self.rate = RATE * weight / weight.sum()
        self.publishers: list[Client] = []

    async def begin(self, stack: contextlib.AsyncExitStack) -> None:
        home = self.launch.home
        for number in range(PUBLISHERS):
            self.publishers.append(await stack.enter_async_context(connect(home, name=f"pub-{number}")))
        clients = [
            await stack.enter_async_context(connect(home, name=f"sub-{number}")) for number in range(SUBSCRIBERS)
        ]
        for number, (topic, unit) in enumerate(self.unit.items()):
            processor = "burn?ms=0.2" if number % 4 == 1 else ""
            await self.publishers[0].create_topic(topic, unit=unit, processor=processor)
            if unit == "link":
                names = [
                    f"pub-{self.publisher[topic]}",
                    *(f"sub-{subscriber}" for subscriber in self.subscribers[topic]),
                ]
                await (await _operator(self.launch)).place_links([PlacedLink(name, topic, "b1") for name in names])
            for subscriber in self.subscribers[topic]:
                await clients[subscriber].subscribe(topic, self.audit.receiver(subscriber, topic))

    async def publish(self) -> None:
        due, last, names = np.zeros(TOPICS), time.monotonic(), list(self.unit)
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            due += self.rate * (now - last)
            last = now
            for row in np.flatnonzero(due >= 1.0).tolist():
                for _ in range(int(due[row])):
                    topic = names[row]
                    self.audit.sent[topic] += 1
                    text = f"{self.audit.sent[topic]:010d}{'.' * (SIZE - 10)}"
                    await self.publishers[self.publisher[topic]].publish(topic, text)
                due[row] %= 1.0

    def keys(self) -> list[Key]:
        keys = {Key("client", "", f"sub-{number}") for number in range(SUBSCRIBERS)}
        for topic, unit in self.unit.items():
            if unit == "topic":
                keys.add(Key("topic", topic, ""))
            if unit == "link":
                names = [
                    f"pub-{self.publisher[topic]}",
                    *(f"sub-{subscriber}" for subscriber in self.subscribers[topic]),
                ]
                keys |= {Key("link", topic, name) for name in names}
        return sorted(keys)

    async def skew(self, broker: str) -> None:
        operator = await _operator(self.launch)
        ids = []
        for key in self.keys():
            target = broker if self.rng.random() < SKEW else BROKERS[self.rng.integers(len(BROKERS))]
            with contextlib.suppress(AlreadyThere):
                ids += await operator.start_moves([MoveOrder(key, target)])
        await operator.finished(ids)

    async def moved(self) -> int:
        return len(await (await _operator(self.launch)).moves(100_000))

    async def compare_loads(self) -> dict[str, tuple[float, float]]:
        """Bytes/s of every broker: as the controller shows it, and as the broker's server counts it.

        The comparison starts some time after the last move, since the loads shown are means over ten seconds,
        which are renewed every five.
        """
        await asyncio.sleep(SETTLE_S)
        operator = await _operator(self.launch)
        counted: dict[str, list[float]] = {name: [] for name in BROKERS}
        shown: dict[str, list[float]] = {name: [] for name in BROKERS}
        report_at: dict[str, float] = {}
        end = time.monotonic() + WATCH_S
        while time.monotonic() < end:
            for name, report in (await operator.ask(ListBrokers(reports=True))).reports.items():
                if report_at.get(name) != report.at:
                    report_at[name] = report.at
                    counted[name].append((report.in_bytes + report.out_bytes) / max(report.period_s, 0.1))
            for name, load in (await operator.status()).brokers.items():
                shown[name].append(load)
            await asyncio.sleep(0.3)
        return {name: (float(np.mean(shown[name])), float(np.mean(counted[name]))) for name in BROKERS}


async def _run(fleet: Fleet, number: int) -> tuple[str, ...]:
    operator = await _operator(fleet.launch)
    await operator.pause("benchmark")
    await fleet.skew(BROKERS[number % len(BROKERS)])

    async def spread() -> float:
        status = await operator.status()
        return float(status.load.spread) if status.load else 0.0

    async def uneven() -> bool:
        return await spread() > 0.5

    async def level() -> bool:
        return await spread() < LEVEL

    async def at_rest() -> bool:
        return (await operator.status()).progress is None

    await _until(uneven)
    before = await spread()
    uneven_loads = await fleet.compare_loads()
    await operator.resume()
    level_s = float("inf")
    try:
        level_s = await _until(level)
    finally:
        if level_s > BAR_S:
            for log in sorted(fleet.launch.home.glob("controller-*/log")):
                print(log.read_text(), flush=True)
    await _until(at_rest)
    moves_before = await fleet.moved()
    await asyncio.sleep(max(REST_S - WATCH_S - SETTLE_S, 0.0))
    loads = await fleet.compare_loads()
    late_moves = await fleet.moved() - moves_before
    deviation = max(
        abs(shown / max(counted, 1.0) - 1.0)
        for compared in (uneven_loads, loads)
        for shown, counted in compared.values()
    )
    print(
        f"run {number + 1}: spread {before:.2f}, below {LEVEL} after {level_s:.1f} s, deviation {deviation:.1%}",
        flush=True,
    )
    print("  skewed", {name: f"{a:,.0f}/{b:,.0f}" for name, (a, b) in uneven_loads.items()}, flush=True)
    print("  level ", {name: f"{a:,.0f}/{b:,.0f}" for name, (a, b) in loads.items()}, flush=True)
    return (
        f"{number + 1}",
        f"{before:.2f}",
        f"{level_s:.1f} s",
        f"{await spread():.3f}",
        f"{late_moves}",
        f"{deviation:.1%}",
    )


async def _paths_over(fleet: Fleet, broker: str) -> set[tuple[int, str]]:
    """Subscriber and topic of every delivery path over ``broker``: the topic or one of its links is placed there.

    Topics placed by client are left out, since ``benchmarks.balance`` kills brokers of clients.
    """
    operator = await _operator(fleet.launch)
    hosted = {row.topic for row in await operator.topics() if row.unit == "topic" and row.broker == broker}
    linked = {(row.topic, row.client) for row in await operator.links() if row.broker == broker}
    return {
        (subscriber, topic)
        for topic, subscribers in fleet.subscribers.items()
        for subscriber in subscribers
        if topic in hosted
        or (topic, f"sub-{subscriber}") in linked
        or (topic, f"pub-{fleet.publisher[topic]}") in linked
    }


async def _killed(fleet: Fleet, broker: str) -> list[float]:
    """Kill a broker; returns the seconds until each path over it delivers again, less the time between two messages."""
    operator = await _operator(fleet.launch)
    names, audit = list(fleet.unit), fleet.audit
    waiting = await _paths_over(fleet, broker)
    began, times_s = time.monotonic(), []
    await fleet.launch.end_broker(broker, kill=True)
    await asyncio.sleep(0.05)
    before = {path: audit.received[path].total() for path in waiting}
    while waiting and time.monotonic() < began + 60.0:
        for path in [path for path in waiting if audit.received[path].total() > before[path]]:
            times_s.append(time.monotonic() - began - 1.0 / fleet.rate[names.index(path[1])])
            waiting.discard(path)
        await asyncio.sleep(0.01)
    await fleet.launch.start_broker(broker)

    async def used_again() -> bool:
        with contextlib.suppress(BadInput, Unreachable):
            status = await operator.status()
            return status.progress is None and len(status.brokers) == len(BROKERS) and status.load.spread < LEVEL
        return False

    await _until(used_again)
    return times_s + [float("inf")] * len(waiting)


async def _all(home: Path, kind: str) -> None:
    rng = np.random.default_rng(SEED)
    async with contextlib.AsyncExitStack() as stack:
        launch = await stack.enter_async_context(Launch(home))
        await launch.start_hub()
        for name in BROKERS:
            await launch.start_broker(name)
        await launch.ready(BROKERS)
        launch.start_controller("controller-1", paused=True)
        await launch.start_pipeline()
        fleet = Fleet(launch, kind, rng)
        await fleet.begin(stack)
        publishing = asyncio.create_task(fleet.publish())
        rows = [await _run(fleet, number) for number in range(RUNS)]
        await tasks.end(publishing)
        for client in fleet.publishers:
            await client.flush()
        last = itertools.count()
        while fleet.audit.lost_and_doubled()[0] and next(last) < 50:
            await asyncio.sleep(0.2)
        lost, doubled = fleet.audit.lost_and_doubled()
        publishing = asyncio.create_task(fleet.publish())
        times_s = [seconds for broker in BROKERS for seconds in await _killed(fleet, broker)]
        await tasks.end(publishing)
    print_table(
        f"{TOPICS} topics ({kind}), {SKEW:.0%} of all keys moved to one of {len(BROKERS)} brokers, {RUNS} times",
        ["run", "spread", f"below {LEVEL} after", "spread then", "moves in the time after", "load shown is off by"],
        rows,
        note=f"{fleet.audit.sent.total():,} published, {fleet.audit.delivered:,} delivered, {lost:,} lost, {doubled:,} "
        f"twice; {len(BROKERS)} brokers killed: {len(times_s)} paths over them delivered again after "
        f"{np.median(times_s):.2f} s (median), {np.quantile(times_s, 0.99):.2f} s (p99), {max(times_s):.2f} s (last)",
    )


def main() -> None:
    for kind in os.environ.get("TRIMTAB_KINDS", ",".join(UNITS)).split(","):
        with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder:
            tasks.run(_all(Path(folder), kind))
