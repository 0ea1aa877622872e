"""A live run: clients at places, topics with a latency bound, and an audit of every message.

A leg counts one way: a message's latency is the leg of its publisher to the topic's broker, plus that of the subscriber
from there. Round-trip times of papers that count them as legs are emulated as one-way delays.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import zlib
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.control.settings import Settings
from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.broker.network import NetworkSettings
from trimtab.fleet.protocol.admin_verbs import MoveOrder
from trimtab.lab.live import LiveFleet
from trimtab.lab.live_rows import Played, rows_of
from trimtab.lab.tape import Tape
from trimtab.model.key import Key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from trimtab.fleet.broker.capacity import Capacity
    from trimtab.fleet.operator import Operator
    from trimtab.fleet.sdk.client import Client
    from trimtab.lab.experiment import Job, Row
    from trimtab.lab.tape import Reception
    from trimtab.model.workload import Floats

log = logging.getLogger("trimtab.lab")
HASH, STAY, ORACLE = "hash", "stay", "oracle"
TRIMTAB: Final = "trimtab"  # the controller moves topics; Spark measures the fleet for it
BROKERS: Final = "brokers"  # there is no controller, and brokers move topics themselves
FOLLOWING: Final = (TRIMTAB, BROKERS)
POLICIES: Final = (HASH, STAY, ORACLE, *FOLLOWING)
HUB_MS: Final = 40.0  # one way between any site and the hub (Gupta, SEC'21, 5.1.1)
JITTER: Final = 0.05  # share of each emulated delay
PROBE_S: Final = 0.5  # interval of the probes of brokers
NEAR_ENOUGH: Final = 0.15  # share by which estimates of round-trip times may err before the run begins
COORDINATES_S: Final = 60.0  # longest wait for that, and for a controller and its first measurement
LAST_S: Final = 5.0  # wait for the last messages
WATCH_S: Final = 0.1  # interval at which routes of clients are looked at, and the delay of the loop is taken
MARGIN: Final = 0.9  # share of the bound that the oracle fills: jitter and brokers take the rest
HUB_AWAY_S: Final = 60.0
CONNECT: Final = 8  # clients that connect at a time
LEAVE_S: Final = 15.0  # limit of closing all of them
SPARK: Final = {
    "driver.memory": "1g", "driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}  # fmt: skip
# Only bounds matter here: loads need not be even, and a topic may move again after two seconds.
SETTINGS: Final = Settings(alpha=20.0, idle=0.0, gather=0.0, period_s=1.0, patience=1, cool_s=2.0, budget=1.0)


@dataclass(slots=True)
class World:
    """Places of clients, distances, and topics with their clients. ``site_of`` and the receivers of topics may change
    during a run."""

    leg_ms: Floats  # (sites, brokers) one way, from a client at a site to the broker of another, or of its own
    between_ms: Floats  # (brokers, brokers) one way
    bound_ms: float
    size_bytes: int
    place_of: dict[str, str]  # client -> place; clients of a place move together
    site_of: dict[str, int]  # place -> site
    publishers: dict[str, list[str]]  # topic -> clients
    subscribers: dict[str, set[str]]  # topic -> clients
    shown: dict[str, str]  # group -> the topic that is drawn for it
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)  # topic -> settings instead of the bound
    rates: dict[str, float] = field(default_factory=dict)  # topic -> messages/s of a publisher, if not the job's
    capacity: Capacity | None = None  # of every broker
    free: set[str] = field(default_factory=set)  # topics without a bound, which are not judged

    def latencies_ms(self, topic: str) -> Floats:
        """(publishers, subscribers, brokers) between clients of the topic, if it were at each broker."""
        into, out = (
            np.array([self.leg_ms[self.site_of[self.place_of[client]]] for client in sorted(clients)])
            for clients in (self.publishers[topic], self.subscribers[topic])
        )
        return np.asarray(into[:, None] + out[None])

    def best(self, topic: str) -> int:
        """The broker with the fewest pairs out of the bound, then with the least worst case."""
        pairs = self.latencies_ms(topic)
        return int(np.lexsort((pairs.max(axis=(0, 1)), (pairs > self.bound_ms).sum(axis=(0, 1))))[0])

    def good(self, topic: str) -> list[int]:
        """All brokers that keep the bound with a margin; without one, the best."""
        worst = self.latencies_ms(topic).max(axis=(0, 1))
        return np.flatnonzero(worst <= MARGIN * self.bound_ms).tolist() or [self.best(topic)]


class LiveTrial:
    """One run. A subclass says in ``play`` what happens."""

    def __init__(self, job: Job, world: World) -> None:
        self.job = job
        self.world = world
        self.random = random.Random(job["seed"])
        self.tape = Tape(world.size_bytes)
        self.clients: dict[str, Client] = {}
        self.receptions: dict[tuple[str, str], tuple[Any, Reception]] = {}  # client, topic -> subscription
        self.played = Played({group: [] for group in world.shown})
        self._stopping = asyncio.Event()
        self._work = tasks.Background("live trial", log)

    # What differs between experiments.

    async def play(self, until: float) -> None:
        """Carry out the world's events until this time (seconds since 1970)."""
        await sleep_until(until)

    def first_broker(self, topic: str) -> int:
        """Where a topic begins, unless a hash decides."""
        return self.world.best(topic)

    def group_of(self, topic: str) -> str:
        """The group whose changes explain a topic's excursions."""
        return next(group for group, shown in self.world.shown.items() if shown == topic)

    # The run.

    async def run(self) -> list[Row]:
        world = self.world
        names = [f"b{row + 1}" for row in range(len(world.between_ms))]
        async with contextlib.AsyncExitStack() as stack:
            self.fleet = await stack.enter_async_context(
                LiveFleet(
                    len(names), between_ms=float(world.between_ms.max()), hub_ms=HUB_MS, jitter=JITTER,
                    network=NetworkSettings(probe_s=PROBE_S, alone=self.job["policy"] in FOLLOWING),
                    places=tuple(world.site_of), capacity=world.capacity,
                )
            )  # fmt: skip
            self.operator: Operator = await self.fleet.operator()
            stack.push_async_callback(self._work.end)
            for one, other in combinations(range(len(names)), 2):
                self.fleet.set_rtt(names[one], names[other], 2.0 * world.between_ms[one, other])
            for place in world.site_of:
                self._put(place)
            await self._connect(stack)
            await self._make_topics()
            await self._converge()
            if self.job["policy"] == TRIMTAB:
                await self._control()
            return await self._play()

    async def _connect(self, stack: contextlib.AsyncExitStack) -> None:
        stack.push_async_callback(self._leave)
        limit = asyncio.Semaphore(CONNECT)

        async def connect_one(name: str, place: str) -> None:
            async with limit:
                site = self.world.site_of[place]
                client = self.fleet.client_of(
                    place, name, home=self._broker(site), gateway=self._broker(site), access_ms=self._access_ms(site)
                )
                self.clients[name] = await client.__aenter__()

        await asyncio.gather(*(connect_one(*item) for item in self.world.place_of.items()))

    async def _leave(self) -> None:
        """Close all clients at the same time, since one after the other would take long."""
        closing = [asyncio.create_task(client.__aexit__()) for client in self.clients.values()]
        if closing:
            await asyncio.wait(closing, timeout=LEAVE_S)
        await tasks.end(*closing)

    async def _make_topics(self) -> None:
        limit = asyncio.Semaphore(CONNECT)

        async def create(topic: str, client: str) -> None:
            row = zlib.crc32(topic.encode()) % len(self.fleet.names)
            if self.job["policy"] != HASH:
                row = self.first_broker(topic)
            settings = self.world.settings.get(topic, {"latency_ms": self.world.bound_ms})
            async with limit:
                await self.clients[client].create_topic(topic, broker=self._broker(row), **settings)

        await asyncio.gather(*(create(topic, clients[0]) for topic, clients in self.world.publishers.items()))
        await asyncio.gather(
            *(self.subscribe(client, topic) for topic, clients in self.world.subscribers.items() for client in clients)
        )

    async def _converge(self) -> None:
        """Wait until brokers know the round-trip times between them."""
        names, between = self.fleet.names, self.world.between_ms
        deadline = time.monotonic() + COORDINATES_S
        waiting = list(combinations(range(len(names)), 2))
        while waiting and time.monotonic() < deadline:
            for one, other in list(waiting):
                found = await self.operator.rtt(names[one], names[other])
                known, truth = found.estimated_ms, 2.0 * between[one, other]
                if known is not None and abs(known - truth) <= NEAR_ENOUGH * truth + 2.0:
                    waiting.remove((one, other))
            await asyncio.sleep(0.2)
        if waiting:
            log.warning("%d round-trip times are not estimated well", len(waiting))

    async def _control(self) -> None:
        await self.fleet.launch.start_pipeline(None, SPARK)
        self.fleet.launch.start_controller(settings=asdict(self.settings()))
        deadline = time.monotonic() + COORDINATES_S
        while time.monotonic() < deadline:
            with contextlib.suppress(Unreachable):
                if (await self.operator.status(2.0)).measured is not None:
                    return
            await asyncio.sleep(0.2)
        raise Unreachable(f"no controller leads with a measurement within {COORDINATES_S:g} s")

    def settings(self) -> Settings:
        return SETTINGS

    async def _play(self) -> list[Row]:
        played, seconds = self.played, float(self.job["seconds"])
        publishing = [
            asyncio.create_task(self._publish(client, topic), name=f"publish {client} {topic}")
            for topic, clients in self.world.publishers.items() for client in clients
        ]  # fmt: skip
        watching = self._work.start(self._watch())
        await asyncio.sleep(float(self.job["warm"]))
        played.began = time.time()
        until = played.began + seconds
        outage = self._work.start(self._outage(seconds)) if self.job["kill_hub"] else None
        await self.play(until)
        await sleep_until(until)
        played.ended = time.time()
        if outage is not None:
            await outage
        self._stopping.set()
        await asyncio.gather(*publishing)
        await self._quiet()
        await tasks.end(watching)
        await self._work.end()
        moves = await self._answered(lambda: self.operator.moves(100_000))
        played.records = [move for move in moves if move.phases[0][1] >= played.began]
        heard = self.tape.deliveries(played.began, played.ended, self.world.free)
        return rows_of(heard, played, self.world.bound_ms, self.world.shown, self.group_of)

    async def _publish(self, client: str, topic: str) -> None:
        """Publish at the rate, with a phase of its own."""
        interval = 1.0 / self.world.rates.get(topic, float(self.job["rate"]))
        due = time.monotonic() + self.random.random() * interval
        while not self._stopping.is_set():
            now = time.monotonic()
            if now < due:
                await asyncio.sleep(due - now)
                continue
            due = max(due + interval, now - 1.0)
            await self.clients[client].publish(topic, self.tape.message(topic, client))

    async def _watch(self) -> None:
        """Note when the route of a publisher changes, and how late this process is."""
        routes: dict[str, str] = {}
        while True:
            due = time.monotonic() + WATCH_S
            await asyncio.sleep(WATCH_S)
            self.played.late_ms.append(1000.0 * (time.monotonic() - due))
            for topic, publishers in self.world.publishers.items():
                route = self.clients[publishers[0]]._routes.get(topic)
                if route is not None and routes.setdefault(topic, route.broker) != route.broker:
                    routes[topic] = route.broker
                    self.played.switches.append((time.time(), topic, route.broker))

    async def _outage(self, seconds: float) -> None:
        away_s = min(HUB_AWAY_S, seconds / 3.0)
        await asyncio.sleep((seconds - away_s) / 2.0)
        began = time.time()
        await self.fleet.kill_hub()
        await asyncio.sleep(away_s)
        self.fleet.start_hub_again()
        self.played.hub_away = (began, time.time())

    async def _quiet(self) -> None:
        """Wait until nothing arrives any more."""
        before, deadline = -1, time.monotonic() + LAST_S
        while self.tape.received != before and time.monotonic() < deadline:
            before = self.tape.received
            await asyncio.sleep(0.5)

    async def _answered(self, ask: Callable[[], Any]) -> Any:
        """The answer of a hub that may be starting."""
        deadline = time.monotonic() + COORDINATES_S
        while True:
            try:
                return await ask()
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.5)

    # Events.

    async def subscribe(self, client: str, topic: str) -> None:
        self.world.subscribers[topic].add(client)
        reception = self.tape.listen(topic, client, time.time() + COORDINATES_S)
        subscription = await self.clients[client].subscribe(topic, reception.receive)
        reception.since = time.time() if self.tape.sent else -np.inf
        self.receptions[client, topic] = subscription, reception

    async def unsubscribe(self, client: str, topic: str) -> None:
        subscription, reception = self.receptions.pop((client, topic))
        self.world.subscribers[topic].discard(client)
        reception.until = time.time()
        await self.clients[client].unsubscribe(subscription)

    async def move_place(self, place: str, site: int) -> None:
        """The clients of a place are at another site from now on, and say so."""
        self.world.site_of[place] = site
        self._put(place)
        here = [client for client, at in self.world.place_of.items() if at == place]
        gateway, access_ms = self._broker(site), self._access_ms(site)
        await asyncio.gather(*(self.clients[client].attach(gateway, access_ms=access_ms) for client in here))

    def changed(self, group: str, topics: Iterable[str]) -> None:
        """Something has changed for a group. The oracle orders the right moves at once."""
        self.played.changes[group].append(time.time())
        if self.job["policy"] == ORACLE:
            for topic in topics:
                self._work.start_once(self._move, topic)

    async def _move(self, topic: str) -> None:
        """Move a topic until it is at a good broker."""
        while not self._stopping.is_set():
            here = self._row(await self.clients[self.world.publishers[topic][0]].route(topic))
            if here in self.world.good(topic):
                return
            try:
                order = MoveOrder(Key("topic", topic, ""), self._broker(self.world.best(topic)))
                await self.operator.move([order])
            except (BadInput, Unreachable):  # it is moving, or the hub is away
                await asyncio.sleep(0.1)

    def _broker(self, row: int) -> str:
        return self.fleet.names[row]

    def _row(self, broker: str) -> int:
        return self.fleet.names.index(broker)

    def _access_ms(self, site: int) -> float:
        return 2.0 * float(self.world.leg_ms[site, site])

    def _put(self, place: str) -> None:
        for broker, leg_ms in zip(self.fleet.names, self.world.leg_ms[self.world.site_of[place]], strict=True):
            self.fleet.set_access(place, broker, 2.0 * float(leg_ms))


async def sleep_until(at: float) -> None:
    await asyncio.sleep(max(0.0, at - time.time()))


def check(policies: Collection[str], known: Collection[str] = POLICIES) -> None:
    for policy in policies:
        if policy not in known:
            raise BadInput(f"a policy is one of {', '.join(known)}, not '{policy}'")
