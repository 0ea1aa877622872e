"""A topic's processor at one broker: its input, its spool, its results, and its handover to another broker.

A handover loses no message and processes none twice. The target subscribes before the source stops, so every message
reaches at least one of them. The source stops, finishes the messages it has, and sends its positions and the spool. The
target then drops the messages that the source has processed and continues with the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.fleet import tasks
from trimtab.fleet.broker.processing.processor import TopicProcessor
from trimtab.fleet.protocol import subjects, wire
from trimtab.fleet.protocol.message import MESSAGE_ID, Message, as_reply, copied, copy_reply, identified, stamped
from trimtab.fleet.protocol.streams import ACK_S
from trimtab.migrate.catchup import Catchup
from trimtab.observe.report import TopicReport

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from trimtab.fleet.protocol.entries import Topic

log = logging.getLogger("trimtab.agent")
REASON: Final = "Trimtab-Reason"
HEADER_ROOM: Final = 512  # bytes of the server's message limit that are reserved for the header of a result
MOST_REASON: Final = 500  # characters of the reason that are sent with a dead message
DEAD_HEADER_ROOM: Final = 4 * MOST_REASON + HEADER_ROOM
MOST_ALONG: Final = 100_000  # messages kept by a host that is not live


class KeptMessage(msgspec.Struct, array_like=True):
    """A message in a handover. The stamp is empty if the message is anonymous."""

    data: bytes
    stamp: str


class HostState(msgspec.Struct):
    """The state that the target of a handover needs to continue."""

    identity: str  # source of the results
    results: int  # number of results so far
    positions: dict[str, int]  # source -> number of its last message that has been processed
    given_up: dict[str, list[int]]  # source -> numbers of missing earlier messages that may still arrive
    held: list[KeptMessage]  # messages that wait for earlier ones
    spool: list[KeptMessage]


class Host:
    """One topic's processor at this broker. A host that is not ``live`` keeps the messages and processes none."""

    def __init__(self, connection: Nats, broker: str, topic: Topic) -> None:
        self.topic = topic
        self.live = False
        self._connection = connection
        self._broker = broker
        if not topic.whole:  # a publisher may change its broker, so a gap in its numbers is normal
            self._catchup = Catchup(wait_s=0.0)
        elif topic.persistent:  # its publisher repeats a missing message until it is stored
            self._catchup = Catchup(ACK_S, keep_late=True)
        else:
            self._catchup = Catchup()
        self._along: list[Message] = []
        self._subscriptions: list[Subscription] = []
        self._identity = secrets.token_hex(6)  # source of the results; kept in a handover
        self._results = 0
        self._counted = (0, 0, 0.0)  # processed, dead and busy seconds in all reports so far
        self._fresh = TopicReport()  # results since the last report
        self._acks: dict[tuple[str, int], str] = {}  # (source, number) -> reply subject of the acknowledgement
        self._outbox: asyncio.Queue[tuple[Message, bytes | None]] = asyncio.Queue()
        self._storing: asyncio.Task[None] | None = None
        self._sending = tasks.Background(f"topic {topic.name}", log)
        self._processor = TopicProcessor(
            topic.name, topic.processor, spool_size=topic.spool, limit_s=topic.limit_ms / 1000.0,
            most_bytes=connection.max_payload - HEADER_ROOM, on_result=self._on_result, on_dead=self._on_dead,
        )  # fmt: skip

    async def start(self, *, live: bool) -> None:
        """Load the function and subscribe to the topic's input; refused if the function cannot be loaded."""
        await self._processor.start()
        self.live = live
        name = self.topic.name
        if self.topic.whole:
            await self._listen(subjects.work(name), self._on_work)
        else:  # one host at every broker, all with the same spool
            await self._listen(subjects.home(self._broker, name), self._on_work)
            if self.topic.spool:
                await self._listen(subjects.spool(name), self._on_copy)
        if self.topic.persistent:
            self._storing = asyncio.create_task(self._store_results())
        await wire.confirmed(self._connection)

    async def _listen(self, subject: str, handle: Any) -> None:
        self._subscriptions.append(await self._connection.subscribe(subject, cb=handle))

    async def release(self) -> HostState:
        """Stop, finish the received messages, and return the state for the target."""
        self.live = False  # the target processes later messages; they are kept here in case the move fails
        held: list[Any] = self._catchup.held()
        await self._processor.drained()
        await self._outbox.join()
        await wire.confirmed(self._connection)
        return HostState(
            self._identity, self._results, self._catchup.positions(), self._catchup.given_up(),
            [_kept(message) for message in held], [_kept(message) for message in self._processor.spool],
        )  # fmt: skip

    async def take(self, state: HostState, *, live: bool = True) -> None:
        """Take the state of the source and, if ``live``, continue from it; else ``resume`` does."""
        if self.live:
            return
        self._identity, self._results = state.identity, state.results
        for kept in state.spool:
            self._processor.remember(stamped(self.topic.name, kept.data, kept.stamp))
        self._catchup.resume(state.positions, state.given_up)
        for identity in [identity for identity in self._acks if self._catchup.done(*identity)]:  # stored by the source
            await self._connection.publish(self._acks.pop(identity), b"{}")
        self._along[:0] = [stamped(self.topic.name, kept.data, kept.stamp) for kept in state.held]
        if live:
            await self.resume()

    async def resume(self) -> None:
        """Process again after a move that failed."""
        if not self.live:
            self.live = True
            self._catch_up()

    def _catch_up(self) -> None:
        """Process the messages that arrived while this host was not live."""
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
        """Give up gaps that are too old, so that they do not delay later messages; called a few times a second."""
        if self.live and self._catchup.holds:
            for message in self._catchup.overdue(time.monotonic()):
                self._submit(message)  # type: ignore[arg-type]

    def report(self) -> TopicReport:
        """Counts of processed messages and published results since the last call."""
        report, self._fresh = self._fresh, TopicReport()
        processed, dead, busy_s = self._counted
        processor = self._processor
        now = (processor.processed + processor.dead, processor.dead, processor.busy_s)
        report.processed, report.dead, report.busy_s = now[0] - processed, now[1] - dead, now[2] - busy_s
        self._counted = now
        return report

    async def drained(self) -> None:
        """Wait until all received messages are processed and their results are sent."""
        await self._processor.drained()
        await wire.confirmed(self._connection)

    async def _on_work(self, raw: Msg) -> None:
        message = identified(self.topic.name, raw.data, raw.reply, raw.headers)
        if self.topic.persistent and raw.reply:  # its publisher waits for an acknowledgement
            identity = (message.source, message.number)
            if self.live and self._catchup.done(*identity) and identity not in self._acks:
                await self._connection.publish(raw.reply, b"{}")
            else:
                self._acks[identity] = raw.reply
        if self.live:
            self._accept(message)
        else:
            self._along.append(message)
            del self._along[:-MOST_ALONG]

    async def _on_copy(self, raw: Msg) -> None:
        """Add a message to the spool that another broker processes, because its publisher is at home there."""
        origin, message = copied(self.topic.name, raw.data, raw.reply)
        if origin != self._broker:
            self._processor.remember(message)

    def _accept(self, message: Message) -> None:
        for ready in self._catchup.accept(message, time.monotonic()):
            self._submit(ready)

    def _submit(self, message: Message) -> None:
        self._processor.submit(message)
        if not self.topic.whole and self.topic.spool:
            self._send(subjects.spool(self.topic.name), message.data, copy_reply(self._broker, message))

    def _on_result(self, message: Message, result: bytes | None) -> None:
        if self.topic.persistent:
            self._outbox.put_nowait((message, result))
        elif result is not None:
            self._results += 1
            stamp = message.result_stamp(self._identity, self._results)
            self._send(subjects.deliver(self.topic.name), result, as_reply(stamp))
            self._count(result)

    def _count(self, result: bytes) -> None:
        self._fresh.result_msgs += 1
        self._fresh.result_bytes += len(result)

    def _on_dead(self, message: Message, reason: str) -> None:
        headers = {
            REASON: " ".join(reason.split())[:MOST_REASON],
            "Trimtab-Publisher": message.publisher,
            "Trimtab-Seq": str(message.seq),
        }
        room = self._connection.max_payload - DEAD_HEADER_ROOM
        if len(message.data) > room:  # with the headers, the server would refuse it and close the connection
            headers["Trimtab-Size"] = str(len(message.data))
        self._send(subjects.dead(self.topic.name), message.data[:room], "", headers)
        if self.topic.persistent:
            self._outbox.put_nowait((message, None))

    def _send(self, subject: str, data: bytes, reply: str, headers: dict[str, str] | None = None) -> None:
        # publish() only waits when the socket is congested. Tasks start in order, so the messages keep their order.
        self._sending.start(self._connection.publish(subject, data, reply=reply, headers=headers))

    async def _store_results(self) -> None:
        """Store the results of a persistent topic in its stream, in order; each is repeated until it is stored."""
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
        # The result of a message without identity is stored without a message id.
        stamp = message.result_stamp(self._identity, self._results)
        headers = {MESSAGE_ID: stamp} if stamp else None
        while True:
            try:
                reply = await self._connection.request(
                    subjects.keep(self._broker, self.topic.name), result, timeout=1.0, headers=headers
                )
                if "error" not in json.loads(reply.data):
                    self._count(result)
                    return
            except Exception:  # the store is unreachable; the result must not be lost
                pass
            await asyncio.sleep(0.1)


def _kept(message: Message) -> KeptMessage:
    return KeptMessage(message.data, message.stamp if message.source else "")
