"""Live moves under load, audited message by message.

The four sites are 20 ms apart, and 20 ms from the hub. 40 topics (plain, with a processor, persistent, and placed by
client) carry about 2,000 messages a second while random topics and clients move. In a second part, agents, the keeper
and a broker are killed during the moves.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import random
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.broker.store import Store
from trimtab.fleet.protocol.admin_verbs import ListClients, ListTopics, MoveOrder
from trimtab.fleet.protocol.agent_verbs import Ping
from trimtab.fleet.protocol.streams import ACK_S
from trimtab.lab.experiment import Bar, Job, Report, Row, markdown_table, select
from trimtab.lab.ledger import Ledger
from trimtab.lab.live import LiveFleet
from trimtab.migrate.move import Phase
from trimtab.model.key import Key

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.fleet.protocol.entries import MoveRecord
    from trimtab.fleet.sdk.client import Client

SITES: Final = 4
BETWEEN_MS: Final = 20.0  # one way
RTT_MS: Final = 2 * BETWEEN_MS
KINDS: Final = {"plain": 24, "roam": 8, "proc": 4, "keep": 4}  # topics of each kind
CLIENTS: Final = 24
RATE: Final = 2_100  # messages published per second, in total
TICK_S: Final = 0.005
PER_JOB: Final = 100  # moves per job, hence per fleet
BETWEEN_MOVES_S: Final = 0.06
WINDOW_S: Final = 2.0  # time around a switch in which a message may have taken either route


class Handover:
    title = "Handover: live moves, audited"
    seeds = 1
    timed = True

    def jobs(self, seeds: int, moves: int = 500) -> list[Job]:
        parts = [min(PER_JOB, moves - start) for start in range(0, moves, PER_JOB)]
        calm = [
            {"moves": part, "seed": s * 100 + n, "kill": False} for s in range(seeds) for n, part in enumerate(parts)
        ]
        wild = [{"moves": min(moves, PER_JOB), "seed": s, "kill": True} for s in range(seeds)]
        return calm + wild

    def run(self, job: Job) -> list[Row]:
        return tasks.run(_Trial(job["seed"], job["moves"], job["kill"]).run())

    def report(self, rows: list[Row], out: Path) -> Report:
        calm, wild = select(rows, kill=False, row="total"), select(rows, kill=True, row="total")
        total = {
            name: sum(row[name] for row in calm) for name in ("moves", "messages", "lost", "duplicated", "reordered")
        }
        added = np.concatenate([np.array(row["added_ms"]) for row in calm]) if calm else np.array([0.0])
        p99 = float(np.percentile(added, 99)) if len(added) else 0.0
        bar_ms = 2 * RTT_MS + 50
        figures: dict[str, Any] = {
            **total, "added_delay_p99_ms": round(p99, 2), "rtt_ms": RTT_MS,
            "messages_per_second": round(min((r["rate"] for r in calm), default=0.0), 1),
            "rolled_back": sum(row["rolled_back"] for row in calm),
            "added_delay_p50_ms": round(float(np.percentile(added, 50)), 2) if len(added) else 0.0,
            "move_p50_ms": round(float(np.median([row["move_p50_ms"] for row in calm])), 1) if calm else 0.0,
            "killed": {
                name: sum(row[name] for row in wild)
                for name in ("moves", "rolled_back", "kills", "acknowledged", "acknowledged_lost", "half_moved", "lost")
            },
        }  # fmt: skip
        bars = [
            Bar.at_least("moves", total["moves"], min(500, sum(r["asked"] for r in calm))),
            Bar.at_least("messages per second while moving, slowest part", figures["messages_per_second"], 2000),
            *(Bar.at_most(f"{name} deliveries", total[name], 0) for name in ("lost", "duplicated", "reordered")),
            Bar.at_most("added delivery delay during a move, p99, ms", p99, bar_ms),
            Bar.at_most("half-moved after the calm part", sum(row["half_moved"] for row in calm), 0),
        ]
        if wild:
            bars += [
                Bar.at_most("with kills: acknowledged messages lost", figures["killed"]["acknowledged_lost"], 0),
                Bar.at_most("with kills: half-moved afterwards", figures["killed"]["half_moved"], 0),
            ]
        _draw(rows, out)
        kinds = sorted({row["kind"] for row in rows if row["row"] == "kind"})
        lines = []
        for kind in kinds:
            of = [r for r in rows if r["row"] == "kind" and r["kind"] == kind and not r["kill"]]
            lines.append(
                (
                    kind,
                    *(
                        f"{sum(r[n] for r in of):,}"
                        for n in ("messages", "delivered", "lost", "duplicated", "reordered")
                    ),
                )
            )
        text = (
            f"{total['moves']:,} moves of topics and clients between {SITES} sites, {BETWEEN_MS:g} ms apart one way, "
            f"while {figures['messages_per_second']:,.0f} messages a second or more were published. The *added* delay "
            "of a delivery is its time beyond the longer of the paths before and after the move; only deliveries "
            f"around a move are counted. Median move: {figures['move_p50_ms']:.0f} ms; added delay p50 "
            f"{figures['added_delay_p50_ms']:.1f} ms, p99 {p99:.1f} ms (bar {bar_ms:.0f}).\n\n"
            "![delays](handover.png)\n\n"
            + markdown_table(["kind of topic", "messages", "deliveries", "lost", "duplicated", "reordered"], lines)
        )
        if wild:
            k = figures["killed"]
            text += (
                f"\n\nWith {k['kills']} processes killed in the middle of {k['moves']} moves: {k['rolled_back']} moves "
                f"were rolled back, {k['acknowledged_lost']} of {k['acknowledged']:,} acknowledged messages of "
                f"persistent topics were lost, {k['half_moved']} units were left half-moved. Plain topics guarantee no "
                f"delivery when a broker dies: {k['lost']:,} deliveries were lost there."
            )
        return Report(text, tuple(bars), figures)


class _Trial:
    """One job: a fleet, its load, and a number of moves."""

    def __init__(self, seed: int, moves: int, kill: bool) -> None:
        self.random = random.Random(seed)
        self.moves = moves
        self.kill = kill
        self.ledger = Ledger()
        self.stop = asyncio.Event()
        self.clients: dict[str, Client] = {}
        self.site: dict[str, str] = {}
        self.topics: dict[str, str] = {}  # topic -> kind
        self.streams: list[tuple[int, str, str]] = []  # stream, client, topic
        self.subscribers: list[tuple[str, str]] = []  # client, topic
        self.publishing: set[asyncio.Task[None]] = set()
        self.kills = 0

    async def run(self) -> list[Row]:
        async with LiveFleet(SITES, between_ms=BETWEEN_MS) as fleet, contextlib.AsyncExitStack() as stack:
            self.fleet = fleet
            self.site = {f"c{number}": fleet.names[number % SITES] for number in range(CLIENTS)}
            entering = (stack.enter_async_context(fleet.client(name, site)) for name, site in self.site.items())
            self.clients = dict(zip(self.site, await asyncio.gather(*entering), strict=True))
            await self._make_topics()
            began = time.time()
            pump = asyncio.create_task(self._pump())
            await asyncio.sleep(1.0)
            killer = asyncio.create_task(self._killer()) if self.kill else None
            ids = await self._move_around()
            if killer is not None:
                await tasks.end(killer)
            records = await fleet.finished(ids)
            await asyncio.sleep(0.5)
            self.stop.set()
            await pump
            run_s = time.time() - began
            await self._quiet()
            half = await self._half_moved()
            for _ in range(100):  # a killed process may take a moment to recover
                if half:
                    await asyncio.sleep(0.1)
                    half = await self._half_moved()
            return self._rows(records, run_s, half)

    async def _make_topics(self) -> None:
        names = list(self.clients)
        creations = []
        for kind, count in KINDS.items():
            for number in range(count):
                topic = f"{kind}.{number}"
                self.topics[topic] = kind
                publishers = self.random.sample(names, 1 if kind in ("proc", "keep") else 2)
                settings: dict[str, Any] = {"broker": self.random.choice(self.fleet.names)}
                if kind == "roam":
                    settings = {"unit": "client"}
                elif kind == "proc":
                    settings |= {"processor": "burn?ms=0.1", "spool": 10}
                elif kind == "keep":
                    settings |= {"persistent": True}
                creations.append(self.clients[publishers[0]].create_topic(topic, **settings))
                for publisher in publishers:
                    self.streams.append((self.ledger.stream(topic, publisher), publisher, topic))
                for subscriber in self.random.sample(names, 2 if kind in ("proc", "keep") else 1):
                    self.subscribers.append((subscriber, topic))
        await asyncio.gather(*creations)
        await asyncio.gather(*(self._subscribe(subscriber, topic) for subscriber, topic in self.subscribers))
        await asyncio.sleep(3 * BETWEEN_MS / 1000)  # until all servers know all subscriptions
        await asyncio.gather(*(self._publish(*stream) for stream in self.streams))  # opens the routes

    async def _subscribe(self, subscriber: str, topic: str) -> None:
        self.ledger.expect(topic, subscriber)
        durable = f"r-{subscriber}" if self.topics[topic] == "keep" else None

        def receive(message: Any) -> None:
            self.ledger.receive(subscriber, message.data)

        await self.clients[subscriber].subscribe(topic, receive, durable=durable)

    async def _pump(self) -> None:
        """Publish at the rate, stream after stream."""
        loop = asyncio.get_running_loop()
        due, turn = loop.time(), 0
        while not self.stop.is_set():
            while due <= loop.time():
                due += 1.0 / RATE
                stream, client, topic = self.streams[turn % len(self.streams)]
                turn += 1
                if self.topics[topic] in ("keep",) or self.kill:
                    task = asyncio.create_task(self._publish(stream, client, topic))
                    self.publishing.add(task)
                    task.add_done_callback(self.publishing.discard)
                else:
                    await self._publish(stream, client, topic)
            await asyncio.sleep(TICK_S)
        if self.publishing:
            await asyncio.wait(self.publishing, timeout=30.0)

    async def _publish(self, stream: int, client: str, topic: str) -> None:
        number, payload = self.ledger.message(stream)
        try:
            await self.clients[client].publish(topic, payload)
        except (BadInput, Unreachable):
            return  # a broker was killed; only acknowledged messages are guaranteed
        self.ledger.streams[stream].acknowledged.add(number)

    async def _move_around(self) -> list[str]:
        movable = [Key("topic", t, "") for t, kind in self.topics.items() if kind != "roam"] + [
            Key("client", "", c) for c in self.clients
        ]
        ids: list[str] = []
        refused = 0
        while len(ids) < self.moves and refused < 20 * self.moves:
            order = MoveOrder(self.random.choice(movable), self.random.choice(self.fleet.names))
            try:
                ids += await self.fleet.start_moves([order])
            except (BadInput, Unreachable):  # already at the target, or moving, or a process was killed
                refused += 1
                await asyncio.sleep(0.005)
                continue
            await asyncio.sleep(BETWEEN_MOVES_S)
        return ids

    async def _killer(self) -> None:
        """Kill processes: agents often, the keeper and a broker's server now and then."""
        supervisor = self.fleet.launch.supervisor
        while True:
            await asyncio.sleep(1.0)
            site = self.random.choice(self.fleet.names)
            victim = self.random.choice([f"{site}-agent", f"{site}-agent", "keeper", site, f"{site}-store-1"])
            process = supervisor.find(victim).process
            if process is not None and process.poll() is None:
                process.kill()
                self.kills += 1

    async def _quiet(self) -> None:
        """Wait until all messages are delivered, or none has arrived for a while."""
        last, since = -1, time.time()
        while time.time() - since < (ACK_S + 3.0 if self.kill else 5.0):
            missing = self.ledger.missing()
            if missing == 0:
                return
            if missing != last:
                last, since = missing, time.time()
            await asyncio.sleep(0.1)

    async def _half_moved(self) -> int:
        """The number of units that are not at the broker in the registry, or are at two brokers."""
        wrong = 0
        topics = (await self.fleet.ask(ListTopics())).entries
        homes = (await self.fleet.ask(ListClients())).entries
        hosts = {site: (await self.fleet.ask(Ping(), broker=site)).hosts for site in self.fleet.names}
        store = Store(await self.fleet.launch.admin())
        for topic, record in topics.items():
            if record.processor:
                wrong += [site for site in self.fleet.names if topic in hosts[site]] != [record.broker]
            if record.persistent:
                wrong += [s for s in self.fleet.names if await store.exists(topic, s)] != [record.broker]
                wrong += not await store.is_open(topic, record.broker)
        for name, client in self.clients.items():
            wrong += client.home != homes[name].home
            for route in client._routes:
                topic = route.topic.name
                expected = homes[name].home if topics[topic].unit == "client" else topics[topic].broker
                wrong += route.broker != expected
        return wrong

    def _rows(self, records: list[MoveRecord], run_s: float, half: int) -> list[Row]:
        persistent_topics = {t for t, kind in self.topics.items() if kind == "keep"}
        durable = self.ledger.audit(persistent_topics, acknowledged_only=True)
        added = self._added(records)
        times = [1000 * (r.phases[-1][1] - r.phases[0][1]) for r in records]
        total: Row = {
            "row": "total", "kind": "all", "asked": self.moves, "moves": len(records),
            "rolled_back": sum(r.phase == Phase.ROLLED_BACK for r in records),
            **self.ledger.audit(), "rate": sum(s.sent for s in self.ledger.streams) / run_s,
            "added_ms": [round(delay, 3) for delay in added], "move_p50_ms": float(np.median(times)),
            "kills": self.kills, "half_moved": half,
            "acknowledged": sum(len(s.acknowledged) for s in self.ledger.streams if s.topic in persistent_topics),
            "acknowledged_lost": durable["lost"],
        }  # fmt: skip
        kinds = [
            {"row": "kind", "kind": kind, **self.ledger.audit({t for t, k in self.topics.items() if k == kind})}
            for kind in KINDS
        ]
        empty: Row = {name: [] if name == "added_ms" else 0 for name in total if name not in ("row", "kind")}
        return [total, *({**empty, **row} for row in kinds)]

    def _added(self, records: list[MoveRecord]) -> list[float]:
        """Extra delay of deliveries around a move, in ms beyond the longer of the paths before and after."""
        places: dict[str, list[tuple[float, str]]] = {}  # topic or client -> times of arrival at brokers
        for record in sorted(records, key=lambda r: r.phases[0][1]):
            switched = next((at for phase, at in record.phases if phase == Phase.DRAINING), None)
            if switched is not None and record.phase == Phase.DONE:
                history = places.setdefault(record.key.name, [(0.0, record.source)])
                history.append((switched, record.target))
        added = []
        for (stream, subscriber), deliveries in self.ledger.deliveries.items():
            topic, publisher = self.ledger.streams[stream].topic, self.ledger.streams[stream].publisher
            units = (publisher, subscriber) if self.topics[topic] == "roam" else (topic, topic)
            for sent, received in zip(deliveries.sent_at, deliveries.arrived_at, strict=True):
                publisher_brokers, subscriber_brokers = (_around(places.get(unit), sent, received) for unit in units)
                if len(publisher_brokers) == 1 and len(subscriber_brokers) == 1:
                    continue  # nothing moved
                pairs = [(a, b) for a in publisher_brokers for b in subscriber_brokers]
                if units[0] == units[1]:
                    pairs = [(broker, broker) for broker in publisher_brokers]
                path_ms = max(self._path_ms(self.site[publisher], a, b, self.site[subscriber]) for a, b in pairs)
                added.append(max(0.0, 1000 * (received - sent) - path_ms))
        return added

    def _path_ms(self, publisher: str, first: str, second: str, subscriber: str) -> float:
        return BETWEEN_MS * ((publisher != first) + (first != second) + (second != subscriber))


