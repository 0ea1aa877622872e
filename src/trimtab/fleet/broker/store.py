"""Persistent topics: a JetStream stream at the broker that hosts the topic, and how it moves.

The stream stores what is published to ``keep.BROKER.TOPIC`` and republishes it to ``t.TOPIC``, so that any
number of live subscribers get it the way they get every topic. As the broker's name is part of the subject,
the old stream and the new one can never both take a message. A move copies first, while messages go on being
stored at the source; then closes the source, waits for the rest (milliseconds), gives every consumer its
position at the target, and opens the target. Publishers repeat what was not acknowledged in between, with the
same message id, which the copy knows too: nothing is lost and nothing stored twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Final

from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    ExternalStream,
    RePublish,
    StorageType,
    StreamConfig,
    StreamSource,
)
from nats.js.errors import APIError, BadRequestError, NotFoundError, ServerError

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet.protocol import names, subjects
from trimtab.fleet.protocol.agent_verbs import Closed
from trimtab.fleet.protocol.streams import ACK_S

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.js.client import JetStreamContext

DUPLICATES_S: Final = 120.0  # how long a stream remembers message ids
MOST_BYTES: Final = 1 << 30  # a stream keeps its newest messages up to this
SOURCE: Final = "Nats-Stream-Source"  # in a copied message: stream, sequence there, ...
POLL_S: Final = 0.005


class Store:
    """The streams of one fleet, seen from one connection; ``broker`` says whose."""

    def __init__(self, connection: Nats) -> None:
        self._connection = connection

    def at(self, broker: str) -> JetStreamContext:
        return self._connection.jetstream(domain=broker, timeout=5)

    async def create(self, topic: str, broker: str, replicas: int) -> None:
        try:
            await self.at(broker).add_stream(_open(_config(topic, replicas), topic, broker))
        except (BadRequestError, ServerError) as error:
            raise BadInput(f"topic '{topic}' cannot be stored at '{broker}': {error.description}") from None
        except (NotFoundError, TimeoutError):
            raise Unreachable(f"the store of broker '{broker}' does not answer") from None

    async def copy(self, topic: str, source: str, target: str, replicas: int) -> None:
        """A copy of the source's stream at the target that follows it; returns when it has caught up once."""
        config = _config(topic, replicas)
        config.sources = [StreamSource(name=names.stream(topic), external=ExternalStream(api=f"$JS.{source}.API"))]
        with contextlib.suppress(NotFoundError):  # what an earlier attempt left
            await self.at(target).delete_stream(names.stream(topic))
        try:
            await self.at(target).add_stream(config)
        except APIError as error:
            raise BadInput(f"topic '{topic}' cannot be stored at '{target}': {error.description}") from None
        await self._level(topic, source, target)

    async def close(self, topic: str, source: str) -> Closed:
        """The source takes no more messages; what the target must have before it may open."""
        config = (await self.at(source).stream_info(names.stream(topic))).config
        config.subjects = [subjects.retired(source, topic)]
        # It goes on republishing: what waits in the server to be stored is stored and acknowledged after this.
        last = (await self.at(source).update_stream(config)).state.last_seq
        while True:  # until nothing is left that waited
            await asyncio.sleep(2 * POLL_S)
            state = (await self.at(source).stream_info(names.stream(topic))).state
            if state.last_seq == last:
                break
            last = state.last_seq
        read = {}
        for consumer in await self.at(source).consumers_info(names.stream(topic)):
            if consumer.config.durable_name:
                read[consumer.config.durable_name] = consumer.ack_floor.stream_seq if consumer.ack_floor else 0
        return Closed(last if state.messages else 0, read)

    async def finish(self, topic: str, target: str, closed: Closed) -> None:
        """After ``close``: once the last messages are at the target it opens, then readers get their positions.

        May be called again after it was cut off anywhere.
        """
        stream = names.stream(topic)
        info = await self.at(target).stream_info(stream)
        if info.config.subjects != [subjects.keep(target, topic)]:
            while await self._reached(topic, target) < closed.last:
                await asyncio.sleep(POLL_S)
            info.config.sources = None
            await self.at(target).update_stream(_open(info.config, topic, target))
        offset = await self._offset(topic, target) if closed.read else 0
        made = (self.add_consumer(topic, target, name, max(1, at + 1 - offset)) for name, at in closed.read.items())
        await asyncio.gather(*made)

    async def open(self, topic: str, target: str) -> None:
        """The target takes messages, and follows nobody any more."""
        config = (await self.at(target).stream_info(names.stream(topic))).config
        config.sources = None
        await self.at(target).update_stream(_open(config, topic, target))

    async def delete(self, topic: str, broker: str) -> None:
        with contextlib.suppress(NotFoundError):
            await self.at(broker).delete_stream(names.stream(topic))

    async def is_open(self, topic: str, broker: str) -> bool:
        try:
            info = await self.at(broker).stream_info(names.stream(topic))
        except NotFoundError:
            return False
        return info.config.subjects == [subjects.keep(broker, topic)]

    async def topics(self, broker: str) -> list[str]:
        """Topics with a stream at the broker, in whatever state."""
        streams = await self.at(broker).streams_info()
        return [names.stream_topic(name) for s in streams if not (name := s.config.name or "").startswith("$")]

    async def exists(self, topic: str, broker: str) -> bool:
        try:
            await self.at(broker).stream_info(names.stream(topic))
        except NotFoundError:
            return False
        return True

    async def messages(self, topic: str, broker: str) -> int:
        return (await self.at(broker).stream_info(names.stream(topic))).state.messages

    async def add_consumer(self, topic: str, broker: str, durable: str, start: int | None = None) -> None:
        """A durable reader, from message ``start`` on; without, from the oldest. One that exists stays."""
        config = ConsumerConfig(
            durable_name=durable, ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_S, max_ack_pending=4096,
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE if start else DeliverPolicy.ALL, opt_start_seq=start,
        )  # fmt: skip
        stream = names.stream(topic)
        try:
            await self.at(broker).consumer_info(stream, durable)
        except NotFoundError:
            await self.at(broker).add_consumer(stream, config)

    async def _level(self, topic: str, source: str, target: str) -> None:
        """Until the target has all the source has."""
        stream = names.stream(topic)
        while True:
            wanted = (await self.at(source).stream_info(stream)).state
            if not wanted.messages or await self._reached(topic, target) >= wanted.last_seq:
                return
            await asyncio.sleep(4 * POLL_S)

    async def _reached(self, topic: str, target: str) -> int:
        """The source's number of the newest message that has been copied; 0 if there is none."""
        stream = names.stream(topic)
        state = (await self.at(target).stream_info(stream)).state
        if not state.messages:
            return 0
        newest = await self.at(target).get_msg(stream, seq=state.last_seq)
        copied = (newest.headers or {}).get(SOURCE)
        return int(copied.split()[1]) if copied else sys.maxsize  # published here: it is open, so all has come

    async def _offset(self, topic: str, target: str) -> int:
        """How far the source's sequence numbers are ahead of the target's."""
        stream = names.stream(topic)
        state = (await self.at(target).stream_info(stream)).state
        if not state.messages:
            return 0
        first = await self.at(target).get_msg(stream, seq=state.first_seq)
        source = (first.headers or {}).get(SOURCE)  # there unless nothing was stored before the move
        return int(source.split()[1]) - state.first_seq if source else 0


def _config(topic: str, replicas: int) -> StreamConfig:
    return StreamConfig(
        name=names.stream(topic), storage=StorageType.FILE, num_replicas=replicas, max_bytes=MOST_BYTES,
        duplicate_window=DUPLICATES_S,
    )  # fmt: skip


def _open(config: StreamConfig, topic: str, broker: str) -> StreamConfig:
    config.subjects = [subjects.keep(broker, topic)]
    config.republish = RePublish(src=subjects.keep(broker, topic), dest=subjects.deliver(topic))
    return config
