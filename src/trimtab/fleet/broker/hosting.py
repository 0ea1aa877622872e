"""The topics that a broker hosts, their processors and stores: how they come, go, and are handed over.

The orders of a move (``prepare``, ``release``, ``take``, ``activate``, ``retire``, ``resume``) may each be given
twice. What a move leaves behind when somebody dies in the middle is put right by ``sweep``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import BadInput
from trimtab.fleet.broker.host import Host
from trimtab.fleet.broker.store import Store
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.registry import Topic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from nats.aio.client import Client as Nats

    from trimtab.fleet.protocol.registry import Registry

    Handler = Callable[[dict[str, Any]], Coroutine[Any, Any, dict[str, Any]]]

log = logging.getLogger("trimtab.agent")
CHUNK: Final = 400_000  # of a handover, in characters of JSON
ORDERED_S: Final = 15.0  # a topic about which a move has given an order is left alone for so long
SWEEP_S: Final = 5.0  # between looks at what is stored


class Hosting:
    """What is hosted at ``broker``; the agent keeps ``registry`` and ``moving`` up to date."""

    def __init__(
        self, broker: str, connection: Nats, registry: Registry, heard_everywhere: Callable[[], Awaitable[None]]
    ) -> None:
        self.hosts: dict[str, Host] = {}
        self.store = Store(connection)
        self.moving: set[str] = set()  # topics that are in a move, as the hub last said
        self._broker = broker
        self._connection = connection
        self._registry = registry
        self._heard_everywhere = heard_everywhere  # until all servers know of what was subscribed to here
        self._parts: dict[str, list[str]] = {}  # move -> pieces of a handover that have come
        self._prepared: dict[str, str] = {}  # topic -> the move that it is being copied here for
        self._ordered: dict[str, float] = {}  # topic -> when a move gave the last order about it here
        self._swept = -1e9
        self._changing = asyncio.Lock()

    def orders(self) -> dict[str, Handler]:
        """What a move or the keeper may order."""
        orders = {
            "host": self.host, "prepare": self.prepare, "release": self.release, "take": self.take,
            "closed": self.closed, "activate": self.activate, "retire": self.retire, "resume": self.resume,
        }  # fmt: skip
        return {verb: self._noting(handle) for verb, handle in orders.items()}

    def _noting(self, handle: Handler) -> Handler:
        async def noted(question: dict[str, Any]) -> dict[str, Any]:
            self._ordered[question["topic"]] = time.monotonic()
            return await handle(question)

        return noted

    async def stop(self) -> None:
        for host in self.hosts.values():
            await host.stop()

    async def settle(self) -> None:
        """Serve the processors that should be here. Those in a move are left to the move."""
        async with self._changing:
            for topic in self._registry.topics():
                if topic.processor and (topic.broker == self._broker or topic.unit != "topic"):
                    try:
                        await self._serve(topic, live=True)
                    except BadInput as error:
                        log.error("topic %s: %s", topic.name, error)
            known = {topic.name for topic in self._registry.topics()}
            for name in [name for name in self.hosts if name not in known and self.hosts[name].live]:
                if self._registry.at(f"topic.{name}"):  # deleted, not merely unheard of yet
                    await self.hosts.pop(name).stop()

    async def _serve(self, topic: Topic, *, live: bool) -> None:
        known = self.hosts.get(topic.name)
        if known is not None and known.topic.settings() != topic.settings():  # deleted, and created anew
            await self.hosts.pop(topic.name).stop()
            known = None
        if known is None:
            host = Host(self._connection, self._broker, topic)
            await host.start(live=live)
            self.hosts[topic.name] = host

    def check(self) -> None:
        """Whether all is served here that every broker must serve."""
        for topic in self._registry.topics():
            if topic.processor and topic.unit != "topic" and topic.name not in self.hosts:
                raise BadInput(
                    f"'{self._broker}' cannot run '{topic.processor}', the processor of topic '{topic.name}'"
                )

    async def sweep(self) -> None:
        """Put right what a move left behind when somebody died in the middle: the registry has the last word."""
        for name, host in list(self.hosts.items()):
            record = self._registry.get(f"topic.{name}")
            if record is None or record["unit"] != "topic" or self._in_move(name):
                continue
            if record["broker"] == self._broker:
                await host.resume()
            else:
                log.info("topic %s is at %s now", name, record["broker"])
                await self.hosts.pop(name).stop()
        if time.monotonic() - self._swept > SWEEP_S:
            self._swept = time.monotonic()
            for name in await self.store.topics(self._broker):
                record = self._registry.get(f"topic.{name}")
                if self._in_move(name) or not self._registry.at(f"topic.{name}"):
                    continue
                if record is None or record["broker"] != self._broker:
                    log.info("the stored messages of topic %s are %s", name, record["broker"] if record else "deleted")
                    await self.store.delete(name, self._broker)
                elif not await self.store.is_open(name, self._broker):
                    await self.store.open(name, self._broker)

    def _in_move(self, topic: str) -> bool:
        """What the hub last said may be old; an order of a move is news."""
        return topic in self.moving or time.monotonic() - self._ordered.get(topic, -1e9) < ORDERED_S

    async def host(self, question: dict[str, Any]) -> dict[str, Any]:
        """A new topic: refuse what cannot be served."""
        topic = Topic(question["topic"], **question["record"])
        async with self._changing:
            if topic.persistent:
                await self.store.create(topic.name, self._broker, topic.replicas)
            if topic.processor:
                try:
                    await self._serve(topic, live=True)
                except BadInput:
                    if topic.persistent:
                        await self.store.delete(topic.name, self._broker)
                    raise
        return {}

    async def prepare(self, question: dict[str, Any]) -> dict[str, Any]:
        topic = Topic(question["topic"], **question["record"])
        async with self._changing:
            if topic.processor:
                await self._serve(topic, live=False)
        if topic.persistent:
            self._prepared[topic.name] = question["id"]
            await self.store.copy(topic.name, question["source"], self._broker, topic.replicas)
        if topic.processor:
            await self._heard_everywhere()
        return {}

    async def release(self, question: dict[str, Any]) -> dict[str, Any]:
        """Stop serving the topic and give its state to the target."""
        name, target = question["topic"], question["target"]
        host = self.hosts.get(name)
        topic = self._registry.topic(name)
        if host is not None:
            state = json.dumps(await host.release())
            parts = [state[at : at + CHUNK] for at in range(0, len(state), CHUNK)] or [""]
            for number, part in enumerate(parts):
                piece = {"topic": name, "move": question["id"], "part": number, "of": len(parts), "state": part}
                await wire.ask(self._connection, f"ask.{target}.take", piece, 5.0)
        if not topic.persistent:
            return {}
        closed = await self.store.close(name, self._broker)
        ahead = {"id": question["id"], "topic": name, "closed": closed}
        await self._connection.publish(f"ask.{target}.closed", json.dumps(ahead).encode())
        return closed

    async def take(self, question: dict[str, Any]) -> dict[str, Any]:
        parts = self._parts.setdefault(question["move"], [])
        if question["part"] == 0:
            parts.clear()
        parts.append(question["state"])
        if len(parts) == question["of"]:
            del self._parts[question["move"]]
            host = self.hosts.get(question["topic"])
            if host is None:
                raise BadInput(f"'{self._broker}' was not prepared for topic '{question['topic']}'")
            await host.take(json.loads("".join(parts)))
        return {}

    async def closed(self, question: dict[str, Any]) -> dict[str, Any]:
        """The source has closed: open at once, while the hub still changes the route.

        Nobody publishes here before the route has changed, so this may be undone; ``activate`` makes sure of it.
        """
        if self._prepared.pop(question["topic"], None) == question["id"]:
            await self.store.finish(question["topic"], self._broker, question["closed"])
        return {}

    async def activate(self, question: dict[str, Any]) -> dict[str, Any]:
        name = question["topic"]
        self._prepared.pop(name, None)
        # Closing again is harmless, and tells what an executor that was killed has forgotten.
        closed = question.get("closed") or await self.store.close(name, question["source"])
        await self.store.finish(name, self._broker, closed)
        return {}

    async def retire(self, question: dict[str, Any]) -> dict[str, Any]:
        """Forget the topic; what it has here is served elsewhere."""
        name = question["topic"]
        record = self._registry.get(f"topic.{name}")
        if record is not None and record["broker"] == self._broker and question.get("target") != self._broker:
            return {}  # the newest word is that it belongs here
        host = self.hosts.pop(name, None)
        if host is not None:
            await host.stop()
        if record is None or record["persistent"]:
            await self.store.delete(name, self._broker)
        return {}

    async def resume(self, question: dict[str, Any]) -> dict[str, Any]:
        """Serve the topic as before a move that came to nothing."""
        name = question["topic"]
        if name in self.hosts:
            await self.hosts[name].resume()
        else:
            await self.settle()
        if self._registry.topic(name).persistent and not await self.store.is_open(name, self._broker):
            await self.store.open(name, self._broker)
        return {}
