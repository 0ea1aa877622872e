"""A durable reader of a persistent topic: at least once across restarts, exactly once and in order across moves."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet.protocol.message import Message, identified
from trimtab.fleet.protocol.streams import ACK_S
from trimtab.fleet.sdk.delivery import Delivery
from trimtab.fleet.sdk.puller import Puller
from trimtab.migrate.catchup import Catchup

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg

    from trimtab.fleet.sdk.delivery import Callback

RETRY_S: Final = 1.0  # pause before a message that the callback failed on is delivered again


class _Read(Message):
    """A message with its raw form, which is acknowledged when the message has been read."""

    __slots__ = ("raw",)
    raw: Any


class Reader(Delivery):
    """A subscription whose position the broker stores under the name ``durable``.

    A reader fetches no more messages than it can hold, so none are dropped. The others stay in the store.
    """

    def __init__(self, topic: str, callback: Callback, durable: str) -> None:
        # The store delivers a message again if it was lost with a connection. So gaps wait for ACK_S, and a message
        # that arrives later still is delivered too.
        super().__init__(topic, callback, Catchup(ACK_S + 2.0, keep_late=True))
        self.durable = durable
        self._on: dict[str, Puller] = {}  # by the broker whose store is read; at most one
        self._finishing: list[asyncio.Task[None]] = []

    async def listen(self, broker: str, connection: Nats) -> None:
        """Read from this broker's store from now on, over ``connection``, which may lead to another broker.

        The consumer with the reader's position exists there: the client created it, or a move copied it.
        """
        old = self._on.get(broker)
        if old is not None and old.connection is connection:
            return
        for other in [other for other in self._on if other != broker]:
            self._on.pop(other).abandon()
        self._on[broker] = Puller(self.topic, broker, self.durable, connection, self._accept)
        if old is not None:
            self._finishing.append(asyncio.create_task(old.finish()))

    async def settle(self) -> None:
        """Wait until the pullers of earlier connections have finished."""
        finishing, self._finishing = self._finishing, []
        await asyncio.gather(*finishing, return_exceptions=True)

    async def leave(self, broker: str) -> None:
        puller = self._on.pop(broker, None)
        if puller is not None:
            await puller.finish()

    async def leave_all(self) -> None:
        for broker in list(self._on):
            await self.leave(broker)

    def lost(self, broker: str) -> None:
        old = self._on.pop(broker, None)
        if old is not None:
            old.abandon()

    def tick(self) -> None:
        if self._catchup.holds:
            self._later.start_once(self._give_overdue)

    async def _give_overdue(self) -> None:
        async with self._turn:
            for message in self._catchup.overdue(time.monotonic()):
                await self._give(message)  # type: ignore[arg-type]

    async def _last(self) -> None:
        async with self._turn:
            pass  # a message that waits behind a gap is not acknowledged, so it comes again

    async def _accept(self, raw: Msg) -> None:
        plain = identified(self.topic, raw.data, "", raw.headers)  # the reply subject is for acknowledgements
        message = _Read(
            plain.topic, plain.data, plain.publisher, plain.seq, plain.sent_at, plain.source, plain.number, plain.origin
        )
        message.raw = raw
        async with self._turn:
            before = self._catchup.duplicates
            for ready in self._catchup.accept(message, time.monotonic()):
                await self._give(ready)
            if self._catchup.duplicates > before:
                await _done(raw)

    async def _give(self, message: _Read) -> None:
        if await self._call(message):
            await _done(message.raw)
        else:
            self._catchup.retry(message.source, message.number)
            with contextlib.suppress(Exception):
                await message.raw.nak(RETRY_S)


async def _done(raw: Msg) -> None:
    with contextlib.suppress(Exception):  # without an acknowledgement it comes again and is dropped as a duplicate
        await raw.ack()
