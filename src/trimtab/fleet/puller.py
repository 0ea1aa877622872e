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

from trimtab.fleet import names

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
        self._subject = f"$JS.{broker}.API.CONSUMER.MSG.NEXT.{names.stream(topic)}.{durable}"
        self._info = f"$JS.{broker}.API.CONSUMER.INFO.{names.stream(topic)}.{durable}"
        self._receive = receive
        self._inbox = connection.new_inbox()
        self._left = 0  # messages still to come of what was asked for
        self._sure = False  # whether the consumer is known to be there; nobody answers for one that is not
        self._news = asyncio.Event()
        self._finishing = self._abandoned = False
        self._subscription: Subscription | None = None
        self._task = asyncio.create_task(self._run())

    async def finish(self) -> None:
        """Ask for no more, and take what was asked for."""
        self._finishing = True
        self._news.set()
        await asyncio.gather(self._task, return_exceptions=True)

    def abandon(self) -> None:
        """The messages are read elsewhere; only the one being read is finished."""
        self._finishing = self._abandoned = True
        self._left = 0
        self._news.set()

    async def _run(self) -> None:
        self._subscription = await self.connection.subscribe(self._inbox, cb=self._came)
        while not self._finishing:
            if not self._sure and not await self._exists():
                await asyncio.sleep(AGAIN_S)
                continue
            self._left = BATCH
            wanted = {"batch": BATCH, "expires": int(EXPIRES_S * 1e9)}
            with contextlib.suppress(Exception):  # a broker that is away is asked again
                await self.connection.publish(self._subject, json.dumps(wanted).encode(), self._inbox)
            await self._answered()
        with contextlib.suppress(Exception):  # not unsubscribe(), which would cut off the callback
            await self._subscription.drain()

    async def _answered(self) -> None:
        """Until what was asked for has come, or will not come."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + EXPIRES_S + 1.0
        while self._left > 0:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), deadline - loop.time())
            except TimeoutError:
                self._sure = False
                return

    async def _exists(self) -> bool:
        try:
            reply = await self.connection.request(self._info, timeout=1.0)
        except (TimeoutError, nats.errors.Error, OSError):
            return False
        self._sure = "error" not in json.loads(reply.data)
        return self._sure

    async def _came(self, raw: Msg) -> None:
        if self._abandoned:
            return
        headers = raw.headers or {}
        status = headers.get("Status")
        if status is not None and not raw.data and "Nats-Msg-Id" not in headers:
            self._sure = status not in GONE
            self._left = 0
            self._news.set()
            return
        await self._receive(raw)
        self._left -= 1
        if self._left <= 0:
            self._news.set()
