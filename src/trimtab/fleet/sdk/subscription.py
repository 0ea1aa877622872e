"""A live subscription: each message once and in order, also while routes move."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet.protocol import subjects, wire
from trimtab.fleet.protocol.message import Message, identified
from trimtab.fleet.sdk.delivery import Delivery
from trimtab.migrate.catchup import Catchup, Seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription as NatsSubscription

    from trimtab.fleet.protocol.message import Message
    from trimtab.fleet.sdk.delivery import Callback

PENDING_MESSAGES: Final = 65_536  # default limit of messages that wait for a slow callback
PENDING_BYTES: Final = 64 * 1024 * 1024  # limit of their bytes


class Subscription(Delivery):
    """A live subscription. ``Client.subscribe`` makes it; ``Client.unsubscribe`` ends it."""

    def __init__(self, topic: str, callback: Callback, pending: int = PENDING_MESSAGES) -> None:
        super().__init__(topic, callback, Catchup())
        self.history: deque[tuple[float, str, bool]] = deque(maxlen=64)  # event loop time, broker, True if joined
        self._pending = pending
        self._ready: deque[Message] = deque()  # messages in the order of delivery, for the callback to take
        self._results = Seen()  # messages whose processor result was delivered
        self._on: dict[str, NatsSubscription] = {}  # by broker; two during a move
        self._leaving: set[NatsSubscription] = set()  # subscriptions that are being drained

    async def listen(self, broker: str, connection: Nats) -> None:
        if broker not in self._on:
            self._on[broker] = await connection.subscribe(
                subjects.deliver(self.topic), cb=self._receive, pending_msgs_limit=self._pending,
                pending_bytes_limit=PENDING_BYTES,
            )  # fmt: skip

    def joined(self, broker: str) -> None:
        self.history.append((asyncio.get_running_loop().time(), broker, True))

    async def leave(self, broker: str) -> None:
        subscription = self._on.pop(broker, None)
        if subscription is None:
            return
        self.history.append((asyncio.get_running_loop().time(), broker, False))
        self._leaving.add(subscription)
        try:
            await wire.unsubscribe([subscription])
            await wire.handled([subscription])
        finally:
            self._leaving.discard(subscription)

    async def leave_all(self) -> None:
        for broker in list(self._on):
            await self.leave(broker)

    def lost(self, broker: str) -> None:
        self._on.pop(broker, None)

    def owns(self, subscription: object) -> bool:
        return any(open_ is subscription for open_ in (*self._on.values(), *self._leaving))

    async def _receive(self, raw: Msg) -> None:
        message = identified(self.topic, raw.data, raw.reply, raw.headers)
        ready = self._catchup.accept(message, time.monotonic())
        if message.origin is not message.source:
            ready = [result for result in ready if self._is_new(result)]
        if ready:
            await self._deliver(ready)

    def _is_new(self, result: Message) -> bool:
        """Whether no result of the same message was delivered before.

        After a crash, two processors may briefly work on one topic and both publish a result.
        """
        if self._results.is_new(result.origin, result.seq):
            return True
        self._catchup.duplicates += 1
        return False

    def tick(self) -> None:
        """Give up gaps that are too old, unless the missing messages may already wait in nats-py's queues."""
        waiting = any(subscription.pending_msgs for subscription in (*self._on.values(), *self._leaving))
        if self._catchup.holds and not waiting:
            late: list[Any] = self._catchup.overdue(time.monotonic())
            self._deliver_later(
                [message for message in late if message.origin is message.source or self._is_new(message)]
            )

    async def drop(self, raw: Any) -> None:
        """Count the dropped message as received, so that later messages do not wait for it."""
        self.dropped += 1
        dropped = identified(self.topic, b"", raw.reply, None)
        if dropped.source:
            # Not awaited: this runs in the connection's reader, and the callback is slow.
            self._deliver_later(self._catchup.skip(dropped.source, dropped.number, time.monotonic()))

    async def _deliver(self, messages: Sequence[Any]) -> None:
        """Return when these messages and all before them are delivered.

        The order of delivery is the order of these calls, not that of the tasks that are first to run: messages take
        their places before anything is awaited.
        """
        self._ready.extend(messages)
        async with self._turn:
            while self._ready:
                await self._call(self._ready.popleft())

    def _deliver_later(self, messages: Sequence[Any]) -> None:
        if messages:
            self._ready.extend(messages)
            self._later.start(self._deliver(()))

    async def _last(self) -> None:
        await self._deliver(())
