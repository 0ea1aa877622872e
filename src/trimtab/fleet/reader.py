"""A durable reader of a persistent topic: at least once over restarts, once and in order over moves."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import time
from typing import TYPE_CHECKING, Any, Final

import nats.errors
from nats.js.errors import APIError, NotFoundError

from trimtab.fleet import names
from trimtab.fleet.message import MESSAGE_ID, Message, stamped
from trimtab.fleet.store import Store
from trimtab.migrate.catchup import Catchup
from trimtab.observe.report import TopicReport

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg

    from trimtab.fleet.subscription import Callback

log = logging.getLogger("trimtab.client")
BATCH: Final = 256
WAIT_S: Final = 1.0  # of one request for messages
AGAIN_S: Final = 0.05


class _Read(Message):
    """A message together with what must be acknowledged when it has been read."""

    __slots__ = ("raw",)
    raw: Any


class Reader:
    """A subscription whose position is kept by the broker under the name ``durable``."""

    def __init__(self, topic: str, callback: Callback, durable: str) -> None:
        self.topic = topic
        self.durable = durable
        self.received = 0
        self.errors = 0
        self.dropped = 0  # never: what is not fetched stays stored
        self.fresh = TopicReport()
        self._callback = callback
        self._catchup = Catchup()
        self._turn = asyncio.Lock()
        self._on: dict[str, asyncio.Task[None]] = {}  # broker -> reading there
        self._ending: set[str] = set()
        self._begun = False

    @property
    def missed(self) -> int:
        return self._catchup.missed

    @property
    def duplicates(self) -> int:
        return self._catchup.duplicates

    async def listen(self, broker: str, connection: Nats) -> None:
        """Read there. Only the first time is the position made; after a move it has come along."""
        if broker not in self._on:
            if not self._begun:
                await Store(connection).add_consumer(self.topic, broker, self.durable)
                self._begun = True
            self._ending.discard(broker)
            self._on[broker] = asyncio.create_task(self._read(broker, connection))

    async def leave(self, broker: str) -> None:
        task = self._on.pop(broker, None)
        if task is None:
            return
        self._ending.add(broker)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(task), WAIT_S + 1.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._ending.discard(broker)

    def owns(self, subscription: object) -> bool:
        return False

    async def drop(self, raw: Any) -> None:
        raise NotImplementedError("a reader fetches no more than it can hold")

    async def tick(self, now: float) -> None:
        if self._catchup.holds:
            async with self._turn:
                for message in self._catchup.overdue(now):
                    await self._give(message)  # type: ignore[arg-type]

    async def _read(self, broker: str, connection: Nats) -> None:
        jetstream = connection.jetstream(domain=broker, timeout=2)
        source: Any = None
        while broker not in self._ending:
            try:
                if source is None:
                    await jetstream.consumer_info(names.stream(self.topic), self.durable)
                    source = await jetstream.pull_subscribe_bind(self.durable, names.stream(self.topic))
                batch = await source.fetch(BATCH, timeout=WAIT_S)
            except (nats.errors.TimeoutError, asyncio.TimeoutError):
                continue
            except (NotFoundError, APIError, nats.errors.Error, OSError) as error:
                log.debug("reading %s at %s: %s", self.topic, broker, error)
                if source is not None:
                    with contextlib.suppress(Exception):
                        await source.unsubscribe()
                source = None
                await asyncio.sleep(AGAIN_S)
                continue
            async with self._turn:
                for raw in batch:
                    await self._accept(raw)
        if source is not None:
            with contextlib.suppress(Exception):
                await source.unsubscribe()

    async def _accept(self, raw: Msg) -> None:
        plain = stamped(self.topic, raw.data, (raw.headers or {}).get(MESSAGE_ID, ""))
        message = _Read(
            plain.topic, plain.data, plain.publisher, plain.seq, plain.sent_at, plain.source, plain.number
        )
        message.raw = raw
        before = self._catchup.duplicates
        for ready in self._catchup.accept(message, time.time()):
            await self._give(ready)
        if self._catchup.duplicates > before:
            await _done(raw)

    async def _give(self, message: _Read) -> None:
        self.received += 1
        self.fresh.out_msgs += 1
        self.fresh.out_bytes += len(message.data)
        delay = time.time() - message.sent_at
        if delay >= 0.0:
            self.fresh.latency.add(delay)
        try:
            result = self._callback(message)
            if inspect.isawaitable(result):
                await result
        except Exception:
            self.errors += 1
            log.exception("the callback of topic %s failed on message %d", self.topic, message.seq)
        await _done(message.raw)

    def take_report(self) -> TopicReport:
        report, self.fresh = self.fresh, TopicReport()
        return report


async def _done(raw: Msg) -> None:
    with contextlib.suppress(Exception):  # not acknowledged comes again, and is recognised
        await raw.ack()
