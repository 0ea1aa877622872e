"""The process beside a broker's servers: runs processors, keeps links, reports, takes part in moves.

It is not on the way of messages between clients; a broker without its agent still carries them. What goes
through it: messages to processors, and those of stock clients, which it stamps and counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
import sys
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats.errors

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.broker.hosting import Hosting
from trimtab.fleet.broker.links import Links
from trimtab.fleet.broker.telemetry import Telemetry
from trimtab.fleet.protocol import names, wire
from trimtab.fleet.protocol.message import MESSAGE_ID, PREFIX, Stamper
from trimtab.fleet.protocol.registry import Registry
from trimtab.fleet.site.credentials import read_secret, write_secret
from trimtab.observe.report import TopicReport

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg

log = logging.getLogger("trimtab.agent")
PERIOD_S: Final = 1.0
LINKS_S: Final = 1.9  # between reports that list who is there
TICK_S: Final = 0.1
SETTLE_S: Final = 1.5  # after a start, until the clients have said who is there


class Agent:
    """Answers ``ask.BROKER.*``."""

    def __init__(
        self, broker: str, connection: Nats, servers: list[Nats], about: dict[str, Any], replica: Path
    ) -> None:
        self.broker = broker
        self.connection = connection
        self.registry = Registry()
        self.links = Links()
        self.hosting = Hosting(broker, connection, self.registry, self._heard_everywhere)
        self.alive: list[str] = [broker]
        self._about = about
        self._replica = replica
        self._stamper = Stamper(f"stock-{broker}")
        self._telemetry = Telemetry(servers)
        self._fresh: dict[str, TopicReport] = {}
        self._hub_seen = -1e9
        self._run = secrets.token_hex(6)  # tells this process from the one before it
        self._started = time.monotonic()
        self._waiting: dict[str, dict[str, Any]] = {}  # clients to register when the hub is back
        self._listed_at = 0.0
        self._dirty = False  # whether the replica on disk is behind
        self._told: dict[str, Any] | None = None  # where brokers are, as clients hear it

    async def start(self) -> None:
        self._load_replica()
        verbs = {
            "ping": self._ping, "welcome": self._welcome, "reader": self._reader,
            "hello": self._hello, "route": self._route, "open": self._open, "close": self._close,
            "report": self._report, "flush": self._flush, "refuse": self._refuse,
            "drain": self._drain, "brokers": self._addresses,
        }  # fmt: skip
        for verb, handle in (verbs | self.hosting.orders()).items():
            await self.connection.subscribe(f"ask.{self.broker}.{verb}", cb=wire.answering(handle))
        await self.connection.subscribe("ask.all.probe", cb=self._probe)
        await self.connection.subscribe("route.>", cb=self._changed)
        await self.connection.subscribe(f"raw.{self.broker}.>", cb=self._enter)
        await self.connection.flush()
        with contextlib.suppress(Unreachable):
            await self._sync()
        await self.hosting.settle()

    async def run(self, stop: asyncio.Event) -> None:
        try:  # a loop that fails ends the agent, and the supervisor starts it again
            await tasks.run_until(stop, self._ticks(), self._seconds())
        finally:
            await self.hosting.stop()

    # The registry.

    async def _sync(self) -> None:
        while True:
            question = {
                "broker": self.broker, "revision": self.registry.revision, "about": self._about, "run": self._run,
            }  # fmt: skip
            answer = await wire.ask(self.connection, "ask.hub.sync", question, 2.0)
            self._hub_seen = time.monotonic()
            self.alive = sorted({*answer["alive"], self.broker})
            self.hosting.moving = set(answer["moving"])
            news = [self._apply(*change) for change in answer["changes"]]
            if any(news):
                self._dirty = True
                await self.hosting.settle()
            if not answer["changes"] or self.registry.revision >= answer["revision"]:
                break
        if self._dirty:
            self._dirty = False
            self.registry.bury()
            self._save_replica()
        for client, question in list(self._waiting.items()):
            await wire.ask(self.connection, "ask.hub.register", question, 2.0)
            self._waiting.pop(client, None)

    async def _changed(self, message: Msg) -> None:
        change = json.loads(message.data)
        if self._apply(change["key"], change["value"], change["revision"], in_order=False):
            self._dirty = True
            if change["key"].startswith("topic."):
                await self.hosting.settle()

    def _apply(self, key: str, value: dict[str, Any] | None, revision: int, *, in_order: bool = True) -> bool:
        if key.startswith("broker."):
            self._told = None
        return self.registry.apply(key, value, revision, in_order=in_order)

    def _load_replica(self) -> None:
        """What was known before, in case the hub is away."""
        with contextlib.suppress(OSError, ValueError):
            for key, value, revision in json.loads(self._replica.read_text())["changes"]:
                self.registry.apply(key, value, revision)

    def _save_replica(self) -> None:
        write_secret(self._replica, {"changes": self.registry.since(0, most=10_000_000)})

    # Clients.

    async def _ping(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "broker": self.broker,
            "pid": os.getpid(),
            "hosts": {name: host.live for name, host in self.hosting.hosts.items()},
        }

    async def _welcome(self, _: dict[str, Any]) -> dict[str, Any]:
        """A client is to come here: be ready for all it may publish to."""
        with contextlib.suppress(Unreachable):
            await self._sync()
        await self.hosting.settle()
        self.hosting.check()
        return {}

    async def _hello(self, question: dict[str, Any]) -> dict[str, Any]:
        """A client has come to this broker; it keeps its home if it has one."""
        client = names.client_name(question["client"])
        wanted = question.get("home") or self.broker
        brokers = self.registry.brokers()
        if wanted not in brokers and wanted != self.broker:
            raise BadInput(
                f"there is no broker '{wanted}' to be the home of '{client}'; known: {', '.join(sorted(brokers))}"
            )
        registration = {
            "client": client, "home": wanted, "wished": bool(question.get("home")),
            "position": question.get("position"), "returns": question.get("returns"),
        }  # fmt: skip
        home = self.registry.home(client)
        try:
            home = (await wire.ask(self.connection, "ask.hub.register", registration, 2.0))["home"]
        except Unreachable:
            self._waiting[client] = registration
        return {"home": home or wanted} | await self._addresses()

    async def _addresses(self, _: dict[str, Any] | None = None) -> dict[str, Any]:
        """Of all brokers; and a number that others would hardly have, for clients to see whether they know them."""
        if self._told is None:
            urls = {name: about["urls"] for name, about in sorted(self.registry.brokers().items())}
            self._told = {"brokers": urls, "mark": zlib.crc32(json.dumps(urls).encode())}
        return self._told

    async def _route(self, question: dict[str, Any]) -> dict[str, Any]:
        """Where a client finds a topic. Nobody is turned away on news that may be old: the hub is asked first."""
        client, name = question["client"], names.topic_name(question["topic"])
        try:
            broker = self.registry.route(client, name)
        except BadInput:
            with contextlib.suppress(Unreachable):
                await self._sync()
            broker = self.registry.route(client, name)
        if self.registry.topic(name).unit == "client" and self.registry.home(client) is None:
            broker = self.broker
        about = self.registry.get(f"broker.{broker}") or {}
        return {
            "broker": broker,
            "urls": about.get("urls", []),
            "topic": self.registry.get(f"topic.{name}"),
            "revision": max(self.registry.at(f"topic.{name}"), self.registry.at(f"client.{client}"),
                            self.registry.at(f"link.{client}.{name}")),
        }  # fmt: skip

    async def _open(self, question: dict[str, Any]) -> dict[str, Any]:
        self.links.open(question["topic"], question["client"], question["role"])
        return {"peers": self._peers()}

    def _peers(self) -> list[str]:
        """Who must have heard of a new subscription before an old one may end."""
        return [*self.alive, *([names.HUB] if self._hub_is_there() else [])]

    def _hub_is_there(self) -> bool:
        return time.monotonic() - self._hub_seen < 3 * PERIOD_S

    async def _close(self, question: dict[str, Any]) -> dict[str, Any]:
        self.links.close(question["topic"], question["client"], question.get("role"))
        return {}

    async def _refuse(self, question: dict[str, Any]) -> dict[str, Any]:
        self.links.refuse(question["topic"], question["client"], question["reason"])
        return {}

    async def _report(self, question: dict[str, Any]) -> dict[str, Any]:
        """Once a second from every client: what it did, which links it has here, which routes it follows."""
        client = question["client"]
        self.links.heard_of(client, question["links"])
        here = question["home"] == self.broker or question["home"] not in self.alive  # it has fled to here
        self.links.at_home(client, here and not question.get("leaves"))
        for topic, counted in question["topics"].items():
            self._fresh.setdefault(topic, TopicReport()).add(TopicReport.decode(counted))
        stale = {}
        for topic, broker in question.get("routes", {}).items():
            try:
                now = self.registry.route(client, topic)
            except BadInput:
                continue
            if now != broker and now in self.alive:  # whoever has fled from a broker that is away stays
                stale[topic] = await self._route({"client": client, "topic": topic})
        home, mark = self.registry.home(client) or question["home"], (await self._addresses())["mark"]
        return {
            "stale": stale, "home": home, "home_alive": home in self.alive, "mark": mark,
            "known": await self._is_known(client),
        }  # fmt: skip

    async def _is_known(self, client: str) -> bool:
        """Whether the hub knows this client. If it cannot be asked, nobody is told otherwise."""
        if self.registry.home(client) is None and client not in self._waiting and self._hub_is_there():
            with contextlib.suppress(Unreachable):
                await self._sync()
                return self.registry.home(client) is not None
        return True

    async def _reader(self, question: dict[str, Any]) -> dict[str, Any]:
        """A durable reader's position; clients may not make one themselves, for one could be made to do harm."""
        topic = self.registry.topic(question["topic"])
        if not topic.persistent:
            raise BadInput(f"topic '{topic.name}' is not persistent: nothing is stored that could be read later")
        await self.hosting.store.add_consumer(topic.name, topic.broker, names.client_name(question["durable"]))
        return {}

    async def _flush(self, question: dict[str, Any]) -> dict[str, Any]:
        """A publisher leaves: answer when what it has sent to the topic's processor here is done."""
        host = self.hosting.hosts.get(question["topic"])
        if host is not None:
            await host.drained()
        return {}

    async def _probe(self, message: Msg) -> None:
        """Answer where the client listens on its old route.

        The question came after the news of the client's new subscription, on the same connection between the
        servers; the answer goes behind every message that was sent the old way before. So when the answers of all
        servers are in, the old route has nothing more to give, whoever publishes, stock clients included.
        """
        if (subject := names.inbox(message.data)) is not None:
            await self.connection.publish(subject, self.broker.encode())

    async def _enter(self, message: Msg) -> None:
        """A stock client's message: stamp it, count it, send it where the topic's messages go."""
        name = message.subject.split(".", 2)[2]
        counted = self._fresh.setdefault(name, TopicReport())
        counted.in_msgs += 1
        counted.in_bytes += len(message.data)
        topic = self.registry.get(f"topic.{name}")
        stamp = self._stamper.next(name)
        if topic is None or not (topic["processor"] or topic["persistent"]):
            await self.connection.publish(names.deliver(name), message.data, reply=f"{PREFIX}{stamp}")
        elif topic["persistent"]:
            subject = names.work(name) if topic["processor"] else names.keep(topic["broker"], name)
            await self.connection.publish(subject, message.data, headers={MESSAGE_ID: stamp})
        else:
            subject = names.work(name) if topic["unit"] == "topic" else names.home(self.broker, name)
            await self.connection.publish(subject, message.data, reply=f"{PREFIX}{stamp}")

    async def _drain(self, question: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(max(0.0, SETTLE_S - (time.monotonic() - self._started)))
        topic, client = question["topic"], question["client"]

        def leaving(its_topic: str, its_client: str) -> bool:
            if topic:
                return its_topic == topic and client in ("", its_client)
            record = self.registry.get(f"topic.{its_topic}")  # a client's move takes along what is placed by client
            return its_client == client and record is not None and record["unit"] == "client"

        await self.links.gone(leaving, float(question["wait_s"]))
        return {}

    async def _heard_everywhere(self) -> None:
        """Until all servers know of what this agent has subscribed to."""
        waiting = set(self._peers())
        inbox = self.connection.new_inbox()
        subscription = await self.connection.subscribe(inbox)
        try:
            await self.connection.publish("ask.all.probe", inbox.encode())
            with contextlib.suppress(Exception):  # one that is gone need not know
                while waiting:
                    waiting.discard((await subscription.next_msg(timeout=2.0)).data.decode())
        finally:
            await subscription.unsubscribe()

    # Time.

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.links.expire()
            for host in self.hosting.hosts.values():
                host.tick()

    async def _seconds(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            if os.getppid() == 1 and sys.platform != "linux":
                return  # whoever started us is gone
            with contextlib.suppress(BadInput, nats.errors.Error, asyncio.TimeoutError):
                await self._sync()
                await self.hosting.sweep()
            fresh, self._fresh = self._fresh, {}
            for name, host in self.hosting.hosts.items():
                fresh.setdefault(name, TopicReport()).add(host.report())
            for name, (publishers, subscribers) in self.links.counts().items():
                counted = fresh.setdefault(name, TopicReport())
                counted.publishers, counted.subscribers = publishers, subscribers
            report = await self._telemetry.take(self.broker, fresh)
            if report.at >= self._listed_at + LINKS_S:
                self._listed_at, report.links = report.at, self.links.by_client()
            with contextlib.suppress(nats.errors.Error):  # the server is away, or there is too much to tell
                for part in report.parts():
                    await self.connection.publish(f"telemetry.{self.broker}", json.dumps(part.encode()).encode())


async def serve(config: Path) -> None:
    known = read_secret(config, "trimtab up or trimtab broker writes it")
    ca, broker = known.get("ca"), known["broker"]
    stop = asyncio.Event()

    async def closed() -> None:  # for good, which happens on some errors of a server that starts anew
        stop.set()

    options: dict[str, Any] = {"name": f"trimtab:agent:{broker}", "ca": ca, "wait_s": 30.0, "on_closed": closed}
    connection = await wire.connect(known["urls"], "fleet", known["fleet"], **options)
    asked = [known["urls"], *([url] for url in known["stores"])]
    servers = [await wire.connect(urls, "system", known["system"], **options) for urls in asked]
    agent = Agent(broker, connection, servers, known["about"], config.with_name("replica.json"))
    await agent.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await agent.run(stop)
    for each in (connection, *servers):
        await each.close()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    tasks.run(serve(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
