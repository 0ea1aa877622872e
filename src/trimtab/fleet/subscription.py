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
    from collections.abc import Awaitable, Callable

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
        self.fresh = TopicReport()
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
        reply = raw.reply
        if reply.startswith(PREFIX):
            message = stamped(self.topic, raw.data, reply[3:])
        elif raw.headers and MESSAGE_ID in raw.headers:
            message = stamped(self.topic, raw.data, raw.headers[MESSAGE_ID])
        else:
            message = Message(self.topic, raw.data)
        now = time.time()
        ready = self._catchup.accept(message, time.monotonic())
        if ready:
            if message.origin is not message.source:
                ready = [each for each in ready if self._is_new(each)]
            await self._deliver(ready, now)

    def _is_new(self, result: Message) -> bool:
        """After a crash two processors may work on one topic for a moment; nobody hears of it."""
        if self._results.get(result.origin, 0) >= result.seq:
            self._catchup.duplicates += 1
            return False
        self._results[result.origin] = result.seq
        return True

    async def tick(self, now: float) -> None:
        if self._catchup.holds:
            late: list[Any] = self._catchup.overdue(time.monotonic())
            await self._deliver([each for each in late if each.origin is each.source or self._is_new(each)], now)

    async def drop(self, raw: Any) -> None:
        """nats-py had no room for this one: it counts as come, so that nothing waits for it."""
        self.dropped += 1
        if raw.reply and raw.reply.startswith(PREFIX):
            now = time.time()
            dropped = stamped(self.topic, b"", raw.reply[3:])
            ready = self._catchup.skip(dropped.source, dropped.number, time.monotonic())
            if ready:  # not here: this is the connection's reader, and the callback is slow
                self._later.add(task := asyncio.create_task(self._deliver(ready, now)))
                task.add_done_callback(self._later.discard)

    async def _deliver(self, messages: Any, now: float) -> None:
        if self._waits:
            async with self._turn:
                for message in messages:
                    self._count(message, now)
                    try:
                        await self._callback(message)  # type: ignore[misc]
                    except Exception:
                        self._failed(message)
        else:
            for message in messages:
                self._count(message, now)
                try:
                    self._callback(message)
                except Exception:
                    self._failed(message)

    def _count(self, message: Message, now: float) -> None:
        self.received += 1
        fresh = self.fresh
        fresh.out_msgs += 1
        fresh.out_bytes += len(message.data)
        delay = now - message.sent_at
        if delay >= 0.0:  # NaN and clocks that disagree are left out
            fresh.latency.add(delay)

    def _failed(self, message: Message) -> None:
        self.errors += 1
        log.exception("the callback of topic %s failed on message %d of %s", self.topic, message.seq, message.publisher)

    def take_report(self) -> TopicReport:
        report, self.fresh = self.fresh, TopicReport()
        return report
