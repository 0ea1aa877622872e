"""One point of the processing experiment: a live broker of its own, under load, measured."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.fleet.protocol import coding, subjects, wire
from trimtab.fleet.site.credentials import CLIENT_FILE, read_secret
from trimtab.lab.live import LiveFleet
from trimtab.observe.report import BrokerReport

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg

    from trimtab.fleet.sdk.client import Client
    from trimtab.lab.experiment import Job, Row

WARM_S: Final = 1.5
WAIT_S: Final = 2.0  # wait for messages in flight after publishing ends
SIZE_BYTES: Final = 4096
STAMP: Final = struct.Struct("!iq")  # number of the message, -1 if it is not measured; time of sending, ns
FOREGROUND: Final = "foreground"
PER_CONNECTION: Final = 40  # subscriptions per connection
MIDDLE_MS: Final = 20  # processing interval of the foreground topic in 1b and 1d


class Trial:
    """One point: a broker, its topics and their load."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.random = random.Random(job["seed"])
        self.background = self._background()
        self.delays_ms: dict[int, list[float]] = {}  # message -> delays of its deliveries so far
        self.late_ms: list[float] = []  # delay of each message's sending after its due time
        self.reports: list[BrokerReport] = []

    def _background(self) -> list[tuple[int, int]]:
        """Interval in ms and messages/s of each background topic.

        In 1d they are random. A trial with fewer topics uses the first topics of a trial with more.
        """
        if self.job["panel"] == "b":
            return [(MIDDLE_MS, 10)] * self.job["background"]
        return [(self.random.randint(20, 40), self.random.randint(6, 14)) for _ in range(self.job["background"])]

    async def run(self) -> Row:
        async with contextlib.AsyncExitStack() as stack:
            fleet = await stack.enter_async_context(LiveFleet(1))
            client = await stack.enter_async_context(fleet.client("publisher", fleet.names[0]))
            topics = {FOREGROUND: self.job["ms"]} | {_name(row): ms for row, (ms, _) in enumerate(self.background)}
            creations = (
                client.create_topic(topic, processor=f"burn?ms={ms}", limit_ms=60_000.0) for topic, ms in topics.items()
            )
            await asyncio.gather(*creations)
            await self._subscribe(fleet, stack, topics)
            await (await fleet.launch.admin()).subscribe(subjects.telemetry(subjects.ANY), cb=self._on_report)
            for topic in topics:
                await client.publish(topic, _message(-1))  # opens the route
            publishing = asyncio.create_task(self._publish(client))
            await asyncio.sleep(WARM_S)
            began, busy = time.time(), _cpu_times()
            await publishing
            ended, busy = time.time(), _cpu_times() - busy
            expected = len(self.delays_ms) * self.job["subscribers"]
            deadline = time.monotonic() + WAIT_S
            while self._delivered < expected and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
            return self._row(expected, began, ended, float(busy[0] / busy[1]))

    @property
    def _delivered(self) -> int:
        return sum(len(delays) for delays in self.delays_ms.values())

    async def _subscribe(self, fleet: LiveFleet, stack: contextlib.AsyncExitStack, topics: Iterable[str]) -> None:
        """Subscribe with plain NATS clients, several subscribers per connection.

        The broker sends a copy per subscription, as with SDK clients.
        """
        credentials = read_secret(fleet.home / CLIENT_FILE, "the fleet writes it")
        subscriptions = [subjects.deliver(FOREGROUND)] * self.job["subscribers"]
        starts = range(0, len(subscriptions), PER_CONNECTION)
        parts = [subscriptions[start : start + PER_CONNECTION] for start in starts]
        others = [subjects.deliver(topic) for topic in topics if topic != FOREGROUND]
        for number, part in enumerate([*parts, others]):
            urls = credentials["brokers"][fleet.names[0]]
            user, password = credentials["user"], credentials["password"]
            nats: Nats = await wire.connect(urls, user, password, name=f"subscribers-{number}")
            stack.push_async_callback(nats.close)
            for subject in part:
                await nats.subscribe(subject, cb=self._receive)
            await nats.flush()

    async def _receive(self, raw: Msg) -> None:
        now = time.monotonic_ns()
        number, sent = STAMP.unpack_from(raw.data)
        if number >= 0:
            self.delays_ms[number].append((now - sent) / 1e6)

    async def _on_report(self, raw: Msg) -> None:
        self.reports.append(coding.decode(raw.data, BrokerReport))

    async def _publish(self, client: Client) -> None:
        """Let every publisher send once a second, each with its own phase, without waiting for replies."""
        publishers = [(FOREGROUND, self.job["rate"])]
        publishers += [(_name(row), rate) for row, (_, rate) in enumerate(self.background)]
        streams = [(self.random.random(), topic) for topic, rate in publishers for _ in range(rate)]
        length = WARM_S + self.job["seconds"]
        seconds = range(math.ceil(length))
        plan = sorted(
            (phase + second, topic) for phase, topic in streams for second in seconds if phase + second < length
        )
        began = time.monotonic()
        for due, topic in plan:
            await asyncio.sleep(max(0.0, began + due - time.monotonic()))
            number = -1
            if topic == FOREGROUND and due >= WARM_S:
                number = len(self.delays_ms)
                self.delays_ms[number] = []
                self.late_ms.append(1000 * (time.monotonic() - began - due))
            await client.publish(topic, _message(number))

    def _row(self, expected: int, began: float, ended: float, machine: float) -> Row:
        delays = [delay for row in self.delays_ms.values() for delay in row]
        last = [max(row) for row in self.delays_ms.values() if row]
        reports = [report for report in self.reports if began < report.at <= ended]
        busy = sum(topic.busy_s for report in reports for topic in report.topics.values())
        own = sum(report.topics[FOREGROUND].busy_s for report in reports if FOREGROUND in report.topics)
        return {
            **{f"p{q}_ms": _percentile(delays, q) for q in (50, 90, 99)},
            "last_p90_ms": _percentile(last, 90),  # delay until the last subscriber has a message
            "messages": len(self.delays_ms),
            "expected": expected,
            "delivered": self._delivered,
            "late_p90_ms": _percentile(self.late_ms, 90),
            "cpu_s": own,  # CPU time of the foreground topic's processor, from the agent's reports
            "background_cpu_s": busy - own,
            "reported_s": sum(report.period_s for report in reports),  # time that these reports cover
            "background_cores": sum(ms * rate / 1000 for ms, rate in self.background),  # demand
            "machine_busy": machine,  # share of all cores in use by any process
        }


def _name(background: int) -> str:
    return f"background.{background}"


def _message(number: int) -> bytes:
    return STAMP.pack(number, time.monotonic_ns()).ljust(SIZE_BYTES, b".")


def _percentile(values: list[float], q: float) -> float:
    return float(np.percentile(values, q)) if values else math.nan


def _cpu_times() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Busy time and total time of all cores since the start of the machine; NaN without /proc/stat."""
    try:
        ticks = [float(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return np.array([math.nan, math.nan])
    return np.array([sum(ticks) - ticks[3] - ticks[4], sum(ticks)])  # without idle time and I/O wait
