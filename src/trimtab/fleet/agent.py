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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats.errors

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import names, wire
from trimtab.fleet.credentials import read_secret, write_secret
from trimtab.fleet.host import Host
from trimtab.fleet.links import Links
from trimtab.fleet.message import MESSAGE_ID, PREFIX, Stamper
from trimtab.fleet.registry import Registry, Topic
from trimtab.fleet.store import Store
from trimtab.fleet.telemetry import Telemetry
from trimtab.observe.report import TopicReport

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg

    Handler = Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]

log = logging.getLogger("trimtab.agent")
PERIOD_S: Final = 1.0
TICK_S: Final = 0.1
CHUNK: Final = 400_000  # of a handover, in characters of JSON
ORDERED_S: Final = 15.0  # a topic about which a move has given an order is left alone for so long
SWEEP_S: Final = 5.0  # between looks at what is stored
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
        self.hosts: dict[str, Host] = {}
        self.store = Store(connection)
        self.alive: list[str] = [broker]
        self._about = about
        self._replica = replica
        self._stamper = Stamper(f"stock-{broker}")
        self._telemetry = Telemetry(servers)
        self._fresh: dict[str, TopicReport] = {}
        self._hub_seen = -1e9
        self._run = secrets.token_hex(6)  # tells this process from the one before it
        self._started = time.monotonic()
        self._parts: dict[str, list[str]] = {}
        self._waiting: dict[str, dict[str, Any]] = {}  # clients to register when the hub is back
        self._hosting = asyncio.Lock()
        self._moving: set[str] = set()  # topics that are in a move
        self._ordered: dict[str, float] = {}  # topic -> when a move gave the last order about it here
        self._swept = -1e9
        self._dirty = False  # whether the replica on disk is behind

    async def start(self) -> None:
        self._load_replica()
        verbs = {
            "ping": self._ping, "welcome": self._welcome, "reader": self._reader,
            "hello": self._hello, "route": self._route, "open": self._open, "close": self._close,
            "report": self._report, "flush": self._flush, "refuse": self._refuse, "host": self._host,
            "prepare": self._prepare, "release": self._release, "take": self._take, "activate": self._activate,
            "drain": self._drain, "retire": self._retire, "resume": self._resume,
        }  # fmt: skip
        for verb in ("prepare", "release", "take", "activate", "retire", "resume"):
            verbs[verb] = self._noting(verbs[verb])
        for verb, handle in verbs.items():
            await self.connection.subscribe(f"ask.{self.broker}.{verb}", cb=wire.answering(handle))
        await self.connection.subscribe("ask.all.probe", cb=self._probe)
        await self.connection.subscribe("route.>", cb=self._changed)
        await self.connection.subscribe(f"raw.{self.broker}.>", cb=self._enter)
        await self.connection.flush()
        with contextlib.suppress(Unreachable):
            await self._sync()
        await self._settle_hosts()

    async def run(self, stop: asyncio.Event) -> None:
        loops = [asyncio.create_task(each(), name=each.__name__) for each in (self._ticks, self._seconds)]
        ended = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([*loops, ended], return_when=asyncio.FIRST_COMPLETED)
        for task in (*loops, ended):
            task.cancel()
        for host in self.hosts.values():
            await host.stop()
        for task in done - {ended}:
            task.result()  # a loop that ended has failed, and the supervisor starts the agent anew

    # The registry.

    async def _sync(self) -> None:
        while True:
            question = {
                "broker": self.broker, "revision": self.registry.revision, "about": self._about, "run": self._run,
            }  # fmt: skip
            answer = await wire.ask(self.connection, "ask.hub.sync", question, 2.0)
            self._hub_seen = time.monotonic()
            self.alive = sorted({*answer["alive"], self.broker})
            self._moving = set(answer["moving"])
            news = [self.registry.apply(key, value, revision) for key, value, revision in answer["changes"]]
            if any(news):
                self._dirty = True
                await self._settle_hosts()
            if not answer["changes"] or self.registry.revision >= answer["revision"]:
                break
        if self._dirty:
            self._dirty = False
            self._save_replica()
        for client, question in list(self._waiting.items()):
            await wire.ask(self.connection, "ask.hub.register", question, 2.0)
            self._waiting.pop(client, None)

    async def _changed(self, message: Msg) -> None:
        change = json.loads(message.data)
        if self.registry.apply(change["key"], change["value"], change["revision"], in_order=False):
            self._dirty = True
            if change["key"].startswith("topic."):
                await self._settle_hosts()

    def _load_replica(self) -> None:
        """What was known before, in case the hub is away."""
        with contextlib.suppress(OSError, ValueError):
            for key, value, revision in json.loads(self._replica.read_text())["changes"]:
                self.registry.apply(key, value, revision)

    def _save_replica(self) -> None:
        write_secret(self._replica, {"changes": self.registry.since(0, most=10_000_000)})

    async def _settle_hosts(self) -> None:
        """Serve the processors that should be here. Those in a move are left to the move."""
        async with self._hosting:
            for topic in self.registry.topics():
                here = topic.processor and (topic.broker == self.broker or topic.unit != "topic")
                if here and topic.name not in self.hosts:
                    host = Host(self.connection, self.broker, topic)
                    try:
                        await host.start(live=True)
                    except BadInput as error:
                        log.error("topic %s: %s", topic.name, error)
                        continue
                    self.hosts[topic.name] = host
            known = {topic.name for topic in self.registry.topics()}
            for name in [name for name in self.hosts if name not in known and self.hosts[name].live]:
                if self.registry.at(f"topic.{name}"):  # deleted, not merely unheard of yet
                    await self.hosts.pop(name).stop()

    async def _sweep(self) -> None:
        """Put right what a move left behind when somebody died in the middle: the registry has the last word."""
        for name, host in list(self.hosts.items()):
            record = self.registry.get(f"topic.{name}")
            if record is None or record["unit"] != "topic" or self._in_move(name):
                continue
            if record["broker"] == self.broker:
                await host.resume()
            else:
                log.info("topic %s is at %s now", name, record["broker"])
                await self.hosts.pop(name).stop()
        if time.monotonic() - self._swept > SWEEP_S:
            self._swept = time.monotonic()
            for name in await self.store.topics(self.broker):
                record = self.registry.get(f"topic.{name}")
                if record is None or self._in_move(name):
                    continue
                if record["broker"] != self.broker:
                    log.info("the stored messages of topic %s are at %s now", name, record["broker"])
                    await self.store.delete(name, self.broker)
                elif not await self.store.is_open(name, self.broker):
                    await self.store.open(name, self.broker)

    def _in_move(self, topic: str) -> bool:
        """What the hub last said may be old; an order of a move is news."""
        return topic in self._moving or time.monotonic() - self._ordered.get(topic, -1e9) < ORDERED_S

    # Clients.

    async def _ping(self, _: dict[str, Any]) -> dict[str, Any]:
        return {
            "broker": self.broker,
            "pid": os.getpid(),
            "hosts": {name: host.live for name, host in self.hosts.items()},
        }

    async def _welcome(self, _: dict[str, Any]) -> dict[str, Any]:
        """A client is to come here: be ready for all it may publish to."""
        with contextlib.suppress(Unreachable):
            await self._sync()
        await self._settle_hosts()
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
        registration = {"client": client, "home": wanted, "position": question.get("position")}
        home = self.registry.home(client)
        try:
            home = (await wire.ask(self.connection, "ask.hub.register", registration, 2.0))["home"]
        except Unreachable:
            self._waiting[client] = registration
        return {"home": home or wanted, "brokers": {name: about["urls"] for name, about in brokers.items()}}

    async def _route(self, question: dict[str, Any]) -> dict[str, Any]:
        """Where a client finds a topic."""
        client, name = question["client"], names.topic_name(question["topic"])
        if self.registry.get(f"topic.{name}") is None:
            with contextlib.suppress(Unreachable):
                await self._sync()
        broker = self.registry.route(client, name)
        if self.registry.topic(name).unit == "client" and self.registry.home(client) is None:
            broker = self.broker
        about = self.registry.brokers().get(broker, {})
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
        hub = [names.HUB] if time.monotonic() - self._hub_seen < 3 * PERIOD_S else []
        return [*self.alive, *hub]

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
        for topic, counted in question["topics"].items():
            self._fresh.setdefault(topic, TopicReport()).add(TopicReport.decode(counted))
        stale = {}
        for topic, broker in question.get("routes", {}).items():
            try:
                now = self.registry.route(client, topic)
            except BadInput:
                continue
            if now != broker:
                stale[topic] = await self._route({"client": client, "topic": topic})
        return {"stale": stale, "home": self.registry.home(client) or question["home"]}

    async def _reader(self, question: dict[str, Any]) -> dict[str, Any]:
        """A durable reader's position; clients may not make one themselves, for one could be made to do harm."""
        topic = self.registry.topic(question["topic"])
        if not topic.persistent:
            raise BadInput(f"topic '{topic.name}' is not persistent: nothing is stored that could be read later")
        await self.store.add_consumer(topic.name, topic.broker, names.client_name(question["durable"]))
        return {}

    async def _flush(self, question: dict[str, Any]) -> dict[str, Any]:
        """A publisher leaves: answer when what it has sent to the topic's processor here is done."""
        host = self.hosts.get(question["topic"])
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

    # Moves. Every one of these may be asked twice.

    def _noting(self, handle: Handler) -> Handler:
        async def noted(question: dict[str, Any]) -> dict[str, Any]:
            self._ordered[question["topic"]] = time.monotonic()
            return await handle(question)

        return noted

    async def _host(self, question: dict[str, Any]) -> dict[str, Any]:
        """A new topic: refuse what cannot be served."""
        topic = Topic(question["topic"], **question["record"])
        async with self._hosting:
            if topic.persistent:
                await self.store.create(topic.name, self.broker, topic.replicas)
            if topic.processor and topic.name not in self.hosts:
                host = Host(self.connection, self.broker, topic)
                try:
                    await host.start(live=True)
                except BadInput:
                    if topic.persistent:
                        await self.store.delete(topic.name, self.broker)
                    raise
                self.hosts[topic.name] = host
        return {}

    async def _prepare(self, question: dict[str, Any]) -> dict[str, Any]:
        topic = Topic(question["topic"], **question["record"])
        async with self._hosting:
            if topic.processor and topic.name not in self.hosts:
                host = Host(self.connection, self.broker, topic)
                await host.start(live=False)
                self.hosts[topic.name] = host
        if topic.persistent:
            await self.store.copy(topic.name, question["source"], self.broker, topic.replicas)
        if topic.processor:
            await self._heard_everywhere()
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

    async def _release(self, question: dict[str, Any]) -> dict[str, Any]:
        """Stop serving the topic and give its state to the target."""
        name, target = question["topic"], question["target"]
        host = self.hosts.get(name)
        topic = self.registry.topic(name)
        if host is not None:
            state = json.dumps(await host.release())
            parts = [state[at : at + CHUNK] for at in range(0, len(state), CHUNK)] or [""]
            for number, part in enumerate(parts):
                piece = {"topic": name, "move": question["id"], "part": number, "of": len(parts), "state": part}
                await wire.ask(self.connection, f"ask.{target}.take", piece, 5.0)
        return await self.store.close(name, self.broker) if topic.persistent else {}

    async def _take(self, question: dict[str, Any]) -> dict[str, Any]:
        parts = self._parts.setdefault(question["move"], [])
        if question["part"] == 0:
            parts.clear()
        parts.append(question["state"])
        if len(parts) == question["of"]:
            del self._parts[question["move"]]
            host = self.hosts.get(question["topic"])
            if host is None:
                raise BadInput(f"'{self.broker}' was not prepared for topic '{question['topic']}'")
            await host.take(json.loads("".join(parts)))
        return {}

    async def _activate(self, question: dict[str, Any]) -> dict[str, Any]:
        name = question["topic"]
        # Closing again is harmless, and tells what an executor that was killed has forgotten.
        closed = question.get("closed") or await self.store.close(name, question["source"])
        await self.store.finish(name, self.broker, closed)
        return {}

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

    async def _retire(self, question: dict[str, Any]) -> dict[str, Any]:
        """Forget the topic; what it has here is served elsewhere."""
        name = question["topic"]
        record = self.registry.get(f"topic.{name}")
        if record is not None and record["broker"] == self.broker and question.get("target") != self.broker:
            return {}  # the newest word is that it belongs here
        host = self.hosts.pop(name, None)
        if host is not None:
            await host.stop()
        if record is None or record["persistent"]:
            await self.store.delete(name, self.broker)
        return {}

    async def _resume(self, question: dict[str, Any]) -> dict[str, Any]:
        """Serve the topic as before a move that came to nothing."""
        name = question["topic"]
        if name in self.hosts:
            await self.hosts[name].resume()
        else:
            await self._settle_hosts()
        if self.registry.topic(name).persistent and not await self.store.is_open(name, self.broker):
            await self.store.open(name, self.broker)
        return {}

    # Time.

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.links.expire()
            for host in self.hosts.values():
                host.tick()

    async def _seconds(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            if os.getppid() == 1 and sys.platform != "linux":
                return  # whoever started us is gone
            with contextlib.suppress(BadInput, nats.errors.Error, asyncio.TimeoutError):
                await self._sync()
                await self._sweep()
            fresh, self._fresh = self._fresh, {}
            for name, host in self.hosts.items():
                fresh.setdefault(name, TopicReport()).add(host.report())
            for name, (publishers, subscribers) in self.links.counts().items():
                counted = fresh.setdefault(name, TopicReport())
                counted.publishers, counted.subscribers = publishers, subscribers
            report = await self._telemetry.take(self.broker, fresh)
            with contextlib.suppress(nats.errors.Error):  # the server is away, or there is too much to tell
                await self.connection.publish(f"telemetry.{self.broker}", json.dumps(report.encode()).encode())


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
    asyncio.run(serve(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
