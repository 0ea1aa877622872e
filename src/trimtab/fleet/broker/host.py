"""A topic's processor at one broker: what comes in, the spool, what goes out, and how it is handed over.

A handover loses nothing and processes nothing twice. The target listens along before the source stops, so every
message reaches at least one of them; the source stops, finishes what it has, and sends its positions with the
spool; the target then drops what the source has done and goes on with the rest.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet import tasks
from trimtab.fleet.broker.processing.processor import TopicProcessor
from trimtab.fleet.protocol import names
from trimtab.fleet.protocol.message import MESSAGE_ID, PREFIX, Message, stamped
from trimtab.fleet.protocol.streams import ACK_S
from trimtab.migrate.catchup import Catchup
from trimtab.observe.report import TopicReport

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from trimtab.fleet.protocol.registry import Topic

log = logging.getLogger("trimtab.agent")
REASON: Final = "Trimtab-Reason"
MOST_ALONG: Final = 100_000  # messages kept while listening along


class Host:
    """One topic's processor here. ``live`` processes, otherwise it listens along and keeps."""

    def __init__(self, connection: Nats, broker: str, topic: Topic) -> None:
        self.topic = topic
        self.live = False
        self.fresh = TopicReport()  # since the last report
        self._connection = connection
        self._broker = broker
        if topic.unit != "topic":  # a publisher comes and goes, and what it sent elsewhere is not missing here
            self._catchup = Catchup(wait_s=0.0)
        elif topic.persistent:  # its publisher repeats what is missing until it is stored
            self._catchup = Catchup(ACK_S, keep_late=True)
        else:
            self._catchup = Catchup()
        self._along: list[Message] = []
        self._subscriptions: list[Subscription] = []
        self._identity = secrets.token_hex(6)  # whose results these are; goes along in a handover
        self._results = 0
        self._counted = (0, 0, 0.0)
        self._acks: dict[tuple[str, int], str] = {}  # (source, number) -> where its publisher waits for an answer
        self._outbox: asyncio.Queue[tuple[Message, bytes | None]] = asyncio.Queue()
        self._storing: asyncio.Task[None] | None = None
        self._sending = tasks.Background(f"topic {topic.name}", log)
        self._processor = TopicProcessor(
            topic.name, topic.processor, spool_size=topic.spool, limit_s=topic.limit_ms / 1000.0,
            on_result=self._on_result, on_dead=self._on_dead,
        )  # fmt: skip

    async def start(self, *, live: bool) -> None:
        """Load the function (refused if it cannot be) and listen."""
        await self._processor.start()
        self.live = live
        name = self.topic.name
        if self.topic.unit == "topic":
            await self._listen(names.work(name), self._on_work)
        else:  # at its publishers' homes, all with the same spool
            await self._listen(names.home(self._broker, name), self._on_work)
            if self.topic.spool:
                await self._listen(names.spool(name), self._on_copy)
        if self.topic.persistent:
            self._storing = asyncio.create_task(self._store_results())
        await self._connection.flush()

    async def _listen(self, subject: str, handle: Any) -> None:
        self._subscriptions.append(await self._connection.subscribe(subject, cb=handle))

    async def release(self) -> dict[str, Any]:
        """Stop, finish what has come, and tell all a successor needs."""
        self.live = False  # what comes from now on is the target's; it is kept in case the move comes to nothing
        held: list[Any] = self._catchup.held()
        await self._processor.drained()
        await self._outbox.join()
        await self._connection.flush()
        return {
            "identity": self._identity,
            "results": self._results,
            "positions": self._catchup.positions(),
            "given_up": self._catchup.given_up(),
            "held": [_packed(message) for message in held],
            "spool": [_packed(message) for message in self._processor.spool],
        }

    async def take(self, state: dict[str, Any]) -> None:
        """Go on where the source stopped."""
        if self.live:
            return
        self._identity, self._results = state["identity"], int(state["results"])
        for packed in state["spool"]:
            self._processor.remember(_unpacked(self.topic.name, packed))
        self._catchup.resume({source: int(number) for source, number in state["positions"].items()}, state["given_up"])
        for known in [known for known in self._acks if self._catchup.done(*known)]:  # the source has stored these
            await self._connection.publish(self._acks.pop(known), b"{}")
        self.live = True
        for packed in state["held"]:
            self._accept(_unpacked(self.topic.name, packed))
        self._catch_up()

    async def resume(self) -> None:
        """Serve again after a release that came to nothing."""
        if not self.live:
            self.live = True
            self._catch_up()

    def _catch_up(self) -> None:
        """What has come while it was not live."""
        waiting, self._along = self._along, []
        for message in waiting:
            self._accept(message)

    async def stop(self) -> None:
        for subscription in self._subscriptions:
            with contextlib.suppress(Exception):
                await subscription.unsubscribe()
        self._subscriptions.clear()
        if self._storing is not None:
            await tasks.end(self._storing)
        await self._processor.stop()

    def tick(self) -> None:
        """A few times a second: gaps that will not be filled must not hold up the rest."""
        if self.live and self._catchup.holds:
            for message in self._catchup.overdue(time.monotonic()):
                self._submit(message)  # type: ignore[arg-type]

    def report(self) -> TopicReport:
        """What was processed since the last time."""
        now = (self._processor.processed, self._processor.dead, self._processor.busy_s)
        report = TopicReport(processed=now[0] - self._counted[0], dead=now[1] - self._counted[1],
                             busy_s=now[2] - self._counted[2])  # fmt: skip
        self._counted = now
        return report

    async def drained(self) -> None:
        """When everything that has come so far is processed and its results are on their way."""
        await self._processor.drained()
        await self._connection.flush()

    async def _on_work(self, raw: Msg) -> None:
        stamp = raw.reply.removeprefix(PREFIX)
        if raw.headers and MESSAGE_ID in raw.headers:  # its publisher waits for an answer at the reply subject
            stamp = raw.headers[MESSAGE_ID]
        message = stamped(self.topic.name, raw.data, stamp)
        if self.topic.persistent and raw.reply:
            known = (message.source, message.number)
            if self.live and self._catchup.done(*known) and known not in self._acks:
                await self._connection.publish(raw.reply, b"{}")
            else:
                self._acks[known] = raw.reply
        if self.live:
            self._accept(message)
        else:
            self._along.append(message)
            del self._along[:-MOST_ALONG]

    async def _on_copy(self, raw: Msg) -> None:
        """Another broker's publisher sent it, and its home processes it; here it only joins the spool."""
        origin, _, stamp = raw.reply.removeprefix(PREFIX).partition(".")
        if origin != self._broker:
            self._processor.remember(stamped(self.topic.name, raw.data, stamp))

    def _accept(self, message: Message) -> None:
        for ready in self._catchup.accept(message, time.monotonic()):
            self._submit(ready)

    def _submit(self, message: Message) -> None:
        self._processor.submit(message)
        if self.topic.unit != "topic" and self.topic.spool:
            self._send(names.spool(self.topic.name), message.data, f"{PREFIX}{self._broker}.{message.stamp}")

    def _on_result(self, message: Message, result: bytes | None) -> None:
        if self.topic.persistent:
            self._outbox.put_nowait((message, result))
        elif result is not None:
            self._results += 1
            stamp = f"{message.stamp}.{self._identity}.{self._results}" if message.source else ""
            self._send(names.deliver(self.topic.name), result, f"{PREFIX}{stamp}" if stamp else "")

    def _on_dead(self, message: Message, reason: str) -> None:
        headers = {
            REASON: " ".join(reason.split()),
            "Trimtab-Publisher": message.publisher,
            "Trimtab-Seq": str(message.seq),
        }
        self._send(names.dead(self.topic.name), message.data, "", headers)
        if self.topic.persistent:
            self._outbox.put_nowait((message, None))

    def _send(self, subject: str, data: bytes, reply: str, headers: dict[str, str] | None = None) -> None:
        # publish() only waits when the socket is congested; a task keeps the order, as tasks start in order.
        self._sending.start(self._connection.publish(subject, data, reply=reply, headers=headers))

    async def _store_results(self) -> None:
        """Results of a persistent topic go to its stream, one after the other, until they are there."""
        while True:
            message, result = await self._outbox.get()
            try:
                if result is not None:
                    await self._store(message, result)
                answer = self._acks.pop((message.source, message.number), "")
                if answer:
                    await self._connection.publish(answer, b"{}")
            finally:
                self._outbox.task_done()

    async def _store(self, message: Message, result: bytes) -> None:
        self._results += 1
        stamp = f"{message.stamp}.{self._identity}.{self._results}"
        while True:
            try:
                await self._connection.request(
                    names.keep(self._broker, self.topic.name), result, timeout=1.0, headers={MESSAGE_ID: stamp}
                )
                return
            except Exception:  # the store is away; the message must not be
                await asyncio.sleep(0.1)


def _packed(message: Message) -> list[str]:
    return [base64.b64encode(message.data).decode(), message.stamp if message.source else ""]


def _unpacked(topic: str, packed: list[str]) -> Message:
    return stamped(topic, base64.b64decode(packed[0]), packed[1])
