"""The whole thing on this machine: a city of edge brokers, Spark behind them, people, a controller; and trouble.

Homes are those of the nearest broker, so the one in the middle of the city has most of the people. Then the controller
may begin; then there is a rush in one district; then a broker is killed, and comes back. Every notification that the
data cluster has published is looked for at every subscriber it was meant for.
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
from trimtab.lab.demo_show import Sample, Show
from trimtab.lab.worlds.city import KINDS, SIDE_M, SQUARES, City, shelters_csv, to_earth
from trimtab.migrate.move import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.fleet.protocol.admin_verbs import ControllerStatus
    from trimtab.fleet.sdk.client import Client
    from trimtab.fleet.sdk.results import Result
    from trimtab.lab.demo_show import Script
    from trimtab.lab.watchdog import Watchdog

log = logging.getLogger("trimtab.demo")
BROKERS: Final = 5
POSITIONS, REPORTS = "emergency.positions", "emergency.reports"
EXAMPLE: Final = "examples/emergency/emergency.yaml"
PERIODS: Final = ("10s", "20s", "30s")  # of the example's channels
PERIOD_S: Final = 2.0  # of the controller
LATE_S: Final = 5.0  # after it was due
KILLED: Final = "b2"
WARMING: Final = "warming up"
RUSH: Final = 6.0  # times as many reports in the district
TICK_S: Final = 0.25
PATIENCE_S: Final = 120.0
LAST_S: Final = 10.0  # that the last notifications may take
LEAVE_S: Final = 15.0
CLEAN_UP_S: Final = 180.0  # limit of the clean-up


async def run(
    out: Path, script: Script, seed: int, report: Callable[[Show], None], watchdog: Watchdog | None = None
) -> Show:
    """All of it; ``report`` is called twice a second."""
    manifest = _manifest(out, script)
    os.environ["TRIMTAB_CONFIG"] = str(_config(out))
    show = Show(script, watchdog=watchdog)
    show.enter(show.phase)
    home = out / "fleet"
    names = [f"b{number}" for number in range(1, BROKERS + 1)]
    async with Launch(home) as launch, contextlib.AsyncExitStack() as stack:
        if watchdog is not None:
            watchdog.before_exit(launch.supervisor.kill_all)
        telling = asyncio.create_task(_tell(show, report), name="report")
        stack.push_async_callback(tasks.end, telling)
        try:
            await launch.start_hub()
            for name in names:
                await launch.start_broker(name)
            await launch.ready(names)
            show.enter("compiling, the first time")
            await asyncio.to_thread(warm_up, "trim")
            for number in (1, 2):  # the second one stands by
                launch.start_controller(f"controller-{number}", paused=True)
            show.enter("starting Spark")
            play = _Play(launch, show, City(seed, script.clients), stack, names)
            await asyncio.gather(launch.start_pipeline(manifest), play.connect())
            show.enter("subscribing")
            await play.subscribe()
            await play.act()
        finally:
            show.leave()
    report(show)
    return show


def _manifest(out: Path, script: Script) -> Path:
    """The emergency application with shorter periods, for nobody wants to watch for half an hour."""
    source = Path(package.__file__).parents[2] / EXAMPLE
    if not source.exists():
        raise BadInput(f"the demo needs {EXAMPLE} of the source tree; it looked at {source}")
    text = source.read_text()
    for old, new in zip(PERIODS, script.periods, strict=True):
        text = text.replace(f"period: {old}", f"period: {new}")
    out.mkdir(parents=True, exist_ok=True)
    (out / "shelters.csv").write_text(shelters_csv())
    path = out / "emergency.yaml"
    if script.channels:
        whole = yaml.safe_load(text)
        whole["channels"] = {name: whole["channels"][name] for name in script.channels}
        text = yaml.safe_dump(whole, sort_keys=False)
    path.write_text(text)
    return path


def _config(out: Path) -> Path:
    """What suits processes that live for minutes: a JVM that compiles quickly, a controller that looks often."""
    path = out / "trimtab.toml"
    path.write_text(
        f"[control]\nperiod_s = {PERIOD_S}\n\n[spark]\n"
        '"driver.memory" = "1g"\n"driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"\n'
    )
    return path


async def _tell(show: Show, report: Callable[[Show], None]) -> None:
    while True:
        report(show)
        await asyncio.sleep(0.5)


def sites() -> tuple[Any, Any]:
    """Latitude and longitude of the brokers: one in the middle, the others towards the corners."""
    x = np.array([0.5, 0.15, 0.85, 0.15, 0.85]) * SIDE_M
    y = np.array([0.5, 0.15, 0.15, 0.85, 0.85]) * SIDE_M
    return to_earth(x, y)


class _Play:
    def __init__(
        self, launch: Launch, show: Show, city: City, stack: contextlib.AsyncExitStack, brokers: list[str]
    ) -> None:
        self._launch = launch
        self._show = show
        self._city = city
        self._stack = stack
        self._brokers = brokers
        self._clients: list[Client] = []
        self._had: list[Counter[int]] = []  # of each client: places of results in their stream
        self._wanted: list[dict[str, str]] = []  # of each client: id -> channel
        self._run = f"{time.time_ns() // 1_000_000:x}"
        self._number = 0
        self._period_s: dict[str, float] = {}  # of each channel
        self._rush = 1.0  # times as many reports in the busiest district
        self._stopped = False
        self._executed: set[str] = set()  # channels

    # Getting ready.

    async def connect(self) -> None:
        people = self._city.step(0.0)
        lat, lon = sites()
        near = (people.lat[:, None] - lat) ** 2 + ((people.lon[:, None] - lon) * 0.68) ** 2
        homes = [self._brokers[row] for row in np.argmin(near, axis=1)]
        turn = asyncio.Semaphore(8)

        async def one(number: int) -> Client:
            async with turn:
                client = connect(self._launch.home, name=f"person-{number}", home=homes[number])
                return await client.__aenter__()

        self._stack.push_async_callback(self._leave)

        self._publisher = await self._stack.enter_async_context(connect(self._launch.home, name="city", home="b1"))
        for topic in (POSITIONS, REPORTS):
            await self._publisher.create_topic(topic, unit="client")
        self._clients = list(await asyncio.gather(*map(one, range(self._show.script.clients))))

    async def subscribe(self) -> None:
        turn = asyncio.Semaphore(8)
        channels = await (await self._operator()).channels()
        self._period_s = {row.channel: row.period_s for row in channels}

        async def one(number: int, client: Client) -> None:
            async with turn:
                asked = [each for each in self._city.subscriptions(number) if each[0] in self._period_s]
                self._wanted[number] = {subscription_id(name, params): name for name, params in asked}
                receiver = self._receiver(number)
                await client.subscribe_channels([(name, receiver, params) for name, params in asked])

        count = len(self._clients)
        self._wanted, self._had = [{} for _ in range(count)], [Counter() for _ in range(count)]
        await asyncio.gather(*(one(*each) for each in enumerate(self._clients)))

    def _receiver(self, number: int) -> Callable[[Result], None]:
        had, show = self._had[number], self._show

        def came(result: Result) -> None:
            had[result.seq] += 1
            self._executed.add(result.channel)
            show.delivered += 1
            show.late += time.time() - datetime.fromisoformat(result.at).timestamp() > LATE_S

        return came

    async def _leave(self) -> None:
        """All at once; one after the other would take long."""
        leaving = [asyncio.create_task(each.__aexit__(), name=f"close {each.name}") for each in self._clients]
        if leaving:
            await asyncio.wait(leaving, timeout=LEAVE_S)
        await tasks.end(*leaving)

    # What happens.

    async def act(self) -> None:
        script, show = self._show.script, self._show
        work = tasks.Background("demo", log)
        publishing = work.start(self._publish())
        work.start(self._watch())
        try:
            show.enter(WARMING, PATIENCE_S)
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
            show.served_again_s = await checking
            show.enter("waiting for the last notifications", LAST_S)
            self._stopped = True
            await publishing
            await self.audit()
        finally:
            await work.end()

    async def _phase(self, name: str, seconds: float) -> None:
        self._show.enter(name, seconds)
        if name != WARMING:
            self._show.marks.append((self._show.elapsed_s, name))
        await asyncio.sleep(seconds)

    async def _operator(self) -> Operator:
        return Operator(await self._launch.admin())

    async def _status(self) -> ControllerStatus:
        return await (await self._operator()).status(3.0)

    async def _until_warm(self) -> None:
        """Every channel has been executed, and the fleet was measured."""
        began, wanted = time.monotonic(), {name for each in self._wanted for name in each.values()}
        while time.monotonic() < began + PATIENCE_S:
            with contextlib.suppress(BadInput, Unreachable):
                said = await self._status()
                if self._executed >= wanted and said.load and said.load["mean"] > 0.0:
                    return
            await asyncio.sleep(0.5)
        missing = ", ".join(sorted(wanted - self._executed)) or "a measurement"
        raise Unreachable(f"nothing came of {missing} within {PATIENCE_S:g} s; pipeline.log says more")

    async def _publish(self) -> None:
        """Reports around the squares, and where everybody is; one district has more in the rush."""
        rng = np.random.default_rng((self._city.seed, 99))
        squares = SQUARES
        weight = np.arange(1, len(squares) + 1) ** -0.6
        kinds = list(KINDS)
        then, owed, person = time.monotonic(), 0.0, 0
        while not self._stopped:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            share = weight.copy()
            share[0] *= self._rush
            owed += (now - then) * self._show.script.reports_per_s * share.sum() / weight.sum()
            places = self._city.step(now - then)
            for _ in range(int((now - then) * len(self._clients) / 5.0) + 1):
                person = (person + 1) % len(self._clients)
                place = {"lat": float(places.lat[person]), "lon": float(places.lon[person])}
                row = {"user": self._city.names[person], **place, "at": _now()}
                await self._publisher.publish(POSITIONS, json.dumps(row))
            then = now
            for _ in range(int(owed)):
                square = squares[int(rng.choice(len(squares), p=share / share.sum()))]
                self._number += 1
                row = {
                    "id": f"{self._run}-{self._number}", "kind": str(rng.choice(kinds)),
                    "lat": square.lat + float(rng.normal(0, 0.003)), "lon": square.lon + float(rng.normal(0, 0.004)),
                    "severity": int(rng.integers(1, 6)), "at": _now(), "text": "x" * int(rng.integers(50, 300)),
                }  # fmt: skip
                await self._publisher.publish(REPORTS, json.dumps(row))
            owed -= int(owed)

    async def _watch(self) -> None:
        operator = await self._operator()
        while True:
            with contextlib.suppress(BadInput, Unreachable):
                said = await self._status()
                if said.load:
                    homes = Counter(client.home for client in self._clients)
                    self._show.samples.append(
                        Sample(
                            self._show.elapsed_s, self._show.phase, said.load["spread"], said.load["max_load"],
                            said.brokers, dict(homes), said.says, self._show.delivered,
                        )
                    )  # fmt: skip
                moves = await operator.moves(100_000)
                self._show.migrations = sum(each.phase == Phase.DONE for each in moves)
            await asyncio.sleep(0.5)

    async def _served_again(self, victims: list[int], killed: float) -> float | None:
        """Until every client of a broker that was killed is connected to another; how long that took."""
        waiting = set(victims)
        longest = None
        while waiting and time.time() < killed + 30.0:
            for row in list(waiting):
                if self._clients[row].serving not in ("", KILLED):
                    waiting.discard(row)
                    longest = time.time() - killed
            await asyncio.sleep(0.02)
        return longest if not waiting else None

    # The ledger.

    async def audit(self) -> None:
        """What the hub has stored for each subscriber by now, against what came, or comes within ``LAST_S``."""
        from trimtab.pipeline.hub import server_of
        from trimtab.pipeline.nats.jetstream import JetStream

        owed: dict[str, list[int]] = {}

        def read() -> None:
            with JetStream(server_of(self._launch.fleet)) as jetstream:
                state = jetstream.info(RESULTS)
                for rows in jetstream.read(RESULTS, state.first, state.last):
                    for seq, subject in zip(rows.seq, rows.subject, strict=True):
                        if (found := subjects.result_subscription(subject.decode())) is not None:
                            owed.setdefault(found[1], []).append(int(seq))

        await asyncio.to_thread(read)
        expected = [{seq for identity in wanted for seq in owed.get(identity, ())} for wanted in self._wanted]
        began = time.monotonic()
        while True:
            self._show.lost = sum(len(each - set(had)) for each, had in zip(expected, self._had, strict=True))
            if not self._show.lost or time.monotonic() > began + LAST_S:
                break
            await asyncio.sleep(0.5)
        await asyncio.sleep(1.0)  # whatever comes twice has had the time to
        self._show.doubled = sum(count - 1 for had in self._had for count in had.values())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
