"""Topics with default settings on a live fleet, and a third of them each placed as a whole, by client and by link.

Forty topics, plain ones and ones with a processor, most of them brought to one broker while the controller is paused.
Then it may begin: how long until the spread of loads is below 0.1, what is lost or delivered twice, whether anything
moves in the time after, and how far the load that the controller shows for each broker is from what that broker's own
server counts. At the end every broker is killed once, and each delivery that went over it is watched until it comes
again.

``TRIMTAB_RUNS``, ``TRIMTAB_REST_S`` and ``TRIMTAB_KINDS`` (topics, mixed) make it shorter.
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
EACH = 3  # subscribers of a topic
RATE = 400.0  # messages/s, all topics together
SIZE = 500
SKEW = 0.8
TICK_S = 0.05
WATCH_S = 10.0  # over which loads are compared
SETTLE_S = 15.0
SEED = 0
UNITS = {"topics": ("topic",), "mixed": ("topic", "client", "link")}


class Fleet:
    """Topics with a publisher and some subscribers each."""

    def __init__(self, launch: Launch, kind: str, rng: np.random.Generator) -> None:
        self.launch = launch
        self.rng = rng
        self.audit = Audit()
        units = UNITS[kind]
        self.unit = {f"topic.{at}": units[at % len(units)] for at in range(TOPICS)}
        self.publisher = {topic: int(rng.integers(PUBLISHERS)) for topic in self.unit}
        self.subscribers = {topic: rng.choice(SUBSCRIBERS, EACH, replace=False).tolist() for topic in self.unit}
        weight = np.exp(rng.uniform(0.0, np.log(10.0), TOPICS))
        self.rate = RATE * weight / weight.sum()
        self.publishers: list[Client] = []

    async def begin(self, stack: contextlib.AsyncExitStack) -> None:
        home = self.launch.home
        for at in range(PUBLISHERS):
            self.publishers.append(await stack.enter_async_context(connect(home, name=f"pub-{at}")))
        clients = [await stack.enter_async_context(connect(home, name=f"sub-{at}")) for at in range(SUBSCRIBERS)]
        for at, (topic, unit) in enumerate(self.unit.items()):
            processor = "burn?ms=0.2" if at % 4 == 1 else ""
            await self.publishers[0].create_topic(topic, unit=unit, processor=processor)
            if unit == "link":
                there = [f"pub-{self.publisher[topic]}", *(f"sub-{each}" for each in self.subscribers[topic])]
                await (await _operator(self.launch)).place_links([PlacedLink(name, topic, "b1") for name in there])
            for each in self.subscribers[topic]:
                await clients[each].subscribe(topic, self.audit.receiver(each, topic))

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
        found = {Key("client", "", f"sub-{at}") for at in range(SUBSCRIBERS)}
        for topic, unit in self.unit.items():
            if unit == "topic":
                found.add(Key("topic", topic, ""))
            if unit == "link":
                names = [f"pub-{self.publisher[topic]}", *(f"sub-{each}" for each in self.subscribers[topic])]
                found |= {Key("link", topic, name) for name in names}
        return sorted(found)

    async def skew(self, broker: str) -> None:
        operator = await _operator(self.launch)
        ids = []
        for key in self.keys():
            to = broker if self.rng.random() < SKEW else BROKERS[self.rng.integers(len(BROKERS))]
            with contextlib.suppress(AlreadyThere):
                ids += await operator.start_moves([MoveOrder(key, to)])
        await operator.finished(ids)

    async def moved(self) -> int:
        return len(await (await _operator(self.launch)).moves(100_000))

    async def compare_loads(self) -> dict[str, tuple[float, float]]:
        """For every broker, bytes/s that the controller shows, and that its server counts; once what brokers report of
        themselves, means over ten seconds, is from after the last move."""
        await asyncio.sleep(SETTLE_S)
        operator = await _operator(self.launch)
        counted: dict[str, list[float]] = {name: [] for name in BROKERS}
        shown: dict[str, list[float]] = {name: [] for name in BROKERS}
        seen: dict[str, float] = {}
        end = time.monotonic() + WATCH_S
        while time.monotonic() < end:
            for name, report in (await operator.ask(ListBrokers(reports=True))).reports.items():
                if seen.get(name) != report.at:
                    seen[name] = report.at
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
        said = await operator.status()
        return float(said.load.spread) if said.load else 0.0

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
    took = float("inf")
    try:
        took = await _until(level)
    finally:
        if took > BAR_S:
            for log in sorted(fleet.launch.home.glob("controller-*/log")):
                print(log.read_text(), flush=True)
    await _until(at_rest)
    then = await fleet.moved()
    await asyncio.sleep(max(REST_S - WATCH_S - SETTLE_S, 0.0))
    loads = await fleet.compare_loads()
    late = await fleet.moved() - then
    off = max(
        abs(shown / max(counted, 1.0) - 1.0) for each in (uneven_loads, loads) for shown, counted in each.values()
    )
    print(f"run {number + 1}: spread {before:.2f}, below {LEVEL} after {took:.1f} s, off {off:.1%}", flush=True)
    print("  skewed", {name: f"{a:,.0f}/{b:,.0f}" for name, (a, b) in uneven_loads.items()}, flush=True)
    print("  level ", {name: f"{a:,.0f}/{b:,.0f}" for name, (a, b) in loads.items()}, flush=True)
    return f"{number + 1}", f"{before:.2f}", f"{took:.1f} s", f"{await spread():.3f}", f"{late}", f"{off:.1%}"


async def _paths_over(fleet: Fleet, broker: str) -> set[tuple[int, str]]:
    """Subscriber and topic of every delivery that passes ``broker`` because the topic or one of its links is placed
    there. Topics placed by client are not among them: ``benchmarks.balance`` kills brokers of clients."""
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
    """Seconds until each topic and link of ``broker`` delivers again, less the time between two of its messages."""
    operator = await _operator(fleet.launch)
    names, audit = list(fleet.unit), fleet.audit
    waiting = await _paths_over(fleet, broker)
    began, took = time.monotonic(), []
    await fleet.launch.end_broker(broker, kill=True)
    await asyncio.sleep(0.05)
    before = {path: audit.had[path].total() for path in waiting}
    while waiting and time.monotonic() < began + 60.0:
        for path in [path for path in waiting if audit.had[path].total() > before[path]]:
            took.append(time.monotonic() - began - 1.0 / fleet.rate[names.index(path[1])])
            waiting.discard(path)
        await asyncio.sleep(0.01)
    await fleet.launch.start_broker(broker)

    async def used_again() -> bool:
        with contextlib.suppress(BadInput, Unreachable):
            status = await operator.status()
            return status.progress is None and len(status.brokers) == len(BROKERS) and status.load.spread < LEVEL
        return False

    await _until(used_again)
    return took + [float("inf")] * len(waiting)


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
        took = [each for broker in BROKERS for each in await _killed(fleet, broker)]
        await tasks.end(publishing)
    print_table(
        f"{TOPICS} topics ({kind}), {SKEW:.0%} of all keys brought to one of {len(BROKERS)} brokers, {RUNS} times",
        ["run", "spread", f"below {LEVEL} after", "spread then", "moves in the time after", "load shown is off by"],
        rows,
        note=f"{fleet.audit.sent.total():,} published, {fleet.audit.delivered:,} delivered, {lost:,} lost, {doubled:,} "
        f"twice; {len(BROKERS)} brokers killed: {len(took)} paths over them delivered again after "
        f"{np.median(took):.2f} s (median), {np.quantile(took, 0.99):.2f} s (p99), {max(took):.2f} s (last)",
    )


def main() -> None:
    for kind in os.environ.get("TRIMTAB_KINDS", ",".join(UNITS)).split(","):
        with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder:
            tasks.run(_all(Path(folder), kind))
