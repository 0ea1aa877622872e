"""Gupta (SEC'21), Figure 7: the downtime of clients while topics move, and the time of a topic's move.

All topics, with one subscriber each, move from one of two brokers to the other at the same time. The baseline works as
Section 3.6 describes plain Pulsar. One topic after the other, the old broker gives up ownership at the hub and
disconnects the topic's client. The client looks the topic up at the hub, and the new broker takes ownership there. Then
the client connects. Every step is a real request over the same emulated links. Pulsar's reconnect pause of 100 ms is
left out, in the baseline's favour.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet import tasks
from trimtab.fleet.protocol import subjects, wire
from trimtab.fleet.protocol.admin_verbs import MoveOrder
from trimtab.fleet.protocol.agent_verbs import Ping
from trimtab.fleet.protocol.hub_verbs import Register, Sync
from trimtab.fleet.sdk.subscription import Subscription
from trimtab.fleet.site.credentials import CLIENT_FILE, read_secret
from trimtab.lab.experiment import Bar, Job, Report, Row, markdown_table, mean, select
from trimtab.lab.live import LiveFleet
from trimtab.model.key import Key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trimtab.fleet.protocol.message import Message

BETWEEN_MS: Final = 5.0  # one-way delay between the two sites
HUB_MS: Final = (0, 10, 20, 40)
MANY: Final = 128  # topics, where only the delay to the hub varies
EXECUTORS: Final = 16
TOPICS: Final = (1, 16, 64, 128)
POOLS: Final = (1, 4, 16)  # numbers of executors
FAR: Final = 40  # one-way delay to the hub, ms, where the number of topics varies
PERIOD_S: Final = 0.1  # interval of messages to each topic
LEAST_MS: Final = 1.0  # smallest downtime used in a ratio


class Downtime:
    title = "Downtime of clients while topics move"
    seeds = 1
    timed = True

    def jobs(self, seeds: int) -> list[Job]:
        points = {(MANY, hub, EXECUTORS, who) for hub in HUB_MS for who in ("trimtab", "unload-first")}
        points |= {(topics, FAR, pool, "trimtab") for topics in TOPICS for pool in POOLS}
        points |= {(topics, FAR, 1, "unload-first") for topics in TOPICS if topics < MANY}
        return [
            {"topics": topics, "hub_ms": hub, "executors": pool, "who": who, "seed": seed}
            for seed in range(seeds) for topics, hub, pool, who in sorted(points)
        ]  # fmt: skip

    def run(self, job: Job) -> list[Row]:
        trial = _ours if job["who"] == "trimtab" else _unload_first
        return tasks.run(trial(job["topics"], job["hub_ms"], job["executors"]))

    def report(self, rows: list[Row], out: Path) -> Report:
        _draw(rows, out)
        lines = []
        for hub in HUB_MS:
            ours, theirs = (select(rows, topics=MANY, hub_ms=hub, executors=EXECUTORS, who=who)
                            for who in ("trimtab", "unload-first"))  # fmt: skip
            if ours and theirs:
                lines.append((hub, *(f"{mean(of, name):,.1f}" for name in ("downtime_ms", "worst_ms")
                                     for of in (ours, theirs)),
                              *(f"{sum(r['lost'] for r in of):,}" for of in (ours, theirs))))  # fmt: skip
        far = {
            who: select(rows, topics=MANY, hub_ms=FAR, executors=EXECUTORS, who=who)
            for who in ("trimtab", "unload-first")
        }
        ratio = mean(far["unload-first"], "downtime_ms") / max(mean(far["trimtab"], "downtime_ms"), LEAST_MS)
        times = []
        for topics in TOPICS:
            cells = [
                f"{mean(rows, 'median_move_ms', topics=topics, hub_ms=FAR, executors=p, who='trimtab'):,.0f}"
                for p in POOLS
            ]
            totals = [
                f"{mean(rows, 'all_ms', topics=topics, hub_ms=FAR, executors=p, who='trimtab'):,.0f}" for p in POOLS
            ]
            base = [r for r in rows if r["topics"] == topics and r["hub_ms"] == FAR and r["who"] == "unload-first"]
            times.append(
                (topics, *cells, f"{mean(base, 'median_move_ms'):,.0f}", *totals, f"{mean(base, 'all_ms'):,.0f}")
            )
        bars = (
            Bar.at_least(
                f"downtime, unload-first / trimtab (at least {LEAST_MS:g} ms), {MANY} topics, {FAR} ms", ratio, 20
            ),
            Bar.at_most("messages lost in trimtab's moves", sum(r["lost"] for r in rows if r["who"] == "trimtab"), 0),
        )
        text = (
            f"Downtime is the time between leaving the old broker and being confirmed by the new one (Section 5.7), "
            f"mean over {MANY} clients and worst client, in ms; trimtab's clients join before they leave. Both have "
            f"{EXECUTORS} executors; unload-first, like Pulsar, uses one.\n\n"
            + markdown_table(
                ["hub, ms one way", "trimtab", "unload-first", "trimtab, worst", "unload-first, worst", "trimtab, lost",
                 "unload-first, lost"], lines)
            + "\n\n![downtime](downtime.png)\n\n"
            f"Time of one move and of all moves, ms, with the hub {FAR} ms away. A move "
            "of trimtab counts until the last client has left the old broker; other clients do not wait for it.\n\n"
            + markdown_table(
                ["topics", *(f"trimtab, {p} executors" for p in POOLS), "unload-first",
                 *(f"all, trimtab, {p}" for p in POOLS), "all, unload-first"], times)
        )  # fmt: skip
        return Report(text, bars, {"downtime_ratio": round(ratio, 1)})


def _topic(number: int) -> str:
    return f"swarm.{number}"


async def _publish(client: Any, topics: int, sent: list[int], stop: asyncio.Event) -> None:
    """Publish a message to every topic each period."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    while not stop.is_set():
        for number in range(topics):
            sent[number] += 1
            await client.publish(_topic(number), str(sent[number]))
        due += PERIOD_S
        await asyncio.sleep(max(0.0, due - loop.time()))


