"""The keeper's part that creates and deletes topics."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

from trimtab.errors import BadInput, Moving, Unreachable
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.agent_verbs import HostTopic, RetireTopic
from trimtab.fleet.protocol.entries import Topic
from trimtab.fleet.protocol.hub_verbs import Created, CreateTopic, DeleteTopic
from trimtab.fleet.protocol.registry import topic_entry
from trimtab.fleet.protocol.request import Done
from trimtab.model.key import Key

if TYPE_CHECKING:
    from trimtab.fleet.hub.hosts import Work
    from trimtab.fleet.hub.keeper import Keeper
    from trimtab.fleet.protocol.request import Handler


class TopicCreation:
    """Creates and deletes topics, with the connection and the registry of ``keeper``."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._creating = asyncio.Lock()

    def handlers(self) -> list[Handler]:
        return [CreateTopic.answered_by(self.create), DeleteTopic.answered_by(self.delete)]

    async def create(self, request: CreateTopic) -> Created:
        """Create a topic, or do nothing if it exists with the same settings; refused if it has other settings."""
        async with self._creating:
            return await self._create(request)

    async def _create(self, request: CreateTopic) -> Created:
        wanted = request.topic
        keeper, name = self._keeper, wanted.name
        existing = keeper.registry.find_topic(name)
        work = None
        if existing is None:
            self._refuse_hopeless(request)
        if wanted.processor and wanted.whole and existing is None:
            work = keeper.hosts.newcomer(time.monotonic(), wanted, request.expected)
        chosen = wanted.broker or (existing.broker if existing else await self._first_broker(request, work))
        if not chosen:
            raise Unreachable("no broker is alive to host the topic")
        topic = wanted.placed_at(chosen)
        if existing is not None:
            if existing.settings() != topic.settings() or wanted.broker not in ("", existing.broker):
                raise BadInput(
                    f"topic '{name}' exists with other settings: {_settings(existing)}; asked: {_settings(topic)}"
                )
            return Created(existing.broker, created=False)
        keeper.check_target(chosen)
        if topic.processor or topic.persistent:  # a host may refuse the topic before it is registered
            await self._host(topic, [chosen] if topic.whole else keeper.alive())
        await keeper.write(topic_entry(name), topic)
        keeper.hosts.created(time.monotonic(), topic, work)
        return Created(chosen, created=True)

    def _refuse_hopeless(self, request: CreateTopic) -> None:
        """Refuse a bound that not even a single message can keep."""
        topic, expected = request.topic, request.expected
        if expected is None or topic.latency_ms is None:
            return
        fastest = max((broker.speed for broker in self._keeper.registry.brokers().values()), default=1.0)
        if (least := expected.processing_ms / fastest) > topic.latency_ms:
            raise BadInput(
                f"topic '{topic.name}' cannot keep its bound of {topic.latency_ms:g} ms: processing one message takes "
                f"{least:g} ms; raise the bound, or speed up the processor"
            )

    async def _first_broker(self, request: CreateTopic, work: Work | None) -> str:
        """Of the brokers that keep every latency bound with the topic, the one by the rule of first placements."""
        keeper, brokers = self._keeper, self._keeper.open_brokers()
        if work is not None:
            brokers = list(await keeper.hosts.fitting(time.monotonic(), work, brokers, await keeper.hosting_rules()))
        return keeper.first_broker(request.position, brokers)

    async def _host(self, topic: Topic, hosts: list[str]) -> None:
        """Have the topic hosted by all of these brokers, or by none if one refuses."""
        connection = self._keeper.connection
        orders = (wire.ask(connection, HostTopic(topic), 30.0, broker=broker) for broker in hosts)
        replies = await asyncio.gather(*orders, return_exceptions=True)
        if problem := next((reply for reply in replies if isinstance(reply, BaseException)), None):
            undo = (wire.ask(connection, RetireTopic(topic.name), 5.0, broker=broker) for broker in hosts)
            await asyncio.gather(*undo, return_exceptions=True)
            raise problem

    async def delete(self, request: DeleteTopic) -> Done:
        keeper = self._keeper
        topic = keeper.registry.topic(request.name)
        links = keeper.registry.links_of(topic=topic.name)
        if any(keeper.mover.moving(key) for key in [Key("topic", topic.name, ""), *links]):
            raise Moving(f"topic '{topic.name}' is moving; delete it when the move is over")
        await keeper.remove_links(links)  # before the topic, so that a keeper that dies here leaves no link behind
        await keeper.write(topic_entry(topic.name), None)
        with contextlib.suppress(BadInput, Unreachable):  # an unreachable broker learns it from the registry
            await wire.ask(keeper.connection, RetireTopic(topic.name), broker=topic.broker)
        return Done()


def _settings(topic: Topic) -> str:
    defaults = Topic(topic.name, "").settings()
    changed = [f"{name}={value}" for name, value in topic.settings().items() if value != defaults[name]]
    return ", ".join(changed) or "the defaults"
