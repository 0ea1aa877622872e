"""The hub's own process: keeps the registry in the key-value store, tells everybody of changes, executes moves.

It is the only writer of the registry, so an agent needs no more than the changes since the revision it has:
pushed as they happen, and asked for once a second in case one got lost. An agent that cannot reach the hub
serves from its replica.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats.errors
from nats.js.api import RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import BucketNotFoundError, KeyWrongLastSequenceError, NoKeysError, NotFoundError

from trimtab.errors import BadInput, UnknownName, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.hub.absent import Absent, Patience
from trimtab.fleet.hub.channels import Channels, make_stream
from trimtab.fleet.hub.mover import Mover
from trimtab.fleet.hub.presence import TICK_S, Presence
from trimtab.fleet.protocol import names, wire
from trimtab.fleet.protocol.registry import UNITS, Registry, Topic
from trimtab.fleet.protocol.streams import CONTROL, DECISIONS, SNAPSHOT, TELEMETRY
from trimtab.fleet.site.credentials import Fleet

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client as Nats
    from nats.js.kv import KeyValue

    from trimtab.migrate.move import Move

log = logging.getLogger("trimtab.keeper")
DAY_S: Final = 86_400.0
FORGET_EACH_S: Final = 60.0  # at the most
PLACE_S: Final = 0.5  # that a newcomer waits for a controller to choose its home
KINDS: Final = ("topic", "client", "broker", "link", "channel")  # of what the registry holds


def streams() -> list[StreamConfig]:
    """Those of the fleet itself; channels have their own."""
    return [
        StreamConfig(
            name=TELEMETRY, subjects=["telemetry.>"], retention=RetentionPolicy.LIMITS, storage=StorageType.FILE,
            max_age=DAY_S, max_bytes=1 << 30, duplicate_window=2, allow_direct=True,
        ),
        StreamConfig(
            name=SNAPSHOT, subjects=["snapshot.>"], storage=StorageType.FILE, max_msgs_per_subject=1,
            max_bytes=1 << 28, duplicate_window=2, allow_direct=True,
        ),
        StreamConfig(
            name=DECISIONS, subjects=["decision.>"], storage=StorageType.FILE, max_age=30 * DAY_S, max_bytes=1 << 30,
            duplicate_window=2, allow_direct=True,
        ),
    ]  # fmt: skip


class Keeper:
    """Answers ``ask.hub.*`` for agents and clients, ``admin.*`` for operators."""

    def __init__(self, connection: Nats, executors: int = 16, patience: Patience | None = None) -> None:
        self.connection = connection
        self.registry = Registry()
        self.presence = Presence(time.monotonic())
        self.runs: dict[str, str] = {}  # broker -> which run of its agent asked last
        self.reports: dict[str, dict[str, Any]] = {}  # broker -> its newest report
        self.mover = Mover(self, executors)
        self.channels = Channels(connection, self.registry, self.write)
        self._patience = patience or Patience()
        self._absent = Absent(self._patience)
        self._store: KeyValue
        self._writing = asyncio.Lock()
        self._creating = asyncio.Lock()

    async def start(self) -> None:
        jetstream = self.connection.jetstream()
        self._store = await self._bucket("registry")
        moves = await self._bucket("moves")
        for config in streams():
            await make_stream(jetstream, config)
        await self._bucket(CONTROL)
        for key in await self._keys(self._store):
            entry = await self._store.get(key)
            self.registry.apply(key, json.loads(entry.value or b"null"), entry.revision or 0)
        await self.channels.start(await self._bucket("positions"))
        await self.mover.load(moves)  # before anybody is told which topics are in a move
        answers = {
            "ask.hub.sync": self._sync,
            "ask.hub.create": self._create,
            "ask.hub.delete": self._delete,
            "ask.hub.register": self._register,
            "admin.state": self._state,
            "admin.link": self._link,
            "admin.move": self._move,
            "admin.drain": self._drain,
            "admin.forget": self._forget,
            "admin.moves": self._moves,
            **self.channels.answers(),
        }
        for subject, handle in answers.items():
            await self.connection.subscribe(subject, cb=wire.answering(handle))
        await self.connection.subscribe("ask.all.probe", cb=self._probe)
        await self.connection.subscribe("telemetry.*", cb=self._report)
        await self.connection.flush()
        self.mover.resume()
        log.info("serving %d entries", len(self.registry.of_kind("topic")))

    async def _bucket(self, name: str) -> KeyValue:
        jetstream = self.connection.jetstream()
        try:
            return await jetstream.key_value(name)
        except BucketNotFoundError:
            return await jetstream.create_key_value(bucket=name, history=1, storage=StorageType.FILE)

    @staticmethod
    async def _keys(bucket: KeyValue) -> list[str]:
        try:
            return await bucket.keys()
        except NoKeysError:
            return []

    async def write(
        self, key: str, value: dict[str, Any] | Callable[[dict[str, Any] | None], dict[str, Any] | None] | None
    ) -> int:
        """Change the registry, then tell everybody. ``value`` may be made from what is there when its turn has come."""
        async with self._writing:
            last = self.registry.at(key)
            if callable(value):
                value = value(self.registry.get(key))
            payload = json.dumps(value).encode()
            try:
                revision = await self._store.update(key, payload, last=last or None)
            except KeyWrongLastSequenceError:
                raise BadInput(f"'{key}' was changed by somebody else; is a second keeper running?") from None
            except (nats.errors.Error, TimeoutError):  # written or not? Look, so that the next write is right
                with contextlib.suppress(nats.errors.Error, TimeoutError):
                    entry = await self._store.get(key)
                    self.registry.apply(key, json.loads(entry.value or b"null"), entry.revision or 0)
                raise Unreachable("the registry cannot be written just now") from None
            self.registry.apply(key, value, revision)
        await self.connection.publish(
            f"route.{key}", json.dumps({"key": key, "value": value, "revision": revision}).encode()
        )
        return revision

    def alive(self) -> list[str]:
        return self.presence.alive(self.registry.brokers())

    def check_broker(self, name: str) -> str:
        known = self.registry.brokers()
        if name not in known:
            raise UnknownName("broker", name, sorted(known))
        if name not in self.alive():
            raise Unreachable(f"broker '{name}' does not answer; alive: {', '.join(self.alive()) or 'none'}")
        return name

    async def _sync(self, question: dict[str, Any]) -> dict[str, Any]:
        """An agent has ``revision``: what is news? ``about`` is what it says of itself."""
        broker = names.broker_name(question["broker"])
        about = question.get("about")
        if about is not None and self.registry.get(f"broker.{broker}") != about:
            await self.write(f"broker.{broker}", about)
        self.presence.called(broker)
        self.runs[broker] = str(question.get("run", ""))
        news = self.registry.since(int(question["revision"]))
        return {
            "changes": news,
            "revision": self.registry.revision,
            "alive": self.alive(),
            "moving": self.mover.topics(),
        }

    async def _create(self, question: dict[str, Any]) -> dict[str, Any]:
        """A topic; the same again is fine, another of the same name is not."""
        async with self._creating:
            return await self._create_one(question)

    async def _create_one(self, question: dict[str, Any]) -> dict[str, Any]:
        name = names.topic_name(question.pop("name"))
        chosen = question.get("broker") or next(iter(self.alive()), "")
        if not chosen:
            raise Unreachable("no broker is alive to host the topic")
        topic = Topic(name, **(question | {"broker": chosen}))
        existing = self.registry.get(f"topic.{name}")
        if existing is not None:
            known = Topic(name, **existing)
            if known.settings() != topic.settings() or question.get("broker") not in (None, "", known.broker):
                raise BadInput(
                    f"topic '{name}' exists with other settings: {_settings(known)}; asked: {_settings(topic)}"
                )
            return {"broker": known.broker, "revision": self.registry.at(f"topic.{name}"), "created": False}
        self.check_broker(chosen)
        record = topic.settings() | {"broker": chosen}
        del record["name"]
        if topic.processor or topic.persistent:  # the host refuses what it cannot serve, before anybody sees it
            hosts = [chosen] if topic.unit == "topic" else self.alive()
            await self._host(topic, record, hosts)
        revision = await self.write(f"topic.{name}", record)
        return {"broker": chosen, "revision": revision, "created": True}

    async def _host(self, topic: Topic, record: dict[str, Any], hosts: list[str]) -> None:
        """All of them, or none."""
        order = {"topic": topic.name, "record": record}
        asked = (wire.ask(self.connection, f"ask.{broker}.host", order, 30.0) for broker in hosts)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        if problem := next((each for each in answers if isinstance(each, BaseException)), None):
            undone = (wire.ask(self.connection, f"ask.{b}.retire", {"topic": topic.name}, 5.0) for b in hosts)
            await asyncio.gather(*undone, return_exceptions=True)
            raise problem

    async def _delete(self, question: dict[str, Any]) -> dict[str, Any]:
        topic = self.registry.topic(question["name"])
        if self.mover.moving("topic", topic.name, ""):
            raise BadInput(f"topic '{topic.name}' is moving; delete it when the move is over")
        await self.write(f"topic.{topic.name}", None)
        with contextlib.suppress(BadInput):  # a broker that is away finds out by the registry
            await wire.ask(self.connection, f"ask.{topic.broker}.retire", {"topic": topic.name})
        return {}

    async def _register(self, question: dict[str, Any]) -> dict[str, Any]:
        """A client has come; it keeps the home it has."""
        client = names.client_name(question["client"])
        known = self.registry.get(f"client.{client}")
        home = known["home"] if known else await self._first_home(question)
        position = question.get("position")
        if position is not None:
            position = [float(position[0]), float(position[1])]
        returns = question.get("returns")

        def said(now: dict[str, Any] | None) -> dict[str, Any]:
            return {
                "home": now["home"] if now else home,  # it may have moved meanwhile
                "position": position or (now or {}).get("position"),
                "returns": returns if returns is not None else (now or {}).get("returns", True),
            }

        if said(known) != known:
            await self.write(f"client.{client}", said)
        return {"home": said(self.registry.get(f"client.{client}"))["home"]}

    async def _first_home(self, question: dict[str, Any]) -> str:
        """The one it wishes for; or what a controller says, if there is one; or the broker that it came to."""
        came_to = str(question["home"])
        if not question.get("wished"):
            with contextlib.suppress(BadInput):
                said = await wire.ask(self.connection, "admin.place", {"home": came_to}, PLACE_S)
                if said["home"] in self.alive():
                    return str(said["home"])
        return came_to

    async def _link(self, question: dict[str, Any]) -> dict[str, Any]:
        """Links of topics placed by link: ``broker`` empty means refused."""
        for link in question["links"]:
            topic = self.registry.topic(link["topic"])
            if topic.unit != "link":
                raise BadInput(f"topic '{topic.name}' is placed by {topic.unit}; only a topic of unit 'link' has links")
            names.client_name(link["client"])
            if link["broker"]:
                self.check_broker(link["broker"])
        for link in question["links"]:
            await self.write(f"link.{link['client']}.{link['topic']}", {"broker": link["broker"]})
        return {"links": len(question["links"])}

    async def _move(self, question: dict[str, Any]) -> dict[str, Any]:
        """Start moves; ``moves`` is a list of unit, topic, client, to. All are checked before any begins."""
        planned: list[Move] = []
        try:
            for asked in question["moves"]:
                unit, target = asked["unit"], self.check_broker(asked["to"])
                if unit not in UNITS:
                    raise UnknownName("unit", unit, UNITS)
                planned.append(self.mover.plan(unit, asked.get("topic", ""), asked.get("client", ""), target))
        except BaseException:
            self.mover.forget(planned)
            raise
        return {"moves": await self._start(planned)}

    async def _start(self, planned: list[Move]) -> list[str]:
        """One after the other; those that cannot be begun are not under way."""
        begun: list[str] = []
        try:
            for move in planned:
                begun.append(await self.mover.start(move))
        except BaseException:
            self.mover.forget(planned[len(begun) :])
            raise
        return begun

    async def _drain(self, question: dict[str, Any]) -> dict[str, Any]:
        """Everything off a broker."""
        leaving = question["broker"]
        if leaving not in self.registry.brokers():
            raise UnknownName("broker", leaving, sorted(self.registry.brokers()))
        planned = self.mover.plan_drain(leaving, self.alive())
        return {"moves": await self._start(planned)}

    async def _forget(self, question: dict[str, Any]) -> dict[str, Any]:
        """A broker that was removed for good; nothing may be left there."""
        broker = question["broker"]
        if broker not in self.registry.brokers():
            raise UnknownName("broker", broker, sorted(self.registry.brokers()))
        self.presence.forget(broker)
        await self.write(f"broker.{broker}", None)
        return {}

    async def _moves(self, question: dict[str, Any]) -> dict[str, Any]:
        ids = question.get("ids")
        records = self.mover.records(ids) if ids else self.mover.newest(int(question.get("most", 100)))
        return {"moves": records, "under_way": self.mover.under_way}

    async def _state(self, question: dict[str, Any]) -> dict[str, Any]:
        kind = question["kind"]
        if kind not in KINDS:
            raise UnknownName("kind", kind, KINDS)
        state: dict[str, Any] = {"entries": self.registry.of_kind(kind), "alive": self.alive()}
        state["heard"] = self.presence.heard()  # of those, who has called since this keeper began
        if question.get("reports"):
            state["reports"] = self.reports
        return state

    async def _probe(self, message: Any) -> None:
        """A client moves and must know that news of its subscription has come here: see ``agent.probe``."""
        if (subject := names.inbox(message.data)) is not None:
            await self.connection.publish(subject, names.HUB.encode())

    async def _report(self, message: Any) -> None:
        with contextlib.suppress(ValueError, KeyError):
            broker, report = message.subject.split(".", 1)[1], json.loads(message.data)
            known = self.reports.get(broker)
            if known is not None and known["at"] == report["at"]:  # a further part of it
                known["topics"] |= report["topics"]
            else:
                self.reports[broker] = report
            self._absent.there(report.get("links") or (), time.monotonic())

    async def listen(self) -> None:
        """For as long as the keeper runs: whether it can hear anybody."""
        while True:
            hears = True
            try:
                await self.connection.flush(timeout=1)
            except (nats.errors.Error, TimeoutError, OSError):
                hears = False
            self.presence.tick(time.monotonic(), hears=hears)
            await asyncio.sleep(TICK_S)

    # Forgetting.

    async def forget_the_absent(self) -> None:
        """For as long as the keeper runs."""
        while True:
            await asyncio.sleep(min(self._patience.forget_unnamed_s / 2, FORGET_EACH_S))
            clients = self.registry.of_kind("client")
            for client in self._absent.overdue(clients, self.alive(), time.monotonic()):
                if not self.mover.moving("client", "", client):
                    with contextlib.suppress(BadInput, nats.errors.Error, TimeoutError):  # then the next time
                        await self.channels.leave(client)
                        await self.write(f"client.{client}", None)
                        log.info("client %s was away for long, and is forgotten", client)
            for key in self.registry.bury():
                with contextlib.suppress(nats.errors.Error, TimeoutError):
                    await self.connection.jetstream().purge_stream("KV_registry", subject=f"$KV.registry.{key}")


def _settings(topic: Topic) -> str:
    plain = Topic(topic.name, "").settings()
    told = [f"{name}={value}" for name, value in topic.settings().items() if value != plain[name]]
    return ", ".join(told) or "the defaults"


async def serve(home: Path, executors: int, patience: Patience) -> None:
    fleet = Fleet.load(home / "fleet.json")
    stop = asyncio.Event()

    async def closed() -> None:
        stop.set()

    connection = await wire.connect(
        [fleet.hub], "fleet", fleet.fleet, name="trimtab:keeper", ca=fleet.tls.ca if fleet.tls else None, wait_s=30.0,
        on_closed=closed,
    )  # fmt: skip
    keeper = Keeper(connection, executors, patience)
    for attempt in range(20):  # JetStream may take a moment after the server answers
        try:
            await keeper.start()
            break
        except (NotFoundError, TimeoutError) as error:
            log.warning("attempt %d: %s", attempt, error)
            await asyncio.sleep(0.25)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:  # a loop that fails ends the keeper, and the supervisor starts it again
        await tasks.run_until(stop, keeper.listen(), keeper.forget_the_absent())
    finally:
        await keeper.mover.stop()
    await connection.close()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    home, executors, forget_s, forget_unnamed_s = sys.argv[1:]
    tasks.run(serve(Path(home), int(executors), Patience(float(forget_s), float(forget_unnamed_s))))


if __name__ == "__main__":
    main()