def _around(history: list[tuple[float, str]] | None, sent: float, received: float) -> list[str]:
    """Brokers of a topic or client for a message sent and received at these times; one if there was no move."""
    if not history:
        return ["?"]
    times = [at for at, _ in history]
    first = max(0, bisect.bisect_right(times, sent - WINDOW_S) - 1)
    last = bisect.bisect_right(times, received)
    return sorted({place for _, place in history[first:last]})


def _draw(rows: list[Row], out: Path) -> None:
    from trimtab.lab import plots

    sheet, panels = plots.figure(1, 1, width=5.6, height=3.4)
    panel = panels[0][0]
    for kill, label, colour in ((False, "moves", "#30638e"), (True, "moves, processes killed", "#d1495b")):
        of = [np.array(r["added_ms"]) for r in rows if r["row"] == "total" and r["kill"] == kill]
        added = np.sort(np.concatenate(of)) if of else np.array([])
        if len(added):
            panel.step(np.maximum(added, 0.01), 1 - np.arange(len(added)) / len(added), label=label, color=colour)
    panel.axvline(2 * RTT_MS + 50, color="black", linestyle="--", linewidth=1, label="bar for p99")
    panel.axhline(0.01, color="grey", linewidth=0.6)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("delay added around a move, ms")
    panel.set_ylabel("share of deliveries above")
    panel.legend(fontsize=8)
    plots.save(sheet, out / "handover.png")
