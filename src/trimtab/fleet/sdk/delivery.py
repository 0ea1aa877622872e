"""The base class of live subscriptions and durable readers: order, counts, the callback, the report."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from trimtab.fleet import tasks
from trimtab.fleet.sdk import callbacks
from trimtab.observe.report import TopicReport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client as Nats

    from trimtab.fleet.protocol.message import Message
    from trimtab.migrate.catchup import Catchup

    Callback = Callable[[Message], Awaitable[None] | None]

log = logging.getLogger("trimtab.client")


class Delivery(ABC):
    """Delivers the messages of one topic to one callback, each once and in order."""

    def __init__(self, topic: str, callback: Callback, catchup: Catchup) -> None:
        self.topic = topic
        self.received = 0  # messages passed to the callback
        self.dropped = 0  # messages dropped at the limit of pending messages, because the callback is too slow
        self.errors = 0  # exceptions raised by the callback
        self._callback = callback
        self._catchup = catchup
        self._turn = asyncio.Lock()  # held while a message is delivered: one at a time
        self._later = tasks.Background(f"topic {topic}", log)  # deliveries that nobody waits for
        self._bytes = 0
        self._delays: list[float] = []  # since the last report
        self._reported = (0, 0)  # messages and bytes counted in all reports so far

    @property
    def missed(self) -> int:
        """Messages that never arrived, found by gaps in the sequence numbers."""
        return self._catchup.missed

    @property
    def duplicates(self) -> int:
        """Copies that were recognised and dropped."""
        return self._catchup.duplicates

    # Called by the client. A subclass overrides the optional ones that it needs.

    @abstractmethod
    async def listen(self, broker: str, connection: Nats) -> None:
        """Receive messages from this broker too."""

    def joined(self, broker: str) -> None:  # noqa: B027  # a reader leaves it out
        """The broker has confirmed the link."""

    @abstractmethod
    async def leave(self, broker: str) -> None:
        """Stop receiving from this broker; messages that have arrived are still delivered."""

    @abstractmethod
    async def leave_all(self) -> None:
        """Stop receiving from all brokers."""

    async def finish(self) -> None:
        """Stop receiving from all brokers, and deliver what has arrived."""
        try:
            await self.leave_all()
            await self._last()
        finally:
            await self._later.end()

    @abstractmethod
    async def _last(self) -> None:
        """Wait for the deliveries that nobody waits for."""

    @abstractmethod
    def lost(self, broker: str) -> None:
        """The connection to this broker is lost for good."""

    def owns(self, subscription: object) -> bool:
        """Whether this nats-py subscription belongs to this delivery."""
        return False

    async def drop(self, raw: Any) -> None:  # noqa: B027
        """nats-py has dropped a message because too many are pending."""

    @abstractmethod
    def tick(self) -> None:
        """Called a few times a second. It never waits for the callback: the same timer detects a lost home."""

    # Shared by the subclasses.

    async def _call(self, message: Message) -> bool:
        """Pass a message to the callback. Return False if the callback raised an exception."""
        self.received += 1
        self._bytes += len(message.data)
        self._delays.append(time.time() - message.sent_at)
        of = "topic %s failed on message %d of %s"
        if await callbacks.call(self._callback, (message,), of, self.topic, message.seq, message.publisher):
            return True
        self.errors += 1
        return False

    def take_report(self) -> TopicReport:
        """The report of messages delivered since the last call."""
        delays, self._delays = self._delays, []
        report = TopicReport(out_msgs=self.received - self._reported[0], out_bytes=self._bytes - self._reported[1])
        self._reported = (self.received, self._bytes)
        report.latency.add_many([delay for delay in delays if delay >= 0.0])  # without NaN and clock errors
        return report
