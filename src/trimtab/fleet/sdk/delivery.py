"""What a live subscription and a durable reader have in common: order, counts, the callback, the report."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from trimtab.observe.report import TopicReport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client as Nats

    from trimtab.fleet.protocol.message import Message
    from trimtab.migrate.catchup import Catchup

    Callback = Callable[[Message], Awaitable[None] | None]

log = logging.getLogger("trimtab.client")


class Delivery(ABC):
    """Messages of one topic, each once and in order, to one callback."""

    def __init__(self, topic: str, callback: Callback, catchup: Catchup) -> None:
        self.topic = topic
        self.received = 0  # messages given to the callback
        self.dropped = 0  # messages that did not fit in memory, because the callback is too slow
        self.errors = 0  # exceptions of the callback
        self._callback = callback
        self._catchup = catchup
        self._waits = inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
            getattr(callback, "__call__", None)  # noqa: B004  # an object with an async __call__
        )
        self._turn = asyncio.Lock()  # one message at a time
        self._bytes = 0
        self._delays: list[float] = []  # since the last report
        self._told = (0, 0)  # messages and bytes of all reports so far

    @property
    def missed(self) -> int:
        """Messages that were numbered and never came."""
        return self._catchup.missed

    @property
    def duplicates(self) -> int:
        """Copies that were recognised and dropped."""
        return self._catchup.duplicates

    # What the client tells it. A reader that needs no part of it leaves it out.

    @abstractmethod
    async def listen(self, broker: str, connection: Nats) -> None:
        """Get messages from this broker too."""

    def joined(self, broker: str) -> None:  # noqa: B027  # a reader leaves it out
        """The broker has confirmed it."""

    @abstractmethod
    async def leave(self, broker: str) -> None:
        """No longer from this broker; what has arrived is still delivered."""

    @abstractmethod
    async def leave_all(self) -> None:
        """Nor from any."""

    @abstractmethod
    def lost(self, broker: str) -> None:
        """The connection to this broker is gone."""

    def owns(self, subscription: object) -> bool:
        """Whether this subscription of nats-py is one of its own."""
        return False

    async def drop(self, raw: Any) -> None:  # noqa: B027
        """nats-py had no room for a message."""

    @abstractmethod
    async def tick(self) -> None:
        """A few times a second."""

    # What they share.

    async def _call(self, message: Message) -> bool:
        """Give a message to the callback; whether it took it."""
        self.received += 1
        self._bytes += len(message.data)
        self._delays.append(time.time() - message.sent_at)
        try:
            if self._waits:
                await self._callback(message)  # type: ignore[misc]
            else:
                self._callback(message)
        except Exception:
            self.errors += 1
            log.exception(
                "the callback of topic %s failed on message %d of %s", self.topic, message.seq, message.publisher
            )
            return False
        return True

    def take_report(self) -> TopicReport:
        """What was delivered since the last time."""
        delays, self._delays = self._delays, []
        report = TopicReport(out_msgs=self.received - self._told[0], out_bytes=self._bytes - self._told[1])
        self._told = (self.received, self._bytes)
        report.latency.add_many([delay for delay in delays if delay >= 0.0])  # neither NaN nor clocks that disagree
        return report
