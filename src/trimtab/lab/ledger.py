"""The audit of a handover: every message sent, every delivery, and the deliveries that are lost, repeated or late.

Messages carry the ledger's own numbers. The audit does not use the stamps and catch-up rules that it tests.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

_FORM: Final = struct.Struct("<IQd")  # stream, number, time of sending
SIZE: Final = 220  # bytes of a message


@dataclass(slots=True)
class Stream:
    """All messages of one publisher to one topic."""

    topic: str
    publisher: str
    sent: int = 0
    acknowledged: set[int] = field(default_factory=set)
    began: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Deliveries:
    """The deliveries of one stream to one subscriber of its topic, in order of arrival."""

    numbers: list[int] = field(default_factory=list)
    sent_at: list[float] = field(default_factory=list)
    arrived_at: list[float] = field(default_factory=list)


class Ledger:
    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.deliveries: dict[tuple[int, str], Deliveries] = {}  # (stream, subscriber)

    def stream(self, topic: str, publisher: str) -> int:
        self.streams.append(Stream(topic, publisher))
        return len(self.streams) - 1

    def message(self, stream: int) -> tuple[int, bytes]:
        """The next message of a stream: its number and its payload."""
        record = self.streams[stream]
        record.sent += 1
        payload = _FORM.pack(stream, record.sent, time.time())
        return record.sent, payload.ljust(SIZE, b".")

    def expect(self, topic: str, subscriber: str) -> None:
        for number, stream in enumerate(self.streams):
            if stream.topic == topic:
                self.deliveries[number, subscriber] = Deliveries()

    def receive(self, subscriber: str, data: bytes) -> None:
        now = time.time()
        stream, number, sent_at = _FORM.unpack_from(data)
        record = self.deliveries[stream, subscriber]
        record.numbers.append(number)
        record.sent_at.append(sent_at)
        record.arrived_at.append(now)

    def missing(self) -> int:
        """The number of deliveries that have not arrived yet."""
        return sum(self.streams[s].sent - len(set(d.numbers)) for (s, _), d in self.deliveries.items())

    def audit(self, topics: set[str] | None = None, *, acknowledged_only: bool = False) -> dict[str, Any]:
        """Count deliveries that were lost, duplicated, or arrived after a later message of the same stream."""
        lost = duplicated = reordered = delivered = 0
        for (stream, _), record in self.deliveries.items():
            source = self.streams[stream]
            if topics is not None and source.topic not in topics:
                continue
            numbers = np.array(record.numbers, dtype=np.int64)
            unique = np.unique(numbers)
            delivered += len(unique)
            duplicated += len(numbers) - len(unique)
            if acknowledged_only:
                lost += len(source.acknowledged - set(record.numbers))
            else:
                lost += source.sent - len(unique)
            reordered += int((numbers[1:] < np.maximum.accumulate(numbers)[:-1]).sum()) if len(numbers) else 0
        messages = sum(s.sent for s in self.streams if topics is None or s.topic in topics)
        return {
            "messages": messages, "delivered": delivered, "lost": lost, "duplicated": duplicated,
            "reordered": reordered,
        }  # fmt: skip
