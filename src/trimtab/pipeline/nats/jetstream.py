"""A JetStream client for bulk transfer: reads stored messages into columns, and publishes with acknowledgements.

nats-py costs an object, a queue entry and a task switch per message, while a Spark task needs columns;
benchmarks/nats_source.py measures the difference. This client has no event loop, so any thread can use it, one at a
time.
"""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import BadInput, UnknownName, Unreachable
from trimtab.fleet.protocol import subjects
from trimtab.pipeline.nats.answers import NOT_FOUND, checked, code, passes, reason
from trimtab.pipeline.nats.publishing import WINDOW_BYTES, UnacknowledgedMessages, frame
from trimtab.pipeline.nats.reading import Consumer, Direct, NotAllowed, Rows
from trimtab.pipeline.nats.wire import Broken, Server, Wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BATCH: Final = 4_000  # most messages of one request
FEW: Final = 2_000  # most messages that are read faster without a consumer
WINDOW: Final = 4_000  # most published messages that await acknowledgement
GROUP: Final = 500  # messages sent with one system call
ATTEMPTS: Final = 10  # failures in a row; with the waits between them about seven seconds
LONGEST_WAIT_S: Final = 1.0
ENDLESS: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class StreamState:
    first: int  # sequence; last + 1 if the stream is empty
    last: int  # sequence of the last message ever stored
    messages: int  # number of messages still stored


