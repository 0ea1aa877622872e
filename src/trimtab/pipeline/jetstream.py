"""A JetStream client for bulk: stored messages into columns, and messages out with all acknowledgements awaited.

nats-py makes objects, queue entries and task switches of every message, where a Spark task wants columns; by how
much it is slower was measured in benchmarks/nats_source.py. There is no event loop in here, so it can be used
from any thread, by one at a time.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import BadInput, TooLarge, UnknownName, Unreachable
from trimtab.pipeline.nats_wire import Broken, Server, Wire

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from trimtab.pipeline.nats_wire import Came

__all__ = ["JetStream", "Rows", "Server", "StreamState"]

BATCH: Final = 4_000  # messages of one request
BATCH_BYTES: Final = 8 << 20  # and their bytes; a server drops readers that let 64 MB pile up
FEW: Final = 2_000  # messages that are sooner read than a consumer is made
FORGOTTEN_S: Final = 30  # after which a server drops a consumer whose reader has died
WINDOW: Final = 4_000  # published messages without an acknowledgement
WINDOW_BYTES: Final = 16 << 20
GROUP: Final = 500  # messages sent with one system call
ATTEMPTS: Final = 10  # failures in a row; with the waits between them about seven seconds
LONGEST_WAIT_S: Final = 1.0
ENDLESS: Final = 1 << 63
NOT_FOUND: Final = 404
# Errors that pass: no leader or not this one, JetStream not up yet, stream offline, too many requests at once.
PASSING: Final = (10008, 10009, 10076, 10118, 10167)
LOST: Final = "a message was lost on the way"
EPOCH: Final = datetime.datetime.fromtimestamp(0, datetime.UTC)
MICROSECOND: Final = datetime.timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class StreamState:
    first: int  # sequence; last + 1 if the stream is empty
    last: int  # sequence of the last that was ever stored
    messages: int  # that are still there


@dataclass(slots=True)
class Rows:
    """Stored messages by sequence, one list per field; texts are bytes as they came, which is what Arrow takes."""

    seq: list[int] = field(default_factory=list)
    time_us: list[int] = field(default_factory=list)  # when it was stored, since 1970
    subject: list[bytes] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    message_id: list[bytes | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.seq)


class JetStream:
    """A connection that is made anew when it breaks: all that is asked for here can be asked twice without harm."""

    def __init__(self, server: Server, attempts: int = ATTEMPTS) -> None:
        self.server = server
        self._attempts = attempts
        self._prefix = "$JS.API" if server.domain is None else f"$JS.{server.domain}.API"
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._asked = 0  # so that every answer comes to another subject
        self._wire: Wire | None = None

    def __enter__(self) -> JetStream:
        failures = 0
        while self._wire is None:
            try:
                self._connected()
            except (Broken, OSError) as error:
                failures = self._failed(failures, error)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def info(self, stream: str) -> StreamState:
        _check_name(stream)
        answer = self._ask(f"STREAM.INFO.{stream}")
        if _code(answer) == NOT_FOUND:
            raise UnknownName("stream", stream, self._ask("STREAM.NAMES").get("streams") or ["none"])
        state = _checked(answer)["state"]
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
        source = _Consumer(self, stream) if high - at >= FEW else _Direct(self, stream)
        try:
            while at <= high:
                rows = Rows()
                following: int | None = None
                trouble: Exception | None = None
                try:
                    following = source.fetch(at, high, batch, rows)
                except _NotAllowed:
                    source = _Consumer(self, stream)
                    continue
                except Unreachable:  # which is an OSError too
                    raise
                except (Broken, OSError) as error:
                    trouble = error
                if rows:  # also those that came before the trouble
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
        """The first sequence from ``at`` on that exists, as the stream's leader knows it; endless if none does."""
        answer = self._ask(f"STREAM.MSG.GET.{stream}", {"seq": at, "next_by_subj": ">"})
        if _code(answer) == NOT_FOUND:
            self.info(stream)  # is it the message that is not there, or the stream?
            return ENDLESS
        return int(_checked(answer)["message"]["seq"])

    def publish(self, messages: Iterable[tuple[str, bytes, str]]) -> int:
        """Store (subject, data, message id), wait for all acknowledgements, and say how many were there already.

        When the connection breaks, all without an acknowledgement are sent again; the message ids keep the stream
        from storing them twice, within its duplicate window. Those are not counted, as nobody knows. They are stored
        in the order given, unless the stream itself is away for a moment.
        """
        way = _OnTheWay()
        for subject, data, message_id in messages:
            reply = self._reply()
            way.add(reply.encode(), _frame(subject, reply, data, message_id, self._max_payload()))
            if len(way.unsent) >= GROUP or way.size > WINDOW_BYTES:
                self._settle(way, WINDOW - GROUP)
        self._settle(way, 0)
        return way.duplicates

    def _max_payload(self) -> int:
        return self._wire.max_payload if self._wire is not None else ENDLESS

    def _settle(self, way: _OnTheWay, most: int) -> None:
        """Send what is to be sent, and wait until no more than ``most`` are on the way."""
        failures = 0
        while way.unsent or way.more_than(most):
            before = len(way.waiting)
            trouble: Exception | None = None
            try:
                wire = self._connected()
                way.send(wire)
                if way.more_than(most):
                    way.take(wire.receive())
            except (Broken, OSError) as error:
                trouble = error
            if len(way.waiting) < before:
                failures = 0
            if trouble is not None:
                failures = self._failed(failures, trouble)
                way.repeat()

    def _ask(self, verb: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer of JetStream's API, asked again if there is none."""
        failures = 0
        while True:
            try:
                return self._ask_once(verb, question)
            except (Broken, OSError) as error:
                failures = self._failed(failures, error)

    def _ask_once(self, verb: str, question: dict[str, Any] | None = None) -> dict[str, Any]:
        wire = self._connected()
        reply = self._request(wire, verb, question or {})
        while True:
            for words, head, data in wire.receive():
                if words[1] != reply:
                    continue
                if head:
                    domain = f" of domain '{self.server.domain}'" if self.server.domain else ""
                    raise Broken(f"nobody answers to {self._prefix}.{verb}; does JetStream{domain} run there?")
                answer: dict[str, Any] = json.loads(data)
                if _passes(answer):
                    raise Broken(_reason(answer))
                return answer

    def _request(self, wire: Wire, verb: str, question: dict[str, Any]) -> bytes:
        """Send a question; returns the subject that answers come to."""
        reply = self._reply()
        wire.publish(f"{self._prefix}.{verb}", reply, json.dumps(question).encode())
        return reply.encode()

    def _reply(self) -> str:
        self._asked += 1
        return f"{self._inbox}.{self._asked}"

    def _connected(self) -> Wire:
        if self._wire is None:
            self._wire = Wire(self.server, self._inbox)
        return self._wire

    def _failed(self, failures: int, error: Exception) -> int:
        """Drop the connection and wait for a moment, longer each time; give up after the last attempt."""
        self.close()
        failures += 1
        if failures >= self._attempts:
            host, port = self.server.address
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unreachable(f"{host}:{port} could not be asked, after {failures} attempts: {said}") from None
        time.sleep(min(0.05 * 2 ** (failures - 1), LONGEST_WAIT_S))
        return failures


class _NotAllowed(Exception):
    """Nobody answers to direct gets."""


class _Direct:
    """Reads by batched direct get: a question, the messages, an end."""

    def __init__(self, jetstream: JetStream, stream: str) -> None:
        self._jetstream = jetstream
        self._verb = f"DIRECT.GET.{stream}"

    def fetch(self, at: int, high: int, batch: int, rows: Rows) -> int | None:
        """One request, its answer put into ``rows``; returns where to go on, None if nothing seems to be there."""
        wire = self._jetstream._connected()
        wanted = {"seq": at, "batch": min(batch, high - at + 1), "max_bytes": BATCH_BYTES}
        reply = self._jetstream._request(wire, self._verb, wanted)
        seq = 0
        while True:
            for words, head, data in wire.receive():
                if words[1] != reply:
                    continue
                lines = head.split(b"\r\n")
                # Behind the message's own headers the server puts Nats-Stream, -Subject, -Sequence, -Time-Stamp,
                # -Num-Pending and -Last-Sequence (the one sent before), and an empty line ends them.
                if len(lines) < 9 or not lines[-6].startswith(b"Nats-Sequence: "):
                    return self._end(lines, seq)
                if int(lines[-3][20:]) != seq:
                    raise Broken(LOST)
                seq = int(lines[-6][15:])
                if seq <= high:
                    rows.seq.append(seq)
                    rows.time_us.append(_micros(lines[-5][17:]))
                    rows.subject.append(lines[-7][14:])
                    rows.data.append(data)
                    rows.message_id.append(_message_id(head))

    def _end(self, lines: list[bytes], seq: int) -> int | None:
        code = lines[0][9:12]
        if code == b"204":  # end of batch
            if int(lines[2][20:]) != seq:
                raise Broken(LOST)
            return seq + 1 if seq else None
        if code == b"404":
            return None
        if code == b"503":
            raise _NotAllowed
        raise BadInput(f"{self._verb} was answered with '{lines[0].decode(errors='replace')}'")

    def close(self) -> None:
        pass


class _Consumer:
    """Reads through a consumer without acknowledgements, which is made anew when something goes wrong."""

    def __init__(self, jetstream: JetStream, stream: str) -> None:
        self._jetstream = jetstream
        self._stream = stream
        self._name = ""
        self._wire: Wire | None = None  # that it delivers to; None if there is no consumer
        self._inbox, self._number = "", b""  # of the subscription
        self._delivered = self._pulls = 0

    def fetch(self, at: int, high: int, batch: int, rows: Rows) -> int | None:
        """As with ``_Direct``."""
        wire = self._jetstream._connected()
        if wire is not self._wire:
            wire = self._open(at)
        try:
            following = self._pull(wire, min(batch, high - at + 1), BATCH_BYTES, high, rows)
            if following == 0:  # the next message alone has more bytes than that
                following = self._pull(wire, 1, 0, high, rows)
        except BaseException:
            self._wire = None
            raise
        return following

    def _open(self, at: int) -> Wire:
        config = {
            "deliver_policy": "by_start_sequence", "opt_start_seq": at, "ack_policy": "none", "num_replicas": 1,
            "replay_policy": "instant", "mem_storage": True, "inactive_threshold": FORGOTTEN_S * 1_000_000_000,
        }  # fmt: skip
        verb = f"CONSUMER.CREATE.{self._stream}"
        answer = self._jetstream._ask_once(verb, {"stream_name": self._stream, "config": config})
        if _code(answer) == NOT_FOUND:
            self._jetstream.info(self._stream)
        self._name = _checked(answer)["name"]
        self._wire = self._jetstream._connected()
        self._inbox, self._number = self._wire.subscribe()
        self._delivered = 0
        return self._wire

    def _pull(self, wire: Wire, count: int, most_bytes: int, high: int, rows: Rows) -> int | None:
        """As ``fetch``; 0 if nothing came because the next message is too large."""
        wanted = {"batch": count, "no_wait": True, "max_bytes": most_bytes}
        verb = f"CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        self._pulls += 1  # the end of one may come when all its messages are there and the next is on its way
        reply = f"{self._inbox}.{self._pulls}"
        wire.publish(f"{self._jetstream._prefix}.{verb}", reply, json.dumps(wanted).encode())
        inbox, mine, number, delivered = self._inbox.encode(), reply.encode(), self._number, self._delivered
        seqs, times, subjects, datas, ids = rows.seq, rows.time_us, rows.subject, rows.data, rows.message_id
        end, seq = delivered + count, 0
        while delivered < end:
            for words, head, data in wire.receive():
                if words[2] != number:
                    continue
                if words[1].startswith(inbox):
                    if words[1] != mine:
                        continue
                    self._delivered = delivered
                    return self._end(head, seq)
                # $JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.TIMES.SEQUENCE.DELIVERED.NANOSECONDS.PENDING[.RANDOM]
                told = words[3].split(b".")
                if len(told) > 9:
                    told = told[2:]
                delivered += 1
                if int(told[6]) != delivered:
                    raise Broken(LOST)
                seq = int(told[5])
                if seq <= high:
                    seqs.append(seq)
                    times.append(int(told[7]) // 1000)
                    subjects.append(words[1])
                    datas.append(data)
                    ids.append(_message_id(head) if head else None)
        self._delivered = delivered
        return seq + 1

    def _end(self, head: bytes, seq: int) -> int | None:
        said = head[9:].split(b"\r\n")[0].decode(errors="replace")
        if said.startswith("404"):  # no more messages
            return None
        if said.startswith("409") and ("MaxBytes" in said or "Completed" in said):
            return seq + 1 if seq else 0
        raise Broken(f"reading stream '{self._stream}' ends with '{said}'")

    def close(self) -> None:
        if self._wire is None or self._wire is not self._jetstream._wire:
            return
        with contextlib.suppress(Broken, OSError):  # the server will forget it
            self._wire.unsubscribe(self._number)
            self._jetstream._ask_once(f"CONSUMER.DELETE.{self._stream}.{self._name}")


class _OnTheWay:
    """Messages that are published and not acknowledged."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, bytes] = {}  # frames, in order, by the subject that their acknowledgement comes to
        self.unsent: list[bytes] = []
        self.size = 0  # bytes of those waiting
        self.duplicates = 0
        self._repeated: set[bytes] = set()

    def more_than(self, most: int) -> bool:
        return len(self.waiting) > most or self.size > WINDOW_BYTES

    def add(self, reply: bytes, frame: bytes) -> None:
        self.waiting[reply] = frame
        self.unsent.append(frame)
        self.size += len(frame)

    def send(self, wire: Wire) -> None:
        if self.unsent:
            wire.send(b"".join(self.unsent))
            self.unsent.clear()

    def take(self, answers: list[Came]) -> None:
        for words, head, data in answers:
            frame = self.waiting.get(words[1])
            if frame is None:  # acknowledged before, or an answer to something else
                continue
            if head or not data.startswith(b'{"stream"'):
                _raise_refused(frame.split(b" ", 2)[1].decode(), head, data)
            if b'"duplicate"' in data and words[1] not in self._repeated:
                self.duplicates += 1
            del self.waiting[words[1]]
            self.size -= len(frame)

    def repeat(self) -> None:
        """All that is waiting is to be sent again."""
        self._repeated.update(self.waiting)
        self.unsent = list(self.waiting.values())


def _frame(subject: str, reply: str, data: bytes, message_id: str, most: int) -> bytes:
    if not subject or not subject.isprintable() or " " in subject:
        raise BadInput(f"{subject!r} cannot be published to: a subject is printable text without spaces")
    if not message_id.strip() or not message_id.isprintable():
        raise BadInput(f"{message_id!r} cannot be a message id: it is printable text")
    head = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % message_id.encode()
    size = len(head) + len(data)
    if size > most:
        raise TooLarge(f"message '{message_id}' has {size:,} bytes with its header, but the server takes {most:,}")
    return b"%b%b%b\r\n" % (f"HPUB {subject} {reply} {len(head)} {size}\r\n".encode(), head, data)


def _raise_refused(subject: str, head: bytes, data: bytes) -> None:
    """For an answer that is not the usual acknowledgement; returns if it is one all the same."""
    if head:  # nobody is there
        raise Broken(f"no stream takes what is published to '{subject}'")
    answer = json.loads(data)
    if _passes(answer):
        raise Broken(_reason(answer))
    if "error" in answer:
        raise BadInput(f"a message to '{subject}' was refused: {_reason(answer)}")


def _message_id(head: bytes) -> bytes | None:
    at = head.find(b"\r\nNats-Msg-Id:")
    return None if at < 0 else head[at + 14 : head.find(b"\r\n", at + 14)].strip()


def _micros(text: bytes) -> int:
    """Since 1970, of a time like 2026-01-31T12:00:00.123456789Z."""
    return (datetime.datetime.fromisoformat(text.decode()) - EPOCH) // MICROSECOND


def _check_name(stream: str) -> None:
    if not stream or not stream.isprintable() or any(letter in stream for letter in " .*>/\\"):
        raise BadInput(f"'{stream}' cannot be the name of a stream: those have no dots, wildcards, slashes or spaces")


def _code(answer: dict[str, Any]) -> int:
    """Of the error that was answered, 0 if there is none."""
    return int(answer["error"]["code"]) if "error" in answer else 0


def _passes(answer: dict[str, Any]) -> bool:
    return "error" in answer and answer["error"].get("err_code") in PASSING


def _reason(answer: dict[str, Any]) -> str:
    return str(answer["error"].get("description", answer["error"]))


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise BadInput(f"JetStream refuses: {_reason(answer)}")
    return answer
