"""Reads stored messages of a stream into columns: a few by direct get, many through a consumer."""

from __future__ import annotations

import contextlib
import datetime
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trimtab.errors import BadInput
from trimtab.pipeline.nats.answers import NOT_FOUND, checked, code
from trimtab.pipeline.nats.wire import Broken

if TYPE_CHECKING:
    from trimtab.pipeline.nats.jetstream import JetStream
    from trimtab.pipeline.nats.wire import Wire

BATCH_BYTES: Final = 8 << 20  # most bytes of one request; a server drops readers with 64 MB of backlog
FORGOTTEN_S: Final = 30  # time after which a server drops a consumer whose reader has ended
LOST: Final = "a message was lost on the way"
EPOCH: Final = datetime.datetime.fromtimestamp(0, datetime.UTC)
MICROSECOND: Final = datetime.timedelta(microseconds=1)


@dataclass(slots=True)
class Rows:
    """Stored messages by sequence, one list per field; texts are left as bytes, which Arrow accepts."""

    seq: list[int] = field(default_factory=list)
    time_us: list[int] = field(default_factory=list)  # time of storage, microseconds since 1970
    subject: list[bytes] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)
    message_id: list[bytes | None] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.seq)


class NotAllowed(Exception):
    """The stream does not answer direct gets."""


class Direct:
    """Reads by batched direct get: a request, the messages, an end marker."""

    def __init__(self, jetstream: JetStream, stream: str) -> None:
        self._jetstream = jetstream
        self._verb = f"DIRECT.GET.{stream}"

    def fetch(self, at: int, high: int, batch: int, rows: Rows) -> int | None:
        """Make one request and append its messages to ``rows``; returns the next sequence, None without messages."""
        wire = self._jetstream.connected()
        request = {"seq": at, "batch": min(batch, high - at + 1), "max_bytes": BATCH_BYTES}
        reply = self._jetstream.request(wire, self._verb, request)
        seq = 0
        while True:
            for words, head, data in wire.receive():
                if words[1] != reply:
                    continue
                lines = head.split(b"\r\n")
                # After the message's own headers, the server adds Nats-Stream, -Subject, -Sequence, -Time-Stamp,
                # -Num-Pending and -Last-Sequence (of the message sent before), and an empty line.
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
            raise NotAllowed
        raise BadInput(f"{self._verb} was answered with '{lines[0].decode(errors='replace')}'")

    def close(self) -> None:
        pass


class Consumer:
    """Reads through a consumer without acknowledgements, which is created again after a failure."""

    def __init__(self, jetstream: JetStream, stream: str) -> None:
        self._jetstream = jetstream
        self._stream = stream
        self._name = ""
        self._wire: Wire | None = None  # connection that the consumer delivers to; None if there is no consumer
        self._inbox, self._number = "", b""  # of the subscription
        self._delivered = self._pulls = 0

    def fetch(self, at: int, high: int, batch: int, rows: Rows) -> int | None:
        """As ``Direct.fetch``."""
        wire = self._jetstream.connected()
        if wire is not self._wire:
            wire = self._open(at)
        try:
            following = self._pull(wire, min(batch, high - at + 1), BATCH_BYTES, high, rows)
            if following == 0:  # the next message alone exceeds BATCH_BYTES
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
        answer = self._jetstream.ask_once(verb, {"stream_name": self._stream, "config": config})
        if code(answer) == NOT_FOUND:
            self._jetstream.info(self._stream)
        self._name = checked(answer)["name"]
        self._wire = self._jetstream.connected()
        self._inbox, self._number = self._wire.subscribe()
        self._delivered = 0
        return self._wire

    def _pull(self, wire: Wire, count: int, most_bytes: int, high: int, rows: Rows) -> int | None:
        """As ``fetch``; returns 0 if there was no message because the next one is too large."""
        request = {"batch": count, "no_wait": True, "max_bytes": most_bytes}
        verb = f"CONSUMER.MSG.NEXT.{self._stream}.{self._name}"
        self._pulls += 1  # the end marker of a pull may arrive after the next pull was sent
        reply = f"{self._inbox}.{self._pulls}"
        wire.publish(f"{self._jetstream.prefix}.{verb}", reply, json.dumps(request).encode())
        inbox, own_reply, number, delivered = self._inbox.encode(), reply.encode(), self._number, self._delivered
        seqs, times, subjects, datas, ids = rows.seq, rows.time_us, rows.subject, rows.data, rows.message_id
        end, seq = delivered + count, 0
        while delivered < end:
            for words, head, data in wire.receive():
                if words[2] != number:
                    continue
                if words[1].startswith(inbox):
                    if words[1] != own_reply:
                        continue
                    self._delivered = delivered
                    return self._end(head, seq)
                # $JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.TIMES.SEQUENCE.DELIVERED.NANOSECONDS.PENDING[.RANDOM]
                tokens = words[3].split(b".")
                if len(tokens) > 9:
                    tokens = tokens[2:]
                delivered += 1
                if int(tokens[6]) != delivered:
                    raise Broken(LOST)
                seq = int(tokens[5])
                if seq <= high:
                    seqs.append(seq)
                    times.append(int(tokens[7]) // 1000)
                    subjects.append(words[1])
                    datas.append(data)
                    ids.append(_message_id(head) if head else None)
        self._delivered = delivered
        return seq + 1

    def _end(self, head: bytes, seq: int) -> int | None:
        status = head[9:].split(b"\r\n")[0].decode(errors="replace")
        if status.startswith("404"):  # no more messages
            return None
        if status.startswith("409") and ("MaxBytes" in status or "Completed" in status):
            return seq + 1 if seq else 0
        raise Broken(f"reading stream '{self._stream}' ends with '{status}'")

    def close(self) -> None:
        if self._wire is None or self._wire is not self._jetstream.wire:
            return
        with contextlib.suppress(Broken, OSError):  # the server drops the consumer anyway
            self._wire.unsubscribe(self._number)
            self._jetstream.ask_once(f"CONSUMER.DELETE.{self._stream}.{self._name}")


def _message_id(head: bytes) -> bytes | None:
    at = head.find(b"\r\nNats-Msg-Id:")
    return None if at < 0 else head[at + 14 : head.find(b"\r\n", at + 14)].strip()


def _micros(text: bytes) -> int:
    """Microseconds since 1970 of a time like 2026-01-31T12:00:00.123456789Z."""
    return (datetime.datetime.fromisoformat(text.decode()) - EPOCH) // MICROSECOND
