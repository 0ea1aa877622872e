"""The topics that a broker hosts, with their processors and stores: creation, removal and handover.

The orders of a move (``prepare``, ``release``, ``take``, ``activate``, ``retire``, ``resume``) are idempotent.
``sweep`` cleans up after a move during which a process died.

A broker also gives a topic to another one by itself (``PeerMoves``), and the hub does not say which of the two serves
the topic. So the processor that is offered to this broker gets its state, but processes nothing before the registry
places the topic here.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from trimtab.errors import BadInput, Moving
from trimtab.fleet.broker.host import Host, HostState
from trimtab.fleet.broker.store import Store
from trimtab.fleet.protocol import coding, wire
from trimtab.fleet.protocol.agent_verbs import (
    ActivateTopic,
    HostTopic,
    PrepareTopic,
    Released,
    ReleaseTopic,
    ResumeTopic,
    RetireTopic,
    SourceClosed,
    TakeState,
)
from trimtab.fleet.protocol.registry import topic_entry
from trimtab.fleet.protocol.request import Done

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client as Nats

    from trimtab.fleet.protocol.entries import Topic, Version
    from trimtab.fleet.protocol.registry import Registry
    from trimtab.fleet.protocol.request import Handler

    class _Order(Protocol):
        @property
        def topic(self) -> str | Topic: ...

    Q = TypeVar("Q", bound=_Order)
    R = TypeVar("R")

log = logging.getLogger("trimtab.agent")
CHUNK: Final = 400_000  # size of a part of a handover, in characters of JSON
ORDERED_S: Final = 15.0  # time after a move's last order during which ``sweep`` ignores the topic
SWEEP_S: Final = 5.0  # interval of the check of stored topics


@dataclass(slots=True)
class Offer:
    """A topic with a processor that its host gives to this broker."""

    move: str
    giver: str
    version: Version  # of the topic's entry at the giver
    handed_over: bool = False  # whether the processor's state is here


class Hosting:
    """The topics hosted at ``broker``. The agent keeps ``registry`` and ``moving`` up to date."""

    def __init__(
        self, broker: str, connection: Nats, registry: Registry, heard_everywhere: Callable[[], Awaitable[None]]
    ) -> None:
        self.hosts: dict[str, Host] = {}
        self.store = Store(connection)
        self.moving: set[str] = set()  # topics in a move, as of the last sync with the hub
        self.giving: set[str] = set()  # topics that this broker gives to others
        self.offers: dict[str, Offer] = {}  # topics that others give to this broker
        self._broker = broker
        self._connection = connection
        self._registry = registry
        self._heard_everywhere = heard_everywhere  # waits until all servers know of this agent's subscriptions
        self._parts: dict[str, tuple[str, list[str]]] = {}  # topic -> move, parts of the handover received so far
        self._prepared: dict[str, str] = {}  # topic -> the move that copies it here
        self._ordered: dict[str, float] = {}  # topic -> time of the last order about it
        self._swept = -1e9
        self._changing = asyncio.Lock()

    def handlers(self) -> list[Handler]:
        """Handlers of the orders that a move or the keeper gives."""
        return [
            HostTopic.answered_by(self._noting(self.host)),
            PrepareTopic.answered_by(self._noting(self.prepare)),
            ReleaseTopic.answered_by(self._noting(self.release)),
            TakeState.answered_by(self._noting(self.take)),
            SourceClosed.answered_by(self._noting(self.closed)),
            ActivateTopic.answered_by(self._noting(self.activate)),
            RetireTopic.answered_by(self._noting(self.retire)),
            ResumeTopic.answered_by(self._noting(self.resume)),
        ]

    def _noting(self, handle: Callable[[Q], Awaitable[R]]) -> Callable[[Q], Awaitable[R]]:
        async def noted(order: Q) -> R:
            topic = order.topic if isinstance(order.topic, str) else order.topic.name
            self._ordered[topic] = time.monotonic()
            return await handle(order)

        return noted

    async def stop(self) -> None:
        for host in self.hosts.values():
            await host.stop()

    async def settle(self) -> None:
        """Start missing processors, and stop those of deleted topics. Hosts in a move stay as they are."""
        async with self._changing:
            topics = self._registry.topics()
            for topic in topics.values():
                if topic.processed_at(self._broker):
                    try:
                        await self._serve(topic, live=True)
                    except BadInput as error:
                        log.error("topic %s: %s", topic.name, error)
                        continue
                    if topic.whole and topic.name in self.offers:
                        del self.offers[topic.name]
                        await self.hosts[topic.name].resume()
            for name in [name for name in self.hosts if name not in topics and self.hosts[name].live]:
                if self._registry.at(topic_entry(name)):  # the topic was deleted, not just missing in the replica
                    await self.hosts.pop(name).stop()

    async def _serve(self, topic: Topic, *, live: bool) -> None:
        host = self.hosts.get(topic.name)
        if host is not None and host.topic.settings() != topic.settings():  # deleted and created again
            await self.hosts.pop(topic.name).stop()
            host = None
        if host is None:
            host = Host(self._connection, self._broker, topic)
            await host.start(live=live)
            self.hosts[topic.name] = host

    def check(self) -> None:
        """Refuse if a processor that every broker must run does not run here."""
        for topic in self._registry.topics().values():
            if topic.processor and not topic.whole and topic.name not in self.hosts:
                raise BadInput(
                    f"'{self._broker}' cannot run '{topic.processor}', the processor of topic '{topic.name}'"
                )

    async def sweep(self) -> bool:
        """Clean up after moves during which a process died: bring hosts and streams in line with the registry.

        Streams are checked at longer intervals. Returns whether they were.
        """
        recent = time.monotonic() - ORDERED_S
        self._ordered = {name: at for name, at in self._ordered.items() if at >= recent}
        for name, host in list(self.hosts.items()):
            topic = self._registry.find_topic(name)
            if topic is None or not topic.whole or self._in_move(name):
                continue
            if topic.broker == self._broker:
                await host.resume()
            else:
                log.info("topic %s is at %s now", name, topic.broker)
                await self.hosts.pop(name).stop()
        if time.monotonic() - self._swept <= SWEEP_S:
            return False
        self._swept = time.monotonic()
        for name in await self.store.topics(self._broker):
            topic = self._registry.find_topic(name)
            if self._in_move(name) or not self._registry.at(topic_entry(name)):
                continue
            if topic is None or topic.broker != self._broker:
                where = f"at {topic.broker} now" if topic else "no longer needed: it was deleted"
                log.info("the stored messages of topic %s are %s", name, where)
                await self.store.delete(name, self._broker)
            elif not await self.store.is_open(name, self._broker):
                await self.store.open(name, self._broker)
        return True

    def _in_move(self, topic: str) -> bool:
        """Whether the topic is in a move, by the last sync or, in case that is outdated, by a recent order."""
        return topic in self.moving or topic in self.giving or topic in self.offers or self.ordered_lately(topic)

    def ordered_lately(self, topic: str) -> bool:
        return time.monotonic() - self._ordered.get(topic, -1e9) < ORDERED_S

    async def host(self, order: HostTopic) -> Done:
        """Host a new topic; refused if it cannot be served."""
        topic = order.topic
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
        return Done()

    async def prepare(self, order: PrepareTopic) -> Done:
        topic = order.topic
        async with self._changing:
            if topic.processor:
                await self._serve(topic, live=False)
        if topic.persistent:
            self._prepared[topic.name] = order.move
            await self.store.copy(topic.name, order.source, self._broker, topic.replicas)
        if topic.processor:
            await self._heard_everywhere()
        return Done()

    async def release(self, order: ReleaseTopic) -> Released:
        """Give the topic's state to the target of a move; refused if this broker gives the topic to another one."""
        name = order.topic
        if name in self.giving:
            raise Moving(f"'{self._broker}' is giving topic '{name}' to another broker")
        if self._given_away(name):
            to = self._registry.topic(name).broker
            raise BadInput(f"'{self._broker}' gave topic '{name}' away while the hub was away; it is at '{to}' now")
        return await self.hand_over(order)

    def _given_away(self, topic: str) -> bool:
        """Whether the topic was given to another broker, and the keeper has not confirmed it yet."""
        return self._registry.version(topic_entry(topic))[1] > 0 and self._registry.topic(topic).broker != self._broker

    async def hand_over(self, order: ReleaseTopic) -> Released:
        """Stop serving the topic and give its state to the target."""
        name, move, target = order.topic, order.move, order.target
        host = self.hosts.get(name)
        topic = self._registry.topic(name)
        if host is not None:
            state = coding.to_json(await host.release()).decode()
            parts = [state[at : at + CHUNK] for at in range(0, len(state), CHUNK)]
            for number, part in enumerate(parts):
                await wire.ask(self._connection, TakeState(move, name, number, len(parts), part), 5.0, broker=target)
        if not topic.persistent:
            return Released()
        closed = await self.store.close(name, self._broker)
        await wire.tell(self._connection, SourceClosed(move, name, closed), broker=target)
        return Released(closed)

    async def take(self, order: TakeState) -> Done:
        move, parts = self._parts.get(order.topic, ("", []))
        if order.part == 0 or move != order.move:
            parts = []
            self._parts[order.topic] = (order.move, parts)
        parts.append(order.state)
        if len(parts) == order.parts:
            del self._parts[order.topic]
            host = self.hosts.get(order.topic)
            if host is None:
                raise BadInput(f"'{self._broker}' was not prepared for topic '{order.topic}'")
            offer = self.offers.get(order.topic)
            if offer is not None and offer.handed_over:
                return Done()
            await host.take(coding.decode("".join(parts).encode(), HostState), live=offer is None)
            if offer is not None:
                offer.handed_over = True
        return Done()

    async def offer(self, order: PrepareTopic, version: Version) -> None:
        """Prepare for a topic that its host gives to this broker."""
        name = order.topic.name
        self._ordered[name] = time.monotonic()
        await self.drop_offer(name)  # of an earlier attempt, of which it may have the state
        if name in self.hosts and self.hosts[name].live:
            raise Moving(f"'{self._broker}' processes topic '{name}' still, after a move that the hub has not ended")
        if order.topic.processor:
            self.offers[name] = Offer(order.move, order.source, version)
        try:
            await self.prepare(order)
        except BaseException:
            await self.drop_offer(name)
            raise

    def settled(self, topic: str) -> None:
        """The topic is hosted here, and no order about it is expected."""
        self._ordered.pop(topic, None)

    async def drop_offer(self, topic: str) -> None:
        if self.offers.pop(topic, None) is not None and topic in self.hosts:
            await self.hosts.pop(topic).stop()

    async def closed(self, order: SourceClosed) -> Done:
        """Open the stream here as soon as the source has closed its own, while the hub still changes the route.

        No client publishes here before the route has changed, so this step can be undone. It is optional: ``activate``
        repeats it.
        """
        if self._prepared.pop(order.topic, None) == order.move:
            await self.store.finish(order.topic, self._broker, order.closed)
        return Done()

    async def activate(self, order: ActivateTopic) -> Done:
        name = order.topic
        self._prepared.pop(name, None)
        topic = self._registry.find_topic(name)
        if topic is not None and not topic.persistent:  # the source died without a handover
            if name in self.hosts:
                await self.hosts[name].resume()
            return Done()
        # Closing again is harmless, and returns the positions that a killed executor has lost.
        closed = order.closed or await self.store.close(name, order.source)
        await self.store.finish(name, self._broker, closed)
        return Done()

    async def retire(self, order: RetireTopic) -> Done:
        """Stop hosting a topic that is hosted elsewhere, and delete its stream here."""
        name = order.topic
        topic = self._registry.find_topic(name)
        if topic is not None and topic.broker == self._broker and order.target != self._broker:
            return Done()  # by the registry it belongs here
        if name in self.offers and order.move not in ("", self.offers[name].move):
            return Done()  # it was prepared for another move too
        self._parts.pop(name, None)
        self._prepared.pop(name, None)
        self.offers.pop(name, None)
        host = self.hosts.pop(name, None)
        if host is not None:
            await host.stop()
        if topic is None or topic.persistent:
            await self.store.delete(name, self._broker)
        return Done()

    async def resume(self, order: ResumeTopic) -> Done:
        """Serve the topic again after a move that failed; not if this broker gives or has given it away."""
        if order.topic in self.giving or self._given_away(order.topic):
            return Done()  # a refusal would repeat the order until the keeper has confirmed the change
        return await self.serve_again(order)

    async def serve_again(self, order: ResumeTopic) -> Done:
        name = order.topic
        if name in self.hosts:
            await self.hosts[name].resume()
        else:
            await self.settle()
        topic = self._registry.find_topic(name)
        if topic is not None and topic.persistent and not await self.store.is_open(name, self._broker):
            await self.store.open(name, self._broker)
        return Done()
