"""A message as applications see it, and the stamp it carries on the wire.

A stamp is ``PUBLISHER.INCARNATION.SEQ.MICROS``: who sent it, which run of that client, its number among the
messages of that run to this topic, and when. A processor's result has ``.PROCESSOR.N`` behind it: which
processor made it, and its number among that processor's results.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import Any, Final

_STAMP: Final = re.compile(r"[\w-]+\.[\w-]+\.\d{1,15}\.\d{1,17}(\.[\w-]+\.\d{1,15})?", re.ASCII)
PREFIX: Final = "_t."  # a reply subject that starts so is a stamp
MESSAGE_ID: Final = "Nats-Msg-Id"  # where the stamp of a stored message is; JetStream drops what it has seen


@dataclass(slots=True)
class Message:
    """What a subscriber or a processor gets."""

    topic: str
    data: bytes
    publisher: str = ""  # empty if a stock client sent it past the door
    seq: int = -1  # counts from 1 in each run of the publisher, per topic
    sent_at: float = float("nan")  # seconds since 1970, on the publisher's clock
    source: str = ""  # whose sequence orders it: the publisher's run, or the processor's
    number: int = -1  # its place in that sequence
    origin: str = ""  # the publisher's run; differs from the source in what a processor made

    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def text(self) -> str:
        return self.data.decode()

    @property
    def stamp(self) -> str:
        """What brings the same identity back; only for a message that has one."""
        return f"{self.origin}.{self.seq}.{round(self.sent_at * 1e6)}"


def stamped(topic: str, data: bytes, stamp: str) -> Message:
    """A message with the identity that ``stamp`` (without prefix) gives; anonymous if it is none of ours."""
    parts = stamp.split(".") if _STAMP.fullmatch(stamp) else []
    try:
        if len(parts) == 4:
            publisher, incarnation, seq, micros = parts
            number, source = int(seq), f"{publisher}.{incarnation}"
            return Message(topic, data, publisher, number, int(micros) * 1e-6, source, number, source)
        if len(parts) == 6:
            publisher, incarnation, seq, micros, processor, count = parts
            origin = f"{publisher}.{incarnation}"
            return Message(topic, data, publisher, int(seq), int(micros) * 1e-6, processor, int(count), origin)
    except (ValueError, OverflowError):
        pass
    return Message(topic, data)


class Stamper:
    """Stamps what one run of a client (or of an agent, for stock clients) sends."""

    __slots__ = ("_sent", "source")

    def __init__(self, name: str) -> None:
        # Microseconds in base 36: unique among the runs of one client, and sortable.
        self.source = f"{name}.{_base36(time.time_ns() // 1000)}"
        self._sent: dict[str, int] = {}

    def next(self, topic: str) -> str:
        """The stamp of the next message to ``topic``."""
        return self.next_reply(topic)[3:]

    def next_reply(self, topic: str) -> str:
        """The same as the reply subject it travels in."""
        self._sent[topic] = seq = self._sent.get(topic, 0) + 1
        return f"_t.{self.source}.{seq}.{time.time_ns() // 1000}"

    def undo(self, topic: str) -> None:
        """The message was not sent after all."""
        self._sent[topic] -= 1


def _base36(value: int) -> str:
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"