async def _ours(topics: int, hub_ms: float, executors: int) -> list[Row]:
    async with (
        LiveFleet(2, between_ms=BETWEEN_MS, hub_ms=hub_ms, executors=executors) as fleet,
        contextlib.AsyncExitStack() as stack,
    ):
        publisher = await stack.enter_async_context(fleet.client("publisher", "b1"))
        entering = (stack.enter_async_context(fleet.client(f"c{n}", "b1")) for n in range(topics))
        clients = await asyncio.gather(*entering)
        await asyncio.gather(*(publisher.create_topic(_topic(n), broker="b1") for n in range(topics)))
        received: list[set[str]] = [set() for _ in range(topics)]
        subscriptions = await asyncio.gather(
            *(client.subscribe(_topic(number), _collect(received[number])) for number, client in enumerate(clients))
        )
        await asyncio.sleep(3 * BETWEEN_MS / 1000)
        sent, stop = [0] * topics, asyncio.Event()
        pump = asyncio.create_task(_publish(publisher, topics, sent, stop))
        await asyncio.sleep(1.0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        ids = await fleet.start_moves(MoveOrder(Key("topic", _topic(n), ""), "b2") for n in range(topics))
        records = await fleet.finished(ids)
        total_s = loop.time() - began
        await asyncio.sleep(0.3)
        stop.set()
        await pump
        for _ in range(100):
            if all(len(received[n]) == sent[n] for n in range(topics)):
                break
            await asyncio.sleep(0.05)
        own = [subscription for subscription in subscriptions if isinstance(subscription, Subscription)]
        downtimes = [_downtime_s(list(subscription.history)) for subscription in own]
        # The time of a move starts when an executor takes it up.
        moves = [1000 * (r.phases[-1][1] - r.phases[1][1]) for r in records]
        return [_row(downtimes, moves, total_s, sum(sent[n] - len(received[n]) for n in range(topics)))]


def _collect(received: set[str]) -> Callable[[Message], None]:
    def receive(message: Message) -> None:
        received.add(message.text)

    return receive


def _downtime_s(history: list[tuple[float, str, bool]]) -> float:
    """Seconds without any broker, between the first and the last broker joined."""
    brokers: set[str] = set()
    total, since = 0.0, None
    for at, broker, joined in history:
        if joined:
            brokers.add(broker)
            if since is not None:
                total, since = total + at - since, None
        else:
            brokers.discard(broker)
            if not brokers:
                since = at
    return total


async def _unload_first(topics: int, hub_ms: float, executors: int) -> list[Row]:
    async with LiveFleet(2, between_ms=BETWEEN_MS, hub_ms=hub_ms) as fleet, contextlib.AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(fleet.client("publisher", "b1"))
        await asyncio.gather(*(publisher.create_topic(_topic(n), broker="b1") for n in range(topics)))
        credentials = read_secret(fleet.home / CLIENT_FILE, "")
        first = credentials["brokers"]["b1"]
        second = [f"nats://{fleet.delays.addresses['client b1 b2']}"]

        async def connection(urls: list[str], name: str) -> Any:
            client = await wire.connect(urls, "fleet", fleet.launch.fleet.fleet, name=name)
            stack.push_async_callback(client.close)
            return client

        # Stand-ins for each broker's connection to the hub, and for the clients' topic lookup.
        brokers = {
            "b1": await connection(first, "broker-1"),
            "b2": await connection(credentials["brokers"]["b2"], "broker-2"),
        }
        lookup = await connection(first, "lookup")
        received: list[set[str]] = [set() for _ in range(topics)]

        async def listen(urls: list[str], number: int) -> Any:
            client = await connection(urls, f"c{number}")

            async def on_message(raw: Any) -> None:
                received[number].add(raw.data.decode())

            await client.subscribe(subjects.deliver(_topic(number)), cb=on_message)
            await client.flush()
            return client

        clients = list(await asyncio.gather(*(listen(first, n) for n in range(topics))))
        await asyncio.sleep(3 * BETWEEN_MS / 1000)
        sent, stop = [0] * topics, asyncio.Event()
        pump = asyncio.create_task(_publish(publisher, topics, sent, stop))
        await asyncio.sleep(1.0)
        loop = asyncio.get_running_loop()
        began, downtimes, moves = loop.time(), [], []
        for number in range(topics):
            start = loop.time()
            await fleet.ask(Ping(), broker="b1")  # the order to unload reaches the old broker
            await _write(brokers["b1"], f"owner-{number}", "b1")  # the old broker gives up ownership at the hub
            moves.append(1000 * (loop.time() - start))
            disconnected = loop.time()
            await clients[number].close()  # the old broker disconnects its client
            await wire.ask(lookup, Sync("b1", 1 << 60))  # the client looks the topic up
            await _write(brokers["b2"], f"owner-{number}", "b2")  # the new broker takes ownership
            clients[number] = await listen(second, number)
            downtimes.append(loop.time() - disconnected)
        total_s = loop.time() - began
        await asyncio.sleep(0.3)
        stop.set()
        await pump
        await asyncio.sleep(0.5)
        return [_row(downtimes, moves, total_s, sum(sent[n] - len(received[n]) for n in range(topics)))]


async def _write(connection: Any, key: str, value: str) -> None:
    """A write to the hub's key-value store from a broker."""
    await wire.ask(connection, Register(key, value))


def _row(downtimes: list[float], moves: list[float], total_s: float, lost: int) -> Row:
    return {
        "downtime_ms": 1000 * statistics.mean(downtimes), "worst_ms": 1000 * max(downtimes),
        "median_move_ms": statistics.median(moves), "all_ms": 1000 * total_s, "lost": lost,
    }  # fmt: skip


def _draw(rows: list[Row], out: Path) -> None:
    from trimtab.lab import plots

    sheet, panels = plots.figure(1, 2, width=4.6, height=3.3)
    left, right = panels[0]
    for who, colour in (("trimtab", "#d1495b"), ("unload-first", "#30638e")):
        curve = sorted(select(rows, topics=MANY, executors=EXECUTORS, who=who), key=lambda row: row["hub_ms"])
        left.plot([r["hub_ms"] for r in curve], [r["downtime_ms"] for r in curve], marker="o", color=colour, label=who)
    left.set_xlabel("one-way delay to the hub, ms")
    left.set_ylabel(f"mean client downtime, ms ({MANY} topics)")
    left.legend(fontsize=8)
    for pool, style in zip(POOLS, ("-", "--", ":"), strict=True):
        curve = sorted(select(rows, hub_ms=FAR, executors=pool, who="trimtab"), key=lambda row: row["topics"])
        right.plot([r["topics"] for r in curve], [r["all_ms"] / r["topics"] for r in curve], style, marker="o",
                   color="#d1495b", label=f"trimtab, {pool} executors")  # fmt: skip
    base = sorted((r for r in rows if r["hub_ms"] == FAR and r["who"] == "unload-first"), key=lambda row: row["topics"])
    right.plot([r["topics"] for r in base], [r["all_ms"] / r["topics"] for r in base], marker="s", color="#30638e",
               label="unload-first")  # fmt: skip
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.set_xlabel(f"topics moved at once (hub {FAR} ms away)")
    right.set_ylabel("time of all moves / topics, ms")
    right.legend(fontsize=8)
    plots.save(sheet, out / "downtime.png")
