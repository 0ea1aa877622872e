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
from trimtab.pipeline.nats.publishing import WINDOW_BYTES, OnTheWay, frame
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
    messages: int  # messages still stored


class JetStream:
    """A connection that reconnects when it breaks: every request made here can be repeated without harm."""

    def __init__(self, server: Server, attempts: int = ATTEMPTS) -> None:
        self.server = server
        self._attempts = attempts
        self.prefix = subjects.jetstream(server.domain)
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._asked = 0  # requests so far; gives every request its own reply subject
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

        A few by direct get, which leaves nothing behind at the server but needs ``allow_direct`` of the stream; many,
        or without it, through a consumer that lives as long as this read, which costs the server less than half per
        message. Whoever answers may be a replica that is behind: where the end of the range seems not to exist, the
        stream's leader is asked.
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
                if rows:  # also those received before a failure
                    at, failures = rows.seq[-1] + 1, 0
                    yield rows
                if trouble is None and following is None and at <= high:
                    following = self._following(stream, at)
                    if following <= high:
                        trouble = Broken(f"what answers for stream '{stream}' is behind its leader")
                if trouble is None:
                    at = max(at, following or 0)
                else:
                    failures = self._failed(failures, trouble)
        finally:
            source.close()

    def _following(self, stream: str, at: int) -> int:
        """The first sequence from ``at`` on that exists, as the stream's leader knows it; infinite if none does."""
        answer = self._ask(f"STREAM.MSG.GET.{stream}", {"seq": at, "next_by_subj": ">"})
        if code(answer) == NOT_FOUND:
            self.info(stream)  # raises if the stream, not the message, is missing
            return ENDLESS
        return int(checked(answer)["message"]["seq"])

    def publish(self, messages: Iterable[tuple[str, bytes, str]]) -> int:
        """Store (subject, data, message id), wait for all acknowledgements, and return how many were stored already.

        When the connection breaks, all without an acknowledgement are sent again; the message ids keep the stream
        from storing them twice, within its duplicate window. Those are not counted, as nobody knows. They are stored
        in the order given, unless the stream itself is away for a moment.
        """
        way = OnTheWay()
        for subject, data, message_id in messages:
            reply = self._reply()
            way.add(reply.encode(), frame(subject, reply, data, message_id, self._max_payload()))
            if len(way.unsent) >= GROUP or way.size > WINDOW_BYTES:
                self._settle(way, WINDOW - GROUP)
        self._settle(way, 0)
        return way.duplicates

    def _max_payload(self) -> int:
        return self.wire.max_payload if self.wire is not None else ENDLESS

    def _settle(self, way: OnTheWay, most: int) -> None:
        """Send the unsent messages, and wait until no more than ``most`` await acknowledgement."""
        failures = 0
        while way.unsent or way.more_than(most):
            before = len(way.waiting)
            trouble: Exception | None = None
            try:
                wire = self.connected()
                way.send(wire)
                if way.more_than(most):
                    way.take(wire.receive())
            except (Broken, OSError) as error:
                trouble = error
            if len(way.waiting) < before:
                failures = 0
            if trouble is not None:
                failures = self._failed(failures, trouble, changed=True)  # what was sent may be stored
                way.repeat()

    def _ask(self, verb: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
        """The reply of JetStream's API; the request is repeated if there is none."""
        failures = 0
        while True:
            try:
                return self.ask_once(verb, question)
            except (Broken, OSError) as error:
                failures = self._failed(failures, error)

    def ask_once(self, verb: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
        wire = self.connected()
        reply = self.request(wire, verb, question or {})
        while True:
            for words, head, data in wire.receive():
                if words[1] != reply:
                    continue
                if head:
                    domain = f" of domain '{self.server.domain}'" if self.server.domain else ""
                    raise Broken(f"nobody answers to {self.prefix}.{verb}; does JetStream{domain} run there?")
                answer: dict[str, Any] = json.loads(data)
                if passes(answer):
                    raise Broken(reason(answer))
                return answer

    def request(self, wire: Wire, verb: str, question: dict[str, Any]) -> bytes:
        """Send a request; returns the subject of its replies."""
        reply = self._reply()
        wire.publish(f"{self.prefix}.{verb}", reply, json.dumps(question).encode())
        return reply.encode()

    def _reply(self) -> str:
        self._asked += 1
        return f"{self._inbox}.{self._asked}"

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
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            text = f"{host}:{port} could not be asked, after {failures} attempts: {said}"
            raise Unreachable(text, changed=changed) from None
        time.sleep(min(0.05 * 2 ** (failures - 1), LONGEST_WAIT_S))
        return failures


def _check_name(stream: str) -> None:
    if not stream or not stream.isprintable() or any(letter in stream for letter in " .*>/\\"):
        raise BadInput(f"'{stream}' cannot be the name of a stream: those have no dots, wildcards, slashes or spaces")
