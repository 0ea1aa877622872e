"""A record of every message and delivery of a live run: what was lost, doubled or reordered, and latencies over time.

Subscriptions may come and go during the run. Messages carry the tape's own numbers; the audit does not use the stamps
and catch-up rules that it tests.
"""

from __future__ import annotations

import math
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from trimtab.fleet.protocol.message import Message
    from trimtab.model.workload import Floats

    Ints = np.ndarray[Any, np.dtype[np.int64]]

_FORM: Final = struct.Struct("<II")  # stream, number
SETTLE_S: Final = 1.0  # after a subscription begins, and before it ends: messages sent then may be received or not


@dataclass(slots=True)
class Stream:
    """All messages of one publisher to one topic. Message ``n`` was sent at ``sent_at[n]``."""

    topic: str
    publisher: str
    sent_at: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Reception:
    """What one subscription received, in order of arrival."""

    topic: str
    subscriber: str
    since: float  # when the subscription was known to work; -inf: before the first message
    until: float = math.inf
    streams: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    arrived_at: list[float] = field(default_factory=list)

    def receive(self, message: Message) -> None:
        now = time.time()
        stream, number = _FORM.unpack_from(message.data)
        self.streams.append(stream)
        self.numbers.append(number)
        self.arrived_at.append(now)


@dataclass(frozen=True, slots=True, eq=False)
class Deliveries:
    """Every delivery that was due, in order of sending; the latency of a lost message is infinite."""

    topics: tuple[str, ...]
    topic: Ints  # row of ``topics``
    sent_at: Floats
    ms: Floats
    messages: int  # sent
    lost: int
    doubled: int
    reordered: int

    def of(self, topics: Collection[str]) -> tuple[Floats, Floats]:
        """Times of sending, and latencies."""
        here = np.isin(self.topic, [row for row, name in enumerate(self.topics) if name in topics])
        return self.sent_at[here], self.ms[here]


class Tape:
    def __init__(self, size_bytes: int) -> None:
        self._size = max(size_bytes, _FORM.size)
        self.streams: list[Stream] = []
        self.receptions: list[Reception] = []
        self._row: dict[tuple[str, str], int] = {}

    def message(self, topic: str, publisher: str) -> bytes:
        """The payload of the next message, which is sent now."""
        row = self._row.get((topic, publisher))
        if row is None:
            row = self._row[topic, publisher] = len(self.streams)
            self.streams.append(Stream(topic, publisher))
        sent = self.streams[row].sent_at
        sent.append(time.time())
        return _FORM.pack(row, len(sent) - 1).ljust(self._size, b".")

    def listen(self, topic: str, subscriber: str, since: float = -math.inf) -> Reception:
        reception = Reception(topic, subscriber, since)
        self.receptions.append(reception)
        return reception

    @property
    def sent(self) -> int:
        return sum(len(stream.sent_at) for stream in self.streams)

    @property
    def received(self) -> int:
        return sum(len(reception.numbers) for reception in self.receptions)

    def deliveries(
        self, began: float = -math.inf, ended: float = math.inf, without: Collection[str] = ()
    ) -> Deliveries:  # fmt: skip
        """Audit the messages that were sent in this time, except those to some topics."""
        topics = tuple(dict.fromkeys(stream.topic for stream in self.streams if stream.topic not in without))
        row_of = {topic: row for row, topic in enumerate(topics)}
        sent = [np.array(stream.sent_at) for stream in self.streams]
        by_topic: dict[str, list[int]] = {}
        for row, stream in enumerate(self.streams):
            by_topic.setdefault(stream.topic, []).append(row)
        messages = sum(
            int(((at >= began) & (at < ended)).sum())
            for stream, at in zip(self.streams, sent, strict=True) if stream.topic in row_of
        )  # fmt: skip
        parts: list[tuple[Ints, Floats, Floats]] = []
        lost = doubled = reordered = 0
        for reception in self.receptions:
            streams = np.array(reception.streams, dtype=np.int64)
            numbers = np.array(reception.numbers, dtype=np.int64)
            arrived = np.array(reception.arrived_at)
            for row in by_topic[reception.topic] if reception.topic in row_of else ():
                here = streams == row
                own, at = numbers[here], arrived[here]
                reordered += int((own[1:] < np.maximum.accumulate(own)[:-1]).sum()) if len(own) else 0
                unique, first = np.unique(own, return_index=True)
                doubled += len(own) - len(unique)
                ms = np.full(len(sent[row]), np.inf)
                ms[unique] = 1000.0 * (at[first] - sent[row][unique])
                due = (sent[row] >= reception.since + SETTLE_S) & (sent[row] < reception.until - SETTLE_S)
                counted = (due | np.isfinite(ms)) & (sent[row] >= began) & (sent[row] < ended)
                lost += int((counted & ~np.isfinite(ms)).sum())
                own_topic = np.full(int(counted.sum()), row_of[reception.topic], dtype=np.int64)
                parts.append((own_topic, sent[row][counted], ms[counted]))
        parts = parts or [(np.zeros(0, np.int64), np.zeros(0), np.zeros(0))]
        topic = np.concatenate([part[0] for part in parts])
        sent_at, ms = (np.concatenate([part[column] for part in parts]) for column in (1, 2))
        order = np.argsort(sent_at, kind="stable")
        topic, sent_at, ms = topic[order], sent_at[order], ms[order]
        return Deliveries(topics, topic, sent_at, ms, messages, lost, doubled, reordered)


@dataclass(frozen=True, slots=True)
class Excursion:
    """How long after a change messages were outside the bound. Times in seconds since 1970."""

    changed: float
    lasted_s: float  # from the change to the arrival of the last message that was outside; 0: there was none


def excursions(
    changes: list[float], ended: float, sent_at: Floats, ms: Floats, bound_ms: float, *, quiet_s: float = 2.0
) -> tuple[list[Excursion], int]:  # fmt: skip
    """One excursion for each change, and the number of messages outside the bound that belong to none.

    An excursion is over when no message was outside for ``quiet_s``; a later one that was outside has another cause.
    """
    outside = np.flatnonzero(~(ms <= bound_ms))
    at = sent_at[outside]
    arrived = at + np.where(np.isfinite(ms[outside]), ms[outside], 0.0) / 1000.0
    found, belongs = [], np.zeros(len(outside), dtype=bool)
    for number, changed in enumerate(changes):
        until = changes[number + 1] if number + 1 < len(changes) else ended
        # A message that was under way during the change belongs to it.
        own = np.flatnonzero((arrived >= changed) & (at < until) & ~belongs)
        last, lasted_s = changed, 0.0
        for row in own.tolist():
            if at[row] > last + quiet_s:
                break
            last, belongs[row] = max(last, float(at[row])), True
            lasted_s = max(lasted_s, float(arrived[row]) - changed)
        found.append(Excursion(changed, lasted_s))
    return found, int((~belongs).sum())