class JetStream:
    """A connection that reconnects when it breaks: every request made here can be repeated without harm."""

    def __init__(self, server: Server, attempts: int = ATTEMPTS) -> None:
        self.server = server
        self._attempts = attempts
        self.prefix = subjects.jetstream_api(server.domain)
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._requests = 0  # requests so far; gives every request its own reply subject
        self.wire: Wire | None = None

    def __enter__(self) -> JetStream:
        failures = 0
        while self.wire is None:
            try:
                self.connected()
            except (Broken, OSError) as error:
                failures = self._failed(failures, error)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
            self.wire = None

    def info(self, stream: str) -> StreamState:
        _check_name(stream)
        answer = self._ask(f"STREAM.INFO.{stream}")
        if code(answer) == NOT_FOUND:
            raise UnknownName("stream", stream, self._ask("STREAM.NAMES").get("streams") or ["none"])
        state = checked(answer)["state"]
        last, messages = int(state["last_seq"]), int(state["messages"])
        return StreamState(int(state["first_seq"]) if messages else last + 1, last, messages)

    def read(self, stream: str, low: int, high: int, batch: int = BATCH) -> Iterator[Rows]:
        """All messages with ``low`` <= sequence <= ``high`` that still exist, once each and in order.

        A few messages are read by direct get, which creates no state at the server but needs ``allow_direct`` of the
        stream. Many messages, or any without ``allow_direct``, are read through a consumer that is deleted after this
        read; it costs the server less than half per message. The replica that replies may be behind. If the end of the
        range seems not to exist, the stream's leader is therefore asked.
        """
        _check_name(stream)
        at, failures = max(low, 1), 0
        source = Consumer(self, stream) if high - at >= FEW else Direct(self, stream)
        try:
            while at <= high:
                rows = Rows()
                following: int | None = None
                trouble: Exception | None = None
                try:
                    following = source.fetch(at, high, batch, rows)
                except NotAllowed:
                    source = Consumer(self, stream)
                    continue
                except Unreachable:  # which is an OSError too
                    raise
                except (Broken, OSError) as error:
                    trouble = error
                if rows:  # including messages received before a failure
                    at, failures = rows.seq[-1] + 1, 0
                    yield rows
                if trouble is None and following is None and at <= high:
                    following = self._following(stream, at)
                    if following <= high:
                        trouble = Broken(f"the replica that replies for stream '{stream}' is behind the leader")
                if trouble is None:
                    at = max(at, following or 0)
                else:
                    failures = self._failed(failures, trouble)
        finally:
            source.close()

    def _following(self, stream: str, at: int) -> int:
        """The first existing sequence from ``at`` on, according to the stream's leader; ``ENDLESS`` without any."""
        answer = self._ask(f"STREAM.MSG.GET.{stream}", {"seq": at, "next_by_subj": ">"})
        if code(answer) == NOT_FOUND:
            self.info(stream)  # raises if the stream, not the message, is missing
            return ENDLESS
        return int(checked(answer)["message"]["seq"])

    def publish(self, messages: Iterable[tuple[str, bytes, str]]) -> int:
        """Store (subject, data, message id), wait for all acknowledgements, and return the number of duplicates.

        A duplicate is a message that was stored already. When the connection breaks, all unacknowledged messages are
        sent again. Within its duplicate window, the stream does not store a message id twice. Messages that were sent
        again are never counted as duplicates. Messages are stored in the order given, unless the stream itself is
        unavailable for a moment.
        """
        unacknowledged = UnacknowledgedMessages()
        for subject, data, message_id in messages:
            reply = self._reply()
            unacknowledged.add(reply.encode(), frame(subject, reply, data, message_id, self._max_payload()))
            if len(unacknowledged.unsent) >= GROUP or unacknowledged.size > WINDOW_BYTES:
                self._settle(unacknowledged, WINDOW - GROUP)
        self._settle(unacknowledged, 0)
        return unacknowledged.duplicates

    def _max_payload(self) -> int:
        return self.wire.max_payload if self.wire is not None else ENDLESS

    def _settle(self, unacknowledged: UnacknowledgedMessages, most: int) -> None:
        """Send the unsent messages, and wait until no more than ``most`` await acknowledgement."""
        failures = 0
        while unacknowledged.unsent or unacknowledged.more_than(most):
            before = len(unacknowledged.waiting)
            trouble: Exception | None = None
            try:
                wire = self.connected()
                unacknowledged.send(wire)
                if unacknowledged.more_than(most):
                    unacknowledged.take(wire.receive())
            except (Broken, OSError) as error:
                trouble = error
            if len(unacknowledged.waiting) < before:
                failures = 0
            if trouble is not None:
                failures = self._failed(failures, trouble, changed=True)  # messages sent may have been stored
                unacknowledged.repeat()

    def _ask(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The reply of JetStream's API; the request is repeated if there is none."""
        failures = 0
        while True:
            try:
                return self.ask_once(verb, body)
            except (Broken, OSError) as error:
                failures = self._failed(failures, error)

    def ask_once(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        wire = self.connected()
        reply = self.request(wire, verb, body or {})
        while True:
            for words, head, data in wire.receive():
                if words[1] != reply:
                    continue
                if head:
                    domain = f" of domain '{self.server.domain}'" if self.server.domain else ""
                    raise Broken(f"there is no reply to {self.prefix}.{verb}; does JetStream{domain} run there?")
                answer: dict[str, Any] = json.loads(data)
                if passes(answer):
                    raise Broken(reason(answer))
                return answer

    def request(self, wire: Wire, verb: str, body: dict[str, Any]) -> bytes:
        """Send a request; returns the subject of its replies."""
        reply = self._reply()
        wire.publish(f"{self.prefix}.{verb}", reply, json.dumps(body).encode())
        return reply.encode()

    def _reply(self) -> str:
        self._requests += 1
        return f"{self._inbox}.{self._requests}"

    def connected(self) -> Wire:
        if self.wire is None:
            self.wire = Wire(self.server, self._inbox)
        return self.wire

    def _failed(self, failures: int, error: Exception, *, changed: bool = False) -> int:
        """Drop the connection and wait for a moment, longer each time; give up after the last attempt."""
        self.close()
        failures += 1
        if failures >= self._attempts:
            host, port = self.server.address
            cause = getattr(error, "strerror", None) or str(error) or type(error).__name__
            text = f"{host}:{port} could not be reached after {failures} attempts: {cause}"
            raise Unreachable(text, changed=changed) from None
        time.sleep(min(0.05 * 2 ** (failures - 1), LONGEST_WAIT_S))
        return failures


def _check_name(stream: str) -> None:
    if not stream or not stream.isprintable() or any(letter in stream for letter in " .*>/\\"):
        raise BadInput(f"'{stream}' cannot be the name of a stream: those have no dots, wildcards, slashes or spaces")
