"""The agent, a process beside a broker's servers: runs processors, keeps links, reports, takes part in moves.

Messages between clients do not pass through the agent; a broker without its agent still carries them. Two kinds of
messages do pass through it: messages to processors, and messages of stock clients, which it stamps and counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import nats.errors

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.broker.clients import ClientService
from trimtab.fleet.broker.following import Following
from trimtab.fleet.broker.hosting import Hosting
from trimtab.fleet.broker.links import Links
from trimtab.fleet.broker.network import NetworkSettings
from trimtab.fleet.broker.peer_moves import PeerMoves
from trimtab.fleet.broker.positions import ClientPositions
from trimtab.fleet.broker.probing import Probing
from trimtab.fleet.broker.summaries import TopicSummaries
from trimtab.fleet.broker.telemetry import Telemetry
from trimtab.fleet.protocol import coding, names, subjects, wire
from trimtab.fleet.protocol.agent_verbs import DrainLinks, Ping, Pong, WelcomeClient
from trimtab.fleet.protocol.entries import BrokerEntry, Change
from trimtab.fleet.protocol.hub_verbs import Sync
from trimtab.fleet.protocol.registry import Registry, broker_entry, coordinate_entry, entry_key
from trimtab.fleet.protocol.request import Done
from trimtab.fleet.site.credentials import REPLICA_FILE, read_secret, write_private
from trimtab.observe.report import BrokerReport, TopicReport

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg

log = logging.getLogger("trimtab.agent")
PERIOD_S: Final = 1.0
LINKS_S: Final = 1.9  # interval of reports that list clients and their links
LOCATED_S: Final = 4.9  # interval of reports with the clients' positions and the latencies of topics
TICK_S: Final = 0.1
EVERYTHING: Final = 10_000_000  # more changes than there are
INTERIM: Final = 100  # most interim changes in one sync
SETTLE_S: Final = 1.5  # time after a start until all clients have reported


class Replica(msgspec.Struct):
    """The registry as an agent keeps it on disk."""

    changes: list[Change]
    revision: int | None = None  # up to which it is complete; None: up to its newest change


class Agent:
    """The agent of one broker. It answers requests to ``ask.BROKER.*``."""

    def __init__(
        self, broker: str, connection: Nats, servers: list[Nats], about: BrokerEntry, replica: Path,
        network: NetworkSettings | None = None,
    ) -> None:  # fmt: skip
        self.broker = broker
        self.connection = connection
        self.registry = Registry()
        self.links = Links()
        self.positions = ClientPositions()
        self._summaries = TopicSummaries(broker, self.registry, self.links, self.positions)
        self.hosting = Hosting(broker, connection, self.registry, self._heard_everywhere)
        self.clients = ClientService(self)
        self.peer_moves = PeerMoves(self)
        self.about = about
        self.report: BrokerReport | None = None  # the newest one
        self.alive: list[str] = [broker]
        settings = network or NetworkSettings()
        self.probing = Probing(broker, connection, settings, lambda: self.alive)
        self.stock: dict[str, int] = {}  # topic -> subscriptions of plain NATS and MQTT clients
        self.following = Following(self, self._summaries, alone=settings.alone)
        self._replica = replica
        self._telemetry = Telemetry(servers)
        self._hub_seen = -1e9
        self._run = secrets.token_hex(6)  # identifies this process, to tell it from an earlier one
        self._started = time.monotonic()
        self._listed_at = 0.0
        self._located_at = 0.0
        self._dirty = False  # whether the replica on disk is behind
        self._trouble = ""  # why the hub refuses to answer

    async def start(self) -> None:
        self._load_replica()
        self.peer_moves.start()
        own = [
            Ping.answered_by(self._ping), WelcomeClient.answered_by(self._welcome), DrainLinks.answered_by(self.drain),
        ]  # fmt: skip
        parts = (self.hosting, self.peer_moves, self.probing, self.positions)
        handlers = [*own, *(handler for part in parts for handler in part.handlers())]
        await wire.serve(self.connection, handlers, broker=self.broker)
        await wire.serve(self.connection, self.clients.handlers(), broker=self.broker, of_clients=True)
        await self.connection.subscribe(subjects.PROBE, cb=self._probe)
        await self.connection.subscribe(subjects.change(subjects.EVERY), cb=self._changed)
        await self.connection.subscribe(subjects.raw(self.broker, subjects.EVERY), cb=self.clients.enter)
        await wire.confirmed(self.connection)
        await self._telemetry.start()
        await self._keep_up()
        self.probing.start_at(self.registry.coordinates().get(self.broker))
        await self.hosting.settle()

    async def run(self, stop: asyncio.Event) -> None:
        try:  # a loop that fails ends the agent, and the supervisor starts it again
            loops = (self.probing.run(), self.probing.publish(), self.peer_moves.run(), self.following.run())
            await tasks.run_until(stop, self._ticks(), self._seconds(), *loops)
        finally:
            await self.peer_moves.stop()
            await self.hosting.stop()

    # The registry.

    async def sync(self) -> None:
        """Fetch the registry's changes from the hub, and update the replica on disk."""
        while True:
            interim = self.registry.interim(self.broker, INTERIM)
            request = Sync(self.broker, self.registry.revision, self.about, self._run, tuple(interim))
            news = await wire.ask(self.connection, request, 2.0)
            self._hub_seen = time.monotonic()
            self.alive = sorted({*news.alive, self.broker})
            self.hosting.moving = set(news.moving)
            if any([self._apply(change) for change in news.changes]):
                self._dirty = True
                await self.hosting.settle()
            if not news.changes or self.registry.revision >= news.revision:
                break
        self._save()
        await self.clients.register_waiting()

    async def _changed(self, message: Msg) -> None:
        try:
            change = coding.decode(message.data, Change)
            news = self._apply(change, in_order=False)
        except BadInput as error:  # sent by a newer keeper; the next sync reports the version conflict
            log.warning("%s: %s", message.subject, error)
            return
        if news:
            self._dirty = True
            if (key := entry_key(change.name)) is not None and key.unit == "topic":
                await self.hosting.settle()

    def _apply(self, change: Change, *, in_order: bool = True) -> bool:
        """Take over a change. Return whether there is something to do about it."""
        if change.name.startswith(broker_entry("")):
            self.clients.brokers_changed()
        interim = self.registry.version(change.name)[1] > 0
        news = self.registry.apply(change.name, change.entry(), change.revision, term=change.term, in_order=in_order)
        if interim and self.registry.version(change.name) == change.version:
            self._dirty = True  # also if the keeper has only confirmed the interim change
        # A coordinate changes often and is stored with the next other change: a replica on disk may lack it.
        return news and not change.name.startswith(coordinate_entry(""))

    def learn(self, change: Change) -> None:
        """Take over a change that another broker has, unless the replica has a newer one."""
        self._dirty = self._apply(change, in_order=False) or self._dirty

    def keep(self, change: Change) -> None:
        """Take over an interim change, unless the replica has a newer one. It is on disk first: ``OSError`` if not."""
        if self.registry.version(change.name) < change.version:
            self._write([each for each in self.registry.since(0, EVERYTHING) if each.name != change.name] + [change])
            self._apply(change, in_order=False)

    def _save(self) -> None:
        if self._dirty:
            self._dirty = False
            self._write(self.registry.since(0, EVERYTHING))

    def _write(self, changes: list[Change]) -> None:
        interim = any(change.term for change in changes)
        write_private(self._replica, coding.to_json(Replica(changes, self.registry.revision)), sync=interim)

    def _load_replica(self) -> None:
        """Load the registry from disk, in case the hub is unreachable."""
        with contextlib.suppress(OSError, BadInput):
            replica = coding.decode(self._replica.read_bytes(), Replica)
            newest = max((change.revision for change in replica.changes), default=0)
            for change in replica.changes:
                self._apply(change, in_order=False)
            self.registry.revision = newest if replica.revision is None else replica.revision

    def peers(self) -> list[str]:
        """Servers that must know of a new subscription before the old one may end.

        While the hub is away, all brokers count: one that it could not reach at last may be alive.
        """
        return [*self.alive, names.HUB] if self.hub_is_there() else sorted({*self.alive, *self.registry.brokers()})

    def hub_is_there(self) -> bool:
        return time.monotonic() - self._hub_seen < 3 * PERIOD_S

    # Moves and operators.

    async def _ping(self, _: Ping) -> Pong:
        return Pong(self.broker, os.getpid(), {name: host.live for name, host in self.hosting.hosts.items()})

    async def _welcome(self, _: WelcomeClient) -> Done:
        """Prepare for a client that moves here: serve the processors of all topics it may publish to."""
        with contextlib.suppress(Unreachable):
            await self.sync()
        await self.hosting.settle()
        self.hosting.check()
        return Done()

    async def drain(self, request: DrainLinks) -> Done:
        await asyncio.sleep(max(0.0, SETTLE_S - (time.monotonic() - self._started)))
        await self.links.gone(lambda topic, client: self.registry.belongs(topic, client, request.key), request.wait_s)
        return Done()

    async def _probe(self, message: Msg) -> None:
        """Answer a probe of a moving client, at an inbox to which the client listens over its old route.

        The probe arrives after the client's new subscription, because both use the same connection between the
        servers. The answer follows every message that this server sent over the old route before. So when the answers
        of all servers have arrived, no more messages come over the old route, also none of stock clients.
        """
        if (subject := names.inbox(message.data)) is not None:
            await self.connection.publish(subject, self.broker.encode())

    async def _heard_everywhere(self) -> None:
        """Wait until all servers know of this agent's subscriptions."""
        waiting = set(self.peers())
        inbox = self.connection.new_inbox()
        subscription = await self.connection.subscribe(inbox)
        try:
            await self.connection.publish(subjects.PROBE, inbox.encode())
            with contextlib.suppress(Exception):  # a server that has gone need not know
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
                return  # the parent process has ended
            if await self._keep_up():
                with contextlib.suppress(BadInput, Unreachable, nats.errors.Error, TimeoutError):  # tried again
                    await self._sweep()
            else:
                self._save()  # what other brokers have changed
            await self._publish_report()

    async def _sweep(self) -> None:
        # Tombstones are dropped after a sweep of the stored topics only, because it deletes those that have one.
        graves = self.registry.graves()
        if await self.hosting.sweep():
            for name in graves:
                self.registry.bury(name)

    async def _keep_up(self) -> bool:
        """Sync with the hub. Return False if that fails; the agent then uses its replica."""
        try:
            await self.sync()
        except (Unreachable, nats.errors.Error, TimeoutError):
            return False
        except BadInput as error:  # for example, the hub has another protocol version
            if str(error) != self._trouble:
                self._trouble = str(error)
                log.error("the hub refuses to answer: %s", error)
            return False
        self._trouble = ""
        return True

    async def _publish_report(self) -> None:
        """Publish the report of the last second."""
        fresh = self.clients.tally.take_topics()
        for name, host in self.hosting.hosts.items():
            fresh.setdefault(name, TopicReport()).add(host.report())
        for name, (publishers, subscribers) in self.links.counts().items():
            counted = fresh.setdefault(name, TopicReport())
            counted.publishers, counted.subscribers = publishers, subscribers
        self.report = report = await self._telemetry.take(self.broker, fresh)
        self.stock = report.stock_subscriptions or {}
        report.probes = self.probing.counts
        if report.at >= self._listed_at + LINKS_S:
            self._listed_at = report.at
            report.links, report.published = self.links.by_client(), self.clients.tally.take_published()
        else:
            report.stock_subscriptions = None
        if report.at >= self._located_at + LOCATED_S:
            self._located_at = report.at
            self.positions.expire()
            report.positions = self.positions.of(self.links.residents)
            report.summaries = await self._summaries.take(self.alive, self.stock)
        with contextlib.suppress(nats.errors.Error):  # the server is unreachable, or the report is too large
            for part in report.parts():
                data = coding.to_json(part)
                wire.CROSSED["bytes"] += len(data)
                await self.connection.publish(subjects.telemetry(self.broker), data)


async def serve(config: Path) -> None:
    content = read_secret(config, "trimtab up or trimtab broker writes it")
    ca, broker = content.get("ca"), content["broker"]
    stop = asyncio.Event()

    async def closed() -> None:  # nats-py closes for good on some errors of a restarting server
        stop.set()

    options: dict[str, Any] = {"name": f"trimtab:agent:{broker}", "ca": ca, "wait_s": 30.0, "on_closed": closed}
    addresses = [content["urls"], *([url] for url in content["stores"])]
    about = coding.from_plain(content["about"], BrokerEntry)
    opened: list[Nats] = []
    try:
        opened.append(await wire.connect(content["urls"], "fleet", content["fleet"], **options))
        for urls in addresses:
            opened.append(await wire.connect(urls, "system", content["system"], **options))
        connection, *servers = opened
        network = NetworkSettings(**content.get("network", {}))
        agent = Agent(broker, connection, servers, about, config.with_name(REPLICA_FILE), network)
        await agent.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await agent.run(stop)
    finally:
        for each in opened:
            await wire.close(each)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    tasks.run(serve(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
