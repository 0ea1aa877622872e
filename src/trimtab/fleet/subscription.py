"""What a subscriber holds: messages in order, each once, whatever moves underneath."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet import names
from trimtab.fleet.message import MESSAGE_ID, PREFIX, Message, stamped
from trimtab.migrate.catchup import Catchup
from trimtab.observe.report import TopicReport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as NatsSubscription

    Callback = Callable[[Message], Awaitable[None] | None]

log = logging.getLogger("trimtab.client")
PENDING_MESSAGES: Final = 65_536  # a subscriber that is slower than its topic keeps so many, and no more bytes than
PENDING_BYTES: Final = 64 * 1024 * 1024


class Subscription:
    """A live subscription to a topic. ``unsubscribe`` ends it."""

    def __init__(self, topic: str, callback: Callback, pending: int = PENDING_MESSAGES) -> None:
        self.topic = topic
        self.received = 0  # messages given to the callback
        self.dropped = 0  # messages that did not fit in memory, because the callback is too slow
        self.errors = 0  # exceptions of the callback
        self._bytes = 0
        self._delays: list[float] = []  # since the last report
        self._told = (0, 0)  # messages and bytes of all reports so far
        self._callback = callback
        self._pending = pending
        self._catchup = Catchup()
        self._waits = inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(
            getattr(callback, "__call__", None)  # noqa: B004  # an object with an async __call__
        )
        self._turn = asyncio.Lock()
        self._later: set[asyncio.Task[None]] = set()
        self._results: dict[str, int] = {}  # origin -> last message of which a processor's result was delivered
        self.history: deque[tuple[float, str, bool]] = deque(maxlen=64)  # loop's time, broker, joined or left
        self._on: dict[str, NatsSubscription] = {}  # broker -> subscription there; two while it moves

    @property
    def missed(self) -> int:
        """Messages that were numbered and never came."""
        return self._catchup.missed

    @property
    def duplicates(self) -> int:
        """Copies that were recognised and dropped."""
        return self._catchup.duplicates

    async def listen(self, broker: str, connection: Nats) -> None:
        """Also on this broker, from now on."""
        if broker not in self._on:
            self._on[broker] = await connection.subscribe(
                names.deliver(self.topic), cb=self._receive, pending_msgs_limit=self._pending,
                pending_bytes_limit=PENDING_BYTES,
            )  # fmt: skip

    def joined(self, broker: str) -> None:
        """The broker has confirmed it."""
        self.history.append((asyncio.get_running_loop().time(), broker, True))

    async def leave(self, broker: str) -> None:
        """No longer on this broker; what has arrived from it is still delivered."""
        subscription = self._on.pop(broker, None)
        if subscription is None:
            return
        self.history.append((asyncio.get_running_loop().time(), broker, False))
        try:
            await asyncio.wait_for(subscription.drain(), 5.0)
        except Exception as error:  # the broker is gone, and the subscription with it
            log.debug("leaving %s: %s", broker, error)

    def lost(self, broker: str) -> None:
        """The connection to this broker is gone, and the subscription with it."""
        self._on.pop(broker, None)

    def owns(self, subscription: object) -> bool:
        return any(each is subscription for each in self._on.values())

    async def _receive(self, raw: Msg) -> None:
        parts = raw.reply.split(".")
        if len(parts) == 5 and parts[0] == "_t" and len(parts[3]) < 16:  # nearly always, so not left to stamped()
            try:
                source, number = f"{parts[1]}.{parts[2]}", int(parts[3])
                sent_at = int(parts[4]) * 1e-6
                message = Message(self.topic, raw.data, parts[1], number, sent_at, source, number, source)
            except (ValueError, OverflowError):
                message = Message(self.topic, raw.data)
        elif raw.reply.startswith(PREFIX):
            message = stamped(self.topic, raw.data, raw.reply[3:])
        elif raw.headers and MESSAGE_ID in raw.headers:
            message = stamped(self.topic, raw.data, raw.headers[MESSAGE_ID])
        else:
            message = Message(self.topic, raw.data)
        ready = self._catchup.accept(message, time.monotonic())
        if len(ready) == 1 and message.origin is message.source:  # nearly always, so it is not left to _deliver()
            message = ready[0]
            self.received += 1
            self._bytes += len(message.data)
            self._delays.append(time.time() - message.sent_at)
            try:
                if self._waits:
                    async with self._turn:
                        await self._callback(message)  # type: ignore[misc]
                else:
                    self._callback(message)
            except Exception:
                self._failed(message)
        elif ready:
            if message.origin is not message.source:
                ready = [each for each in ready if self._is_new(each)]
            await self._deliver(ready)

    def _is_new(self, result: Message) -> bool:
        """After a crash two processors may work on one topic for a moment; nobody hears of it."""
        if self._results.get(result.origin, 0) >= result.seq:
            self._catchup.duplicates += 1
            return False
        self._results[result.origin] = result.seq
        return True

    async def tick(self) -> None:
        if self._catchup.holds:
            late: list[Any] = self._catchup.overdue(time.monotonic())
            await self._deliver([each for each in late if each.origin is each.source or self._is_new(each)])

    async def drop(self, raw: Any) -> None:
        """nats-py had no room for this one: it counts as come, so that nothing waits for it."""
        self.dropped += 1
        if raw.reply and raw.reply.startswith(PREFIX):
            dropped = stamped(self.topic, b"", raw.reply[3:])
            ready = self._catchup.skip(dropped.source, dropped.number, time.monotonic())
            if ready:  # not here: this is the connection's reader, and the callback is slow
                self._later.add(task := asyncio.create_task(self._deliver(ready)))
                task.add_done_callback(self._later.discard)

    async def _deliver(self, messages: Sequence[Any]) -> None:
        now = time.time()
        if self._waits:
            await self._turn.acquire()
        try:
            for message in messages:
                self.received += 1
                self._bytes += len(message.data)
                self._delays.append(now - message.sent_at)
                try:
                    if self._waits:
                        await self._callback(message)  # type: ignore[misc]
                    else:
                        self._callback(message)
                except Exception:
                    self._failed(message)
        finally:
            if self._waits:
                self._turn.release()

    def _failed(self, message: Message) -> None:
        self.errors += 1
        log.exception("the callback of topic %s failed on message %d of %s", self.topic, message.seq, message.publisher)

    def take_report(self) -> TopicReport:
        """What was delivered since the last time."""
        delays, self._delays = self._delays, []
        report = TopicReport(out_msgs=self.received - self._told[0], out_bytes=self._bytes - self._told[1])
        self._told = (self.received, self._bytes)
        report.latency.add_many([delay for delay in delays if delay >= 0.0])  # neither NaN nor clocks that disagree
        return report
