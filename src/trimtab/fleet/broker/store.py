"""Persistent topics: a JetStream stream at the broker that hosts the topic, and its moves.

The stream stores messages published to ``keep.BROKER.TOPIC`` and republishes them to ``t.TOPIC``, where live
subscribers receive them as from every other topic. The broker's name is part of the subject, so the old stream and the
new one never both store a message. A move first copies the stream, while the source still stores messages. It then
closes the source, waits for the remaining messages (milliseconds), opens the target, and creates every consumer at the
target with its position. Publishers repeat messages that were not acknowledged meanwhile, with the same message ids.
The copy knows these ids too, so no message is lost or stored twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING, Final

from nats.js import JetStreamContext
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
from trimtab.fleet.protocol import names, subjects, wire
from trimtab.fleet.protocol.agent_verbs import Closed
from trimtab.fleet.protocol.streams import ACK_S

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.js.api import StreamInfo

DUPLICATES_S: Final = 120.0  # how long a stream remembers message ids
MOST_BYTES: Final = 1 << 30  # size limit of a stream, which drops its oldest messages
SOURCE: Final = "Nats-Stream-Source"  # header of a copied message: source stream, sequence number in it, ...
POLL_S: Final = 0.005
FINISH_S: Final = 10.0  # limit for the last messages of a copy; less than an executor of moves waits


class Store:
    """Access to the streams of all brokers over one connection."""

    def __init__(self, connection: Nats) -> None:
        self._connection = connection

    def at(self, broker: str) -> JetStreamContext:
        return JetStreamContext(wire.Counted(self._connection), domain=broker, timeout=5)  # type: ignore[arg-type]

    async def create(self, topic: str, broker: str, replicas: int) -> None:
        try:
            await self.at(broker).add_stream(_open(_config(topic, replicas), topic, broker))
        except (BadRequestError, ServerError) as error:
            raise BadInput(f"topic '{topic}' cannot be stored at '{broker}': {error.description}") from None
        except NotFoundError:
            raise Unreachable(f"the store of broker '{broker}' does not answer") from None
        except TimeoutError:
            text = f"the store of broker '{broker}' does not answer, and may have made a stream for topic '{topic}'"
            raise Unreachable(text, changed=True) from None

    async def copy(self, topic: str, source: str, target: str, replicas: int) -> None:
        """Create a copy of the source's stream at the target, and return when it has caught up once.

        The copy goes on following the source.
        """
        config = _config(topic, replicas)
        config.sources = [
            StreamSource(name=names.stream(topic), external=ExternalStream(api=subjects.jetstream_api(source)))
        ]
        with contextlib.suppress(NotFoundError):  # left by an earlier attempt
            await self.at(target).delete_stream(names.stream(topic))
        try:
            await self.at(target).add_stream(config)
        except APIError as error:
            raise BadInput(f"topic '{topic}' cannot be stored at '{target}': {error.description}") from None
        await self._level(topic, source, target)

    async def close(self, topic: str, source: str) -> Closed:
        """Close the source for new messages. Return the last message and the readers' positions for ``finish``."""
        config = (await self.at(source).stream_info(names.stream(topic))).config
        config.subjects = [subjects.retired(source, topic)]
        # The source goes on republishing, because messages queued in the server are stored and acknowledged after this.
        last = (await self.at(source).update_stream(config)).state.last_seq
        while True:  # until the queued messages are stored
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
        """Open the target once it has the last messages, then create the readers at their positions.

        Called after ``close``. It may be repeated after an interruption at any point, and gives up after a limit.
        """
        stream = names.stream(topic)
        info = await self.at(target).stream_info(stream)
        if info.config.subjects != [subjects.keep(target, topic)]:
            deadline = asyncio.get_running_loop().time() + FINISH_S
            while (reached := await self._reached(topic, target)) < closed.last:
                if asyncio.get_running_loop().time() > deadline:
                    raise Unreachable(
                        f"'{target}' has the messages of topic '{topic}' up to {reached:,} of {closed.last:,}, and "
                        f"no more have come within {FINISH_S:g} s"
                    )
                await asyncio.sleep(POLL_S)
            info.config.sources = None
            await self.at(target).update_stream(_open(info.config, topic, target))
        offset = await self._offset(topic, target) if closed.read else 0
        readers = (self.add_consumer(topic, target, name, max(1, at + 1 - offset)) for name, at in closed.read.items())
        await asyncio.gather(*readers)

    async def open(self, topic: str, target: str) -> None:
        """Open the target's stream for new messages; it no longer copies a source."""
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
        found: list[StreamInfo] = []
        while page := await self.at(broker).streams_info(len(found)):
            found += page
        return [names.stream_topic(name) for s in found if not (name := s.config.name or "").startswith("$")]

    async def exists(self, topic: str, broker: str) -> bool:
        try:
            await self.at(broker).stream_info(names.stream(topic))
        except NotFoundError:
            return False
        return True

    async def messages(self, topic: str, broker: str) -> int:
        return (await self.at(broker).stream_info(names.stream(topic))).state.messages

    async def add_consumer(self, topic: str, broker: str, durable: str, start: int | None = None) -> None:
        """Create a durable reader that begins at message ``start``, or at the oldest. An existing reader is kept."""
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
        """Wait until the target has all messages of the source."""
        stream = names.stream(topic)
        while True:
            wanted = (await self.at(source).stream_info(stream)).state
            if not wanted.messages or await self._reached(topic, target) >= wanted.last_seq:
                return
            await asyncio.sleep(4 * POLL_S)

    async def _reached(self, topic: str, target: str) -> int:
        """The sequence number, in the source, of the newest copied message; 0 if there is none."""
        stream = names.stream(topic)
        state = (await self.at(target).stream_info(stream)).state
        if not state.messages:
            return 0
        newest = await self.at(target).get_msg(stream, seq=state.last_seq)
        copied = (newest.headers or {}).get(SOURCE)
        return int(copied.split()[1]) if copied else sys.maxsize  # else published here: the target is open

    async def _offset(self, topic: str, target: str) -> int:
        """The difference between a message's sequence numbers in the source and in the target."""
        stream = names.stream(topic)
        state = (await self.at(target).stream_info(stream)).state
        if not state.messages:
            return 0
        first = await self.at(target).get_msg(stream, seq=state.first_seq)
        source = (first.headers or {}).get(SOURCE)  # missing if nothing was stored before the move
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
