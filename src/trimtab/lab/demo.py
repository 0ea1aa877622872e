"""The demo: a whole system on this machine, with a broker failure.

It consists of a simulated city of edge brokers, a Spark pipeline, simulated people, and a controller. Every client's
home is the nearest broker, so the broker in the middle of the city has most of the people. Then the controller is
resumed. Then one district has a rush of reports. Then a broker is killed and started again. At the end, the results
that the pipeline has published are compared with the results that each subscriber has received.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import yaml

import trimtab as package
from trimtab.control.decide import warm_up
from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.operator import Operator
from trimtab.fleet.protocol import subjects
from trimtab.fleet.protocol.streams import RESULTS
from trimtab.fleet.protocol.types import subscription_id
from trimtab.fleet.sdk.client import connect
from trimtab.fleet.site.launch import Launch
from trimtab.lab.demo_progress import Progress, Sample
from trimtab.lab.worlds.city import KINDS, SIDE_M, SQUARES, City, shelters_csv, to_earth
from trimtab.migrate.move import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.fleet.protocol.admin_verbs import ControllerStatus
    from trimtab.fleet.sdk.client import Client
    from trimtab.fleet.sdk.results import Result
    from trimtab.lab.demo_progress import Script
    from trimtab.lab.watchdog import Watchdog

log = logging.getLogger("trimtab.demo")
BROKERS: Final = 5
POSITIONS, REPORTS = "emergency.positions", "emergency.reports"
EXAMPLE: Final = "examples/emergency/emergency.yaml"
PERIODS: Final = ("10s", "20s", "30s")  # periods of the example's channels
PERIOD_S: Final = 2.0  # period of the controller
LATE_S: Final = 5.0  # delay after its execution at which a notification counts as late
KILLED: Final = "b2"  # name of the broker that is killed
WARMING: Final = "warming up"
RUSH: Final = 6.0  # factor of the reports in the district of the rush
TICK_S: Final = 0.25
PATIENCE_S: Final = 120.0  # longest wait for the first results of all channels
LAST_S: Final = 10.0  # longest wait for the last notifications
LEAVE_S: Final = 15.0  # limit of closing all clients
CLEAN_UP_S: Final = 180.0  # limit of the clean-up


async def run(
    out: Path, script: Script, seed: int, report: Callable[[Progress], None], watchdog: Watchdog | None = None
) -> Progress:
    """Run the whole demo; ``report`` is called twice a second."""
    manifest = _manifest(out, script)
    os.environ["TRIMTAB_CONFIG"] = str(_config(out))
    progress = Progress(script, watchdog=watchdog)
    progress.enter(progress.phase)
    home = out / "fleet"
    names = [f"b{number}" for number in range(1, BROKERS + 1)]
    async with Launch(home) as launch, contextlib.AsyncExitStack() as stack:
        if watchdog is not None:
            watchdog.before_exit(launch.supervisor.kill_all)
        reporting = asyncio.create_task(_report_progress(progress, report), name="report")
        stack.push_async_callback(tasks.end, reporting)
        try:
            await launch.start_hub()
            for name in names:
                await launch.start_broker(name)
            await launch.ready(names)
            progress.enter("compiling, the first time")
            await asyncio.to_thread(warm_up, "trim")
            for number in (1, 2):  # the second controller is the standby
                launch.start_controller(f"controller-{number}", paused=True)
            progress.enter("starting Spark")
            demo = _Demo(launch, progress, City(seed, script.clients), stack, names)
            await asyncio.gather(launch.start_pipeline(manifest), demo.connect())
            progress.enter("subscribing")
            await demo.subscribe()
            await demo.play()
        finally:
            progress.leave()
    report(progress)
    return progress


def _manifest(out: Path, script: Script) -> Path:
    """Write the manifest of the emergency application, with shorter periods so that the demo takes a few minutes."""
    source = Path(package.__file__).parents[2] / EXAMPLE
    if not source.exists():
        raise BadInput(f"the demo needs {EXAMPLE} of the source tree; {source} does not exist")
    text = source.read_text()
    for old, new in zip(PERIODS, script.periods, strict=True):
        text = text.replace(f"period: {old}", f"period: {new}")
    out.mkdir(parents=True, exist_ok=True)
    (out / "shelters.csv").write_text(shelters_csv())
    path = out / "emergency.yaml"
    if script.channels:
        application = yaml.safe_load(text)
        application["channels"] = {name: application["channels"][name] for name in script.channels}
        text = yaml.safe_dump(application, sort_keys=False)
    path.write_text(text)
    return path


def _config(out: Path) -> Path:
    """Write settings for a run of a few minutes: a JVM that compiles quickly and a short period of the controller."""
    path = out / "trimtab.toml"
    path.write_text(
        f"[control]\nperiod_s = {PERIOD_S}\n\n[spark]\n"
        '"driver.memory" = "1g"\n"driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"\n'
    )
    return path


async def _report_progress(progress: Progress, report: Callable[[Progress], None]) -> None:
    while True:
        report(progress)
        await asyncio.sleep(0.5)


def sites() -> tuple[Any, Any]:
    """Latitude and longitude of the brokers: one in the middle, the others towards the corners."""
    x = np.array([0.5, 0.15, 0.85, 0.15, 0.85]) * SIDE_M
    y = np.array([0.5, 0.15, 0.15, 0.85, 0.85]) * SIDE_M
    return to_earth(x, y)


class _Demo:
    """The clients of the demo and the events of its script."""

    def __init__(
        self, launch: Launch, progress: Progress, city: City, stack: contextlib.AsyncExitStack, brokers: list[str]
    ) -> None:
        self._launch = launch
        self._progress = progress
        self._city = city
        self._stack = stack
        self._brokers = brokers
        self._clients: list[Client] = []
        self._received: list[Counter[int]] = []  # of each client: sequence numbers of its results
        self._subscriptions: list[dict[str, str]] = []  # of each client: subscription id -> channel
        self._run = f"{time.time_ns() // 1_000_000:x}"
        self._number = 0  # of the last report
        self._period_s: dict[str, float] = {}  # channel -> period
        self._rush = 1.0  # factor of the reports in the busiest district
        self._stopped = False
        self._executed: set[str] = set()  # channels that have delivered a result

    # Preparation.

    async def connect(self) -> None:
        """Connect a client per person, with the nearest broker as its home."""
        people = self._city.step(0.0)
        lat, lon = sites()
        near = (people.lat[:, None] - lat) ** 2 + ((people.lon[:, None] - lon) * 0.68) ** 2
        homes = [self._brokers[row] for row in np.argmin(near, axis=1)]
        limit = asyncio.Semaphore(8)

        async def connect_one(number: int) -> Client:
            async with limit:
                client = connect(self._launch.home, name=f"person-{number}", home=homes[number])
                return await client.__aenter__()

        self._stack.push_async_callback(self._leave)

        self._publisher = await self._stack.enter_async_context(connect(self._launch.home, name="city", home="b1"))
        for topic in (POSITIONS, REPORTS):
            await self._publisher.create_topic(topic, unit="client")
        self._clients = list(await asyncio.gather(*map(connect_one, range(self._progress.script.clients))))

    async def subscribe(self) -> None:
        limit = asyncio.Semaphore(8)
        channels = await (await self._operator()).channels()
        self._period_s = {row.channel: row.period_s for row in channels}

        async def subscribe_one(number: int, client: Client) -> None:
            async with limit:
                pairs = [(name, params) for name, params in self._city.subscriptions(number) if name in self._period_s]
                self._subscriptions[number] = {subscription_id(name, params): name for name, params in pairs}
                receiver = self._receiver(number)
                await client.subscribe_channels([(name, receiver, params) for name, params in pairs])

        count = len(self._clients)
        self._subscriptions, self._received = [{} for _ in range(count)], [Counter() for _ in range(count)]
        await asyncio.gather(*(subscribe_one(number, client) for number, client in enumerate(self._clients)))

    def _receiver(self, number: int) -> Callable[[Result], None]:
        received, progress = self._received[number], self._progress

        def on_result(result: Result) -> None:
            received[result.seq] += 1
            self._executed.add(result.channel)
            progress.delivered += 1
            progress.late += time.time() - datetime.fromisoformat(result.at).timestamp() > LATE_S

        return on_result

    async def _leave(self) -> None:
        """Close all clients at the same time, since one after the other would take long."""
        closing = [asyncio.create_task(client.__aexit__(), name=f"close {client.name}") for client in self._clients]
        if closing:
            await asyncio.wait(closing, timeout=LEAVE_S)
        await tasks.end(*closing)

    # Events of the script.

    async def play(self) -> None:
        """Play the script, then audit the notifications."""
        script, progress = self._progress.script, self._progress
        work = tasks.Background("demo", log)
        publishing = work.start(self._publish())
        work.start(self._watch())
        try:
            progress.enter(WARMING, PATIENCE_S)
            await self._until_warm()
            await self._phase(WARMING, script.warm_s)
            await self._phase("skewed", script.skewed_s)
            await (await self._operator()).resume()
            await self._phase("trimmed", script.trimmed_s)
            self._rush = RUSH
            await self._phase("rush", script.rush_s)
            self._rush = 1.0
            victims = [row for row, client in enumerate(self._clients) if client.home == KILLED]
            killed = time.time()
            await self._launch.end_broker(KILLED, kill=True)
            checking = work.start(self._served_again(victims, killed))
            await self._phase(f"{KILLED} dead", script.dead_s)
            await self._launch.start_broker(KILLED)
            await self._phase(f"{KILLED} back", script.back_s)
            progress.served_again_s = await checking
            progress.enter("waiting for the last notifications", LAST_S)
            self._stopped = True
            await publishing
            await self.audit()
        finally:
            await work.end()

    async def _phase(self, name: str, seconds: float) -> None:
        self._progress.enter(name, seconds)
        if name != WARMING:
            self._progress.marks.append((self._progress.elapsed_s, name))
        await asyncio.sleep(seconds)

    async def _operator(self) -> Operator:
        return Operator(await self._launch.admin())

    async def _status(self) -> ControllerStatus:
        return await (await self._operator()).status(3.0)

    async def _until_warm(self) -> None:
        """Wait until every channel has delivered a result and the fleet has been measured."""
        began = time.monotonic()
        channels = {channel for subscriptions in self._subscriptions for channel in subscriptions.values()}
        while time.monotonic() < began + PATIENCE_S:
            with contextlib.suppress(BadInput, Unreachable):
                status = await self._status()
                if self._executed >= channels and status.load and status.load.mean > 0.0:
                    return
            await asyncio.sleep(0.5)
        missing = ", ".join(sorted(channels - self._executed)) or "a measurement"
        raise Unreachable(f"no result of {missing} came within {PATIENCE_S:g} s; see pipeline.log")

    async def _publish(self) -> None:
        """Publish positions of all people, and reports around the squares. In the rush, one square has more reports."""
        rng = np.random.default_rng((self._city.seed, 99))
        squares = SQUARES
        weight = np.arange(1, len(squares) + 1) ** -0.6
        kinds = list(KINDS)
        then, due, person = time.monotonic(), 0.0, 0
        while not self._stopped:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            share = weight.copy()
            share[0] *= self._rush
            due += (now - then) * self._progress.script.reports_per_s * share.sum() / weight.sum()
            places = self._city.step(now - then)
            for _ in range(int((now - then) * len(self._clients) / 5.0) + 1):
                person = (person + 1) % len(self._clients)
                place = {"lat": float(places.lat[person]), "lon": float(places.lon[person])}
                row = {"user": self._city.names[person], **place, "at": _now()}
                await self._publisher.publish(POSITIONS, json.dumps(row))
            then = now
            for _ in range(int(due)):
                square = squares[int(rng.choice(len(squares), p=share / share.sum()))]
                self._number += 1
                row = {
                    "id": f"{self._run}-{self._number}", "kind": str(rng.choice(kinds)),
                    "lat": square.lat + float(rng.normal(0, 0.003)), "lon": square.lon + float(rng.normal(0, 0.004)),
                    "severity": int(rng.integers(1, 6)), "at": _now(), "text": "x" * int(rng.integers(50, 300)),
                }  # fmt: skip
                await self._publisher.publish(REPORTS, json.dumps(row))
            due -= int(due)

    async def _watch(self) -> None:
        operator = await self._operator()
        while True:
            with contextlib.suppress(BadInput, Unreachable):
                status = await self._status()
                if status.load:
                    homes = Counter(client.home for client in self._clients)
                    self._progress.samples.append(
                        Sample(
                            self._progress.elapsed_s, self._progress.phase, status.load.spread,
                            status.load.max_load, status.brokers, dict(homes), status.says,
                            self._progress.delivered,
                        )
                    )  # fmt: skip
                moves = await operator.moves(100_000)
                self._progress.migrations = sum(move.phase == Phase.DONE for move in moves)
            await asyncio.sleep(0.5)

    async def _served_again(self, victims: list[int], killed: float) -> float | None:
        """Seconds until every client of the killed broker was connected to another broker; None if not within 30 s."""
        waiting = set(victims)
        longest = None
        while waiting and time.time() < killed + 30.0:
            for row in list(waiting):
                if self._clients[row].serving not in ("", KILLED):
                    waiting.discard(row)
                    longest = time.time() - killed
            await asyncio.sleep(0.02)
        return longest if not waiting else None

    # The audit.

    async def audit(self) -> None:
        """Compare the results that the hub has stored with those that each subscriber receives within ``LAST_S``."""
        from trimtab.pipeline.hub import server_of
        from trimtab.pipeline.nats.jetstream import JetStream

        stored: dict[str, list[int]] = {}  # subscription id -> sequence numbers

        def read() -> None:
            with JetStream(server_of(self._launch.fleet)) as jetstream:
                state = jetstream.info(RESULTS)
                for rows in jetstream.read(RESULTS, state.first, state.last):
                    for seq, subject in zip(rows.seq, rows.subject, strict=True):
                        if (parts := subjects.result_subscription(subject.decode())) is not None:
                            stored.setdefault(parts[1], []).append(int(seq))

        await asyncio.to_thread(read)
        expected = [{seq for identity in ids for seq in stored.get(identity, ())} for ids in self._subscriptions]
        began = time.monotonic()
        while True:
            pairs = zip(expected, self._received, strict=True)
            self._progress.lost = sum(len(results - set(received)) for results, received in pairs)
            if not self._progress.lost or time.monotonic() > began + LAST_S:
                break
            await asyncio.sleep(0.5)
        await asyncio.sleep(1.0)  # time for duplicates to arrive
        self._progress.doubled = sum(count - 1 for received in self._received for count in received.values())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
