"""Pulls stored messages of one consumer over one connection, and loses none when it ends.

nats-py's ``fetch`` returns batches and loses the messages it holds when it is cancelled. The server would deliver those
messages again only after the acknowledgement limit (``ACK_S``).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import TYPE_CHECKING, Final

import nats.errors

from trimtab.fleet import tasks
from trimtab.fleet.protocol import names, subjects, wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

log = logging.getLogger("trimtab.client")
BATCH: Final = 512
EXPIRES_S: Final = 1.0  # lifetime of one request
AGAIN_S: Final = 0.03  # pause after the server has answered that the consumer does not exist (yet)
GONE: Final = ("404", "409", "503")  # status codes: no messages, consumer deleted, no responders


class Puller:
    """Pulls messages until ``finish`` or ``abandon`` is called."""

    def __init__(
        self, topic: str, broker: str, durable: str, connection: Nats, receive: Callable[[Msg], Awaitable[None]]
    ) -> None:
        self.broker = broker
        self.connection = connection
        self._next = subjects.next_message(broker, names.stream(topic), durable)
        self._info = subjects.consumer_info(broker, names.stream(topic), durable)
        self._receive = receive
        self._sure = False  # whether the consumer is known to exist; a request to a missing one gets no answer
        self._finishing = self._abandoned = False
        self._requests: set[_Request] = set()  # requests whose end has not been seen
        self._task = asyncio.create_task(self._run())

    async def finish(self) -> None:
        """Send no more requests, and receive the messages of the open ones."""
        self._finishing = True
        await asyncio.gather(self._task, return_exceptions=True)

    def abandon(self) -> None:
        """Stop at once, because the messages are read elsewhere; only the message in progress is finished."""
        self._finishing = self._abandoned = True
        for request in self._requests:
            request.end()

    async def _run(self) -> None:
        while not self._finishing:
            request = await self._ask()
            if not self._sure:  # checked after the request: after a move the consumer usually exists already
                self._sure = await self._exists()
                if not self._sure:
                    request.end()
                    await asyncio.sleep(AGAIN_S)
                    continue
                if not request.replied:  # the request may have arrived before the consumer existed, and is lost then
                    request = await self._ask()
            await request.ended(EXPIRES_S / 2)  # so the next request reaches the broker before this one ends
        await asyncio.gather(*(request.ended() for request in self._requests))
        for request in self._requests:
            await request.close()

    async def _ask(self) -> _Request:
        for ended in [request for request in self._requests if request.over]:
            self._sure &= ended.answered
            self._requests.discard(ended)
            await ended.close()
        request = _Request(self.connection, self._on_message)
        self._requests.add(request)
        with contextlib.suppress(Exception):  # the broker is unreachable; the loop sends another request
            await request.start(self._next)
        return request

    async def _exists(self) -> bool:
        try:
            reply = await self.connection.request(self._info, timeout=1.0)
        except (TimeoutError, nats.errors.Error, OSError):
            return False
        return "error" not in json.loads(reply.data)

    async def _on_message(self, raw: Msg) -> None:
        if not self._abandoned:
            await self._receive(raw)


class _Request:
    """One request for messages. It has its own inbox, so that the status message that ends it belongs to it alone."""

    def __init__(self, connection: Nats, receive: Callable[[Msg], Awaitable[None]]) -> None:
        self.replied = False  # whether any reply has arrived
        self.answered = False  # whether the request ended normally
        self._connection = connection
        self._receive = receive
        self._left = BATCH  # messages that may still arrive
        self._end = asyncio.Event()
        self._deadline = asyncio.get_running_loop().time() + EXPIRES_S + 1.0
        self._subscription: Subscription | None = None

    async def start(self, subject: str) -> None:
        inbox = self._connection.new_inbox()
        self._subscription = await self._connection.subscribe(inbox, cb=self._on_message)
        wanted = {"batch": BATCH, "expires": int(EXPIRES_S * 1e9)}
        await self._connection.publish(subject, json.dumps(wanted).encode(), inbox)

    @property
    def over(self) -> bool:
        return self._end.is_set() or asyncio.get_running_loop().time() > self._deadline

    def end(self) -> None:
        self._end.set()

    async def ended(self, limit_s: float = EXPIRES_S + 1.0) -> None:
        """Wait until the request has ended or has expired, but at most ``limit_s``."""
        left = self._deadline - asyncio.get_running_loop().time()
        await tasks.happens(self._end, max(0.0, min(left, limit_s)))

    async def close(self) -> None:
        if self._subscription is not None:
            await wire.unsubscribe([self._subscription])
            await wire.handled([self._subscription])

    async def _on_message(self, raw: Msg) -> None:
        self.replied = True
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
