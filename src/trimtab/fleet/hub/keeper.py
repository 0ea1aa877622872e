"""The keeper, the hub's process: stores the registry in the key-value store, publishes its changes, executes moves.

The keeper is the only writer of the registry. So an agent only needs the changes since its own revision. The keeper
publishes changes as they happen, and agents also ask for them once a second in case one was lost. An agent that cannot
reach the hub uses its replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import nats.errors
from nats.js.api import RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BucketNotFoundError, KeyNotFoundError, KeyWrongLastSequenceError, NoKeysError, NotFoundError

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.hub.absent import Absent
from trimtab.fleet.hub.channels import Channels, make_stream
from trimtab.fleet.hub.creation import TopicCreation
from trimtab.fleet.hub.first_brokers import FirstBrokers
from trimtab.fleet.hub.hosts import Hosts
from trimtab.fleet.hub.interim import InterimChanges
from trimtab.fleet.hub.leaves import connected_brokers
from trimtab.fleet.hub.mover import Mover
from trimtab.fleet.hub.operators import Operators
from trimtab.fleet.hub.presence import TICK_S, Presence
from trimtab.fleet.hub.settings import HubSettings
from trimtab.fleet.protocol import coding, names, subjects, wire
from trimtab.fleet.protocol.entries import Change, ClientEntry, read_entry, write_entry
from trimtab.fleet.protocol.hosting import RULES, HostingRules
from trimtab.fleet.protocol.hub_verbs import Home, News, Register, Sync
from trimtab.fleet.protocol.registry import (
    Registry,
    broker_entry,
    check_target,
    client_entry,
    entry_name,
    open_brokers,
)
from trimtab.fleet.protocol.streams import CONTROL, DECISIONS, MOVES, POSITIONS, REGISTRY, SNAPSHOT, TELEMETRY
from trimtab.fleet.protocol.subjects import ANY, EVERY
from trimtab.fleet.site.credentials import Fleet
from trimtab.model.key import Key
from trimtab.observe.report import BrokerReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nats.aio.client import Client as Nats
    from nats.js.kv import KeyValue

    from trimtab.fleet.protocol.entries import Entry

log = logging.getLogger("trimtab.keeper")
DAY_S: Final = 86_400.0
ATTEMPTS: Final = 20  # to load the state of the fleet
ATTEMPT_S: Final = 0.25
FORGET_EACH_S: Final = 60.0  # longest interval of the removal of absent clients


def streams() -> list[StreamConfig]:
    """The streams of the fleet itself; ``Channels`` makes those of channels."""
    return [
        StreamConfig(
            name=TELEMETRY, subjects=[subjects.telemetry(EVERY)], retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE, max_age=DAY_S, max_bytes=1 << 30, duplicate_window=2, allow_direct=True,
        ),
        StreamConfig(
            name=SNAPSHOT, subjects=[subjects.snapshot(EVERY)], storage=StorageType.FILE, max_msgs_per_subject=1,
            max_bytes=1 << 28, duplicate_window=2, allow_direct=True,
        ),
        StreamConfig(
            name=DECISIONS, subjects=[subjects.decision(EVERY)], storage=StorageType.FILE, max_age=30 * DAY_S,
            max_bytes=1 << 30, duplicate_window=2, allow_direct=True,
        ),
    ]  # fmt: skip


class Keeper:
    """Answers requests to ``ask.hub.*`` from agents and clients, and to ``admin.*`` from operators."""

    def __init__(
        self, connection: Nats, executors: int = 16, settings: HubSettings | None = None, system: Nats | None = None
    ) -> None:
        self.connection = connection
        self._system = system  # connection for asking the hub's server which brokers are connected
        self.registry = Registry()
        self.presence = Presence(time.monotonic())
        self.runs: dict[str, str] = {}  # broker -> the run of its agent that synced last
        self._synced: dict[str, int] = {}  # broker -> revision up to which its agent has all changes of the registry
        self._reports: dict[str, BrokerReport] = {}  # broker -> its newest report
        self.mover = Mover(self, executors)
        self._interim = InterimChanges(self)
        self.channels = Channels(connection, self.registry, self.write)
        self._creation = TopicCreation(self)
        self._operators = Operators(self)
        self._settings = settings or HubSettings()
        self._absent = Absent(self._settings)
        self._first = FirstBrokers(self.registry, self._settings.first)
        self.hosts = Hosts(self.registry)
        self._store: KeyValue
        self._control: KeyValue | None = None  # of the controller
        self._writing = asyncio.Lock()
        self._doubtful: dict[str, Entry | None] = {}  # entries of writes that got no reply, by name

    async def start(self) -> None:
        """Load the state of the fleet, then answer requests. Raises if the state cannot be loaded."""
        for attempt in range(1, ATTEMPTS + 1):  # JetStream may take a moment after the server answers
            try:
                await self._load()
                break
            except (NotFoundError, TimeoutError) as error:
                if attempt == ATTEMPTS:  # the supervisor starts this process again
                    raise
                log.warning("attempt %d: %r", attempt, error)
                await asyncio.sleep(ATTEMPT_S)
        await self._serve()
        self.mover.resume()
        log.info("serving %d topics", len(self.registry.topics()))

    async def _load(self) -> None:
        """Load the state of the fleet from the hub's streams and buckets; may be repeated."""
        jetstream = self.connection.jetstream()
        self._store = await self._bucket(REGISTRY)
        moves = await self._bucket(MOVES)
        for config in streams():
            await make_stream(jetstream, config)
        self._control = await self._bucket(CONTROL)
        for name in await self.keys(self._store):
            await self._load_entry(name)
        await self.channels.start(await self._bucket(POSITIONS))
        await self.mover.load(moves)  # before agents ask which topics are in a move

    async def _serve(self) -> None:
        """Subscribe to requests and reports. Not repeated: every request would be carried out twice."""
        own = [Sync.answered_by(self._sync), Register.answered_by(self._register)]
        parts = (self._creation, self._operators, self.channels)
        await wire.serve(self.connection, [*own, *(handler for part in parts for handler in part.handlers())])
        await self.connection.subscribe(subjects.PROBE, cb=self._probe)
        await self.connection.subscribe(subjects.telemetry(ANY), cb=self._report)
        await wire.confirmed(self.connection)

    async def _bucket(self, name: str) -> KeyValue:
        jetstream = self.connection.jetstream()
        try:
            return await jetstream.key_value(name)
        except BucketNotFoundError:
            return await jetstream.create_key_value(bucket=name, history=1, storage=StorageType.FILE)

    @staticmethod
    async def keys(bucket: KeyValue) -> list[str]:
        try:
            return await bucket.keys()
        except NoKeysError:
            return []

    async def _load_entry(self, name: str) -> None:
        """Load an entry from the store."""
        stored = await self._store.get(name)
        self.registry.apply(name, read_entry(name, stored.value or b"null"), stored.revision or 0)

    async def write(self, name: str, entry: Entry | Callable[[Any], Entry | None] | None) -> None:
        """Change an entry of the registry, then publish the change.

        If ``entry`` is a function, it is called with the current entry, under the lock, and returns the new one.
        """
        async with self._writing:
            try:
                written, revision = await self._put(name, entry)
            except KeyWrongLastSequenceError:
                written, revision = await self._put_again(name, entry)
            self._doubtful.pop(name, None)
            self.registry.apply(name, written, revision)
        await self.connection.publish(subjects.change(name), coding.encode(Change.of(name, written, revision)))

    async def _put(self, name: str, change: Entry | Callable[[Any], Entry | None] | None) -> tuple[Entry | None, int]:
        """Store an entry. Returns it with its revision."""
        entry = change(self.registry.get(name)) if callable(change) else change
        try:
            return entry, await self._store.update(name, write_entry(entry), last=self.registry.at(name) or None)
        except KeyWrongLastSequenceError:
            raise
        except (nats.errors.Error, TimeoutError):
            self._doubtful[name] = entry
            with contextlib.suppress(nats.errors.Error, TimeoutError):
                await self._load_entry(name)
            raise Unreachable("the registry cannot be written just now", changed=True) from None

    async def _put_again(
        self, name: str, change: Entry | Callable[[Any], Entry | None] | None
    ) -> tuple[Entry | None, int]:
        """Store an entry that the store has with another revision than the replica. That is in order if this keeper
        wrote it and got no reply."""
        ours = False
        try:
            await self._load_entry(name)
            ours = name in self._doubtful and self.registry.get(name) == self._doubtful[name]
        except KeyNotFoundError:  # a tombstone that was purged without a reply
            ours = self.registry.get(name) is None
            self.registry.bury(name)
        except (nats.errors.Error, TimeoutError):
            raise Unreachable("the registry cannot be read just now") from None
        if ours:
            with contextlib.suppress(KeyWrongLastSequenceError):
                return await self._put(name, change)
        raise BadInput(f"'{name}' was changed by another process; is a second keeper running?")

    def alive(self) -> list[str]:
        return self.presence.alive(self.registry.brokers())

    def reports(self) -> dict[str, BrokerReport]:
        """The newest report of each broker that is alive. The clients of a dead broker are reported by others now."""
        alive = set(self.alive())
        self._reports = {broker: report for broker, report in self._reports.items() if broker in alive}
        return self._reports

    def check_target(self, broker: str) -> str:
        """``broker``, if keys may be placed there."""
        return check_target(broker, self.registry.brokers(), self.alive(), self.registry.cordons())

    async def _sync(self, request: Sync) -> News:
        broker = names.broker_name(request.broker)
        if request.about is not None and self.registry.broker(broker) != request.about:
            await self.write(broker_entry(broker), request.about)
        self.presence.called(broker)
        self.runs[broker] = request.run
        self._synced[broker] = request.revision
        await self._interim.take_over(broker, request.interim)
        news = self.registry.since(request.revision)
        return News(news, self.registry.revision, self.alive(), self.mover.topics())

    async def _register(self, request: Register) -> Home:
        """Register a client; a known client keeps its home."""
        client = names.client_name(request.client)
        registered = self.registry.client(client)
        home = registered.home if registered else self._first_home(request)

        def updated(entry: ClientEntry | None) -> ClientEntry:
            if entry is None:
                return ClientEntry(home, request.position, request.returns is not False)
            returns = entry.returns if request.returns is None else request.returns
            return ClientEntry(entry.home, request.position or entry.position, returns)  # the home may have changed

        if updated(registered) != registered:
            await self.write(client_entry(client), updated)
        return Home(updated(self.registry.client(client)).home)

    def _first_home(self, request: Register) -> str:
        """A new client's home: the one it asks for unless that is cordoned, else by the rule of first placements, else
        its current broker."""
        if request.wished and request.home not in self.registry.cordons():
            return request.home
        return self.first_broker(request.position) or request.home

    def first_broker(self, position: tuple[float, float] | None, brokers: Sequence[str] | None = None) -> str:
        """A broker for a new client or topic, among all or ``brokers``; empty if none is alive."""
        return self._first.choose(time.monotonic(), self.open_brokers() if brokers is None else brokers, position) or ""

    async def hosting_rules(self) -> HostingRules:
        """Those of the controller that led last; the defaults if there was none, or if the hub's storage is away."""
        if self._control is None:
            return HostingRules()
        with contextlib.suppress(nats.errors.Error, TimeoutError, NotFoundError, BadInput):
            return coding.decode((await self._control.get(RULES)).value or b"{}", HostingRules)
        return HostingRules()

    def open_brokers(self, besides: str = "") -> list[str]:
        """Brokers at which keys may be placed, without ``besides``."""
        return open_brokers([name for name in self.alive() if name != besides], self.registry.cordons())

    async def _probe(self, message: Any) -> None:
        """Answer the probe of a moving client, as agents do: see ``Agent._probe``."""
        if (subject := names.inbox(message.data)) is not None:
            await self.connection.publish(subject, names.HUB.encode())

    async def _report(self, message: Any) -> None:
        with contextlib.suppress(BadInput):
            broker, report = subjects.telemetry_broker(message.subject), coding.decode(message.data, BrokerReport)
            if broker is None:
                return
            newest = self._reports.get(broker)
            if newest is not None and newest.at == report.at:  # a further part of the same report
                newest.topics |= report.topics
                newest.summaries = (newest.summaries or {}) | (report.summaries or {})
            else:  # summaries come every few seconds, and count until the next ones
                known = report.summaries if report.summaries is not None or newest is None else newest.summaries
                self._reports[broker] = msgspec.structs.replace(
                    report, links=None, published=None, positions=None, summaries=known
                )
                self._first.reported(report)
            self.hosts.reported(time.monotonic(), report)
            self._absent.there(report.links or (), time.monotonic())

    async def listen(self) -> None:
        """Check in a loop whether the keeper can receive messages and which brokers are connected."""
        while True:
            hears = True
            try:
                await wire.ping(self.connection, 1.0)
            except (nats.errors.Error, TimeoutError, OSError):
                hears = False
            connected = await connected_brokers(self._system) if hears and self._system is not None else None
            self.presence.tick(time.monotonic(), hears=hears, connected=connected)
            await asyncio.sleep(TICK_S)

    # Forgetting.

    async def forget_the_absent(self) -> None:
        """Remove clients that have been absent too long from the registry, in a loop."""
        while True:
            await asyncio.sleep(min(self._settings.forget_unnamed_s / 2, FORGET_EACH_S))
            for client in self._absent.overdue(self.registry.clients(), self.alive(), time.monotonic()):
                if not self.mover.moving(Key("client", "", client)):
                    # A removal that fails is tried again in the next round.
                    with contextlib.suppress(BadInput, Unreachable, nats.errors.Error, TimeoutError):
                        await self._remove_client(client)
                        log.info("client %s was away for long, and is forgotten", client)
            await self._drop_tombstones()

    async def _drop_tombstones(self) -> None:
        brokers = self.registry.brokers()
        known = min((self._synced.get(broker, 0) for broker in brokers), default=0)
        for name in self.registry.graves(known):
            async with self._writing:  # the entry may come back meanwhile
                if self.registry.get(name) is None:
                    with contextlib.suppress(nats.errors.Error, TimeoutError):
                        stream, subject = subjects.bucket_stream(REGISTRY), subjects.bucket_entry(REGISTRY, name)
                        await self.connection.jetstream().purge_stream(stream, subject=subject)
                        self.registry.bury(name)

    async def _remove_client(self, client: str) -> None:
        """Remove a client. The placed links of a named client stay, because it may return under its name."""
        await self.channels.leave(client)
        entry = self.registry.client(client)
        if entry is not None and not entry.returns:
            await self.remove_links(self.registry.links_of(client=client))
        await self.write(client_entry(client), None)

    async def remove_links(self, links: Iterable[Key]) -> None:
        for key in links:
            await self.write(entry_name(key), None)


async def serve(home: Path, executors: int, settings: HubSettings) -> None:
    fleet = Fleet.load(home / "fleet.json")
    stop = asyncio.Event()

    async def closed() -> None:
        stop.set()

    options: dict[str, Any] = {
        "name": "trimtab:keeper", "ca": fleet.tls.ca if fleet.tls else None, "wait_s": 30.0, "on_closed": closed,
    }  # fmt: skip
    opened: list[Nats] = []
    try:
        for user, password in (("fleet", fleet.fleet), ("system", fleet.system)):
            opened.append(await wire.connect([fleet.hub], user, password, **options))
        connection, system = opened
        keeper = Keeper(connection, executors, settings, system)
        await keeper.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        try:  # a loop that fails ends the keeper, and the supervisor starts it again
            await tasks.run_until(stop, keeper.listen(), keeper.forget_the_absent())
        finally:
            await keeper.mover.stop()
    finally:
        for each in opened:
            await wire.close(each)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    home, executors, settings = sys.argv[1:]
    tasks.run(serve(Path(home), int(executors), coding.decode(settings.encode(), HubSettings)))


if __name__ == "__main__":
    main()
