"""A durable reader of a persistent topic: at least once over restarts, once and in order over moves."""

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

RETRY_S: Final = 1.0  # until a message that the callback failed on comes again


class _Read(Message):
    """A message together with what must be acknowledged when it has been read."""

    __slots__ = ("raw",)
    raw: Any


class Reader(Delivery):
    """A subscription whose position is kept by the broker under the name ``durable``.

    It fetches no more than it can hold, so nothing is dropped: what is not fetched stays stored.
    """

    def __init__(self, topic: str, callback: Callback, durable: str) -> None:
        # A message that its reader lost with a connection is given out again: worth waiting for, and never dropped.
        super().__init__(topic, callback, Catchup(ACK_S + 2.0, keep_late=True))
        self.durable = durable
        self._on: dict[str, Puller] = {}  # by broker whose store is read; at most one
        self._finishing: list[asyncio.Task[None]] = []

    async def listen(self, broker: str, connection: Nats) -> None:
        """Read there from now on, over this connection, which may be to another broker.

        The position is there: the client has asked for it at first, and after a move it has come along.
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
        """Until nothing is under way over an earlier connection."""
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

    async def tick(self) -> None:
        if self._catchup.holds:
            async with self._turn:
                for message in self._catchup.overdue(time.monotonic()):
                    await self._give(message)  # type: ignore[arg-type]

    async def _accept(self, raw: Msg) -> None:
        plain = identified(self.topic, raw.data, "", raw.headers)  # the reply subject is where it is acknowledged
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
    with contextlib.suppress(Exception):  # not acknowledged comes again, and is recognised
        await raw.ack()
