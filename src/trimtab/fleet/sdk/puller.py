"""Pulls stored messages of one consumer over one connection, as they come, and ends without leaving any behind.

nats-py's ``fetch`` returns batches and loses what it holds when it is cancelled; such messages would only come
again when the acknowledgement is overdue, half a minute later.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import TYPE_CHECKING, Final

import nats.errors

from trimtab.fleet import tasks
from trimtab.fleet.protocol import names

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

log = logging.getLogger("trimtab.client")
BATCH: Final = 512
EXPIRES_S: Final = 1.0  # of one request
AGAIN_S: Final = 0.03  # after an answer that there is no such consumer (yet)
GONE: Final = ("404", "409", "503")  # no messages, consumer deleted, nobody there


class Puller:
    """Reads until ``finish`` or ``abandon``."""

    def __init__(
        self, topic: str, broker: str, durable: str, connection: Nats, receive: Callable[[Msg], Awaitable[None]]
    ) -> None:
        self.broker = broker
        self.connection = connection
        self._next = f"$JS.{broker}.API.CONSUMER.MSG.NEXT.{names.stream(topic)}.{durable}"
        self._info = f"$JS.{broker}.API.CONSUMER.INFO.{names.stream(topic)}.{durable}"
        self._receive = receive
        self._sure = False  # whether the consumer is known to be there; nobody answers for one that is not
        self._finishing = self._abandoned = False
        self._requests: set[_Request] = set()  # whose end has not been seen
        self._task = asyncio.create_task(self._run())

    async def finish(self) -> None:
        """Ask for no more, and take what was asked for."""
        self._finishing = True
        await asyncio.gather(self._task, return_exceptions=True)

    def abandon(self) -> None:
        """The messages are read elsewhere; only the one being read is finished."""
        self._finishing = self._abandoned = True
        for request in self._requests:
            request.end()

    async def _run(self) -> None:
        while not self._finishing:
            request = await self._ask()
            if not self._sure:  # ask all the same: right after a move it mostly is there, and a trip is saved
                self._sure = await self._exists()
                if not self._sure:
                    request.end()
                    await asyncio.sleep(AGAIN_S)
                    continue
                if not request.heard:  # it may have come before the consumer was there, and then nobody has it
                    request = await self._ask()
            await request.ended(EXPIRES_S / 2)  # the next one is at the broker before this one ends
        await asyncio.gather(*(request.ended() for request in self._requests))
        for request in self._requests:
            await request.close()

    async def _ask(self) -> _Request:
        for over in [each for each in self._requests if each.over]:
            self._sure &= over.answered
            self._requests.discard(over)
            await over.close()
        request = _Request(self.connection, self._came)
        self._requests.add(request)
        with contextlib.suppress(Exception):  # a broker that is away is asked again
            await request.start(self._next)
        return request

    async def _exists(self) -> bool:
        try:
            reply = await self.connection.request(self._info, timeout=1.0)
        except (TimeoutError, nats.errors.Error, OSError):
            return False
        return "error" not in json.loads(reply.data)

    async def _came(self, raw: Msg) -> None:
        if not self._abandoned:
            await self._receive(raw)


class _Request:
    """One request for messages, with an inbox of its own, so that its end is never taken for another's."""

    def __init__(self, connection: Nats, receive: Callable[[Msg], Awaitable[None]]) -> None:
        self.heard = False  # whether anything has come
        self.answered = False  # whether it has ended as it should
        self._connection = connection
        self._receive = receive
        self._left = BATCH  # messages still to come
        self._end = asyncio.Event()
        self._deadline = asyncio.get_running_loop().time() + EXPIRES_S + 1.0
        self._subscription: Subscription | None = None

    async def start(self, subject: str) -> None:
        inbox = self._connection.new_inbox()
        self._subscription = await self._connection.subscribe(inbox, cb=self._came)
        wanted = {"batch": BATCH, "expires": int(EXPIRES_S * 1e9)}
        await self._connection.publish(subject, json.dumps(wanted).encode(), inbox)

    @property
    def over(self) -> bool:
        return self._end.is_set() or asyncio.get_running_loop().time() > self._deadline

    def end(self) -> None:
        self._end.set()

    async def ended(self, limit_s: float = EXPIRES_S + 1.0) -> None:
        """When what was asked for has come or will not come, but not longer than this."""
        left = self._deadline - asyncio.get_running_loop().time()
        await tasks.happens(self._end, max(0.0, min(left, limit_s)))

    async def close(self) -> None:
        if self._subscription is not None:
            with contextlib.suppress(Exception):  # not unsubscribe(), which would cut off the callback
                await self._subscription.drain()

    async def _came(self, raw: Msg) -> None:
        self.heard = True
        headers = raw.headers or {}
        status = headers.get("Status")
        if status is not None and not raw.data and "Nats-Msg-Id" not in headers:
            self.answered = status not in GONE
            self.end()
            return
        await self._receive(raw)
        self._left -= 1
        if self._left <= 0:
            self.answered = True
            self.end()
