"""A message as applications see it, and the identity it carries on the wire.

A stamp is ``PUBLISHER.INCARNATION.SEQ.MICROS``: who sent it, which run of that client, its number among the
messages of that run to this topic, and when. A processor's result has ``.PROCESSOR.N`` behind it: which
processor made it, and its number among that processor's results. A stamp travels as the reply subject ``_t.STAMP``, or,
where the reply subject is used or not kept (stored messages), as the message id.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_STAMP: Final = re.compile(r"[\w-]+\.[\w-]+\.\d{1,15}\.\d{1,17}(\.[\w-]+\.\d{1,15})?", re.ASCII)
_PREFIX: Final = "_t."  # a reply subject that starts so is a stamp
MESSAGE_ID: Final = "Nats-Msg-Id"  # the header of the stamp; JetStream drops a message whose id it has seen
_SEQUENCE: Final = "Nats-Sequence"
_BEFORE: Final = "Nats-Last-Sequence"


@dataclass(slots=True)
class Message:
    """A message as a subscriber or a processor receives it."""

    topic: str
    data: bytes
    publisher: str = ""  # empty if the message has no stamp: a stock client did not use ``in.TOPIC``
    seq: int = -1  # counts from 1 in each run of the publisher, per topic
    sent_at: float = float("nan")  # seconds since 1970, on the publisher's clock
    source: str = ""  # the source of the sequence that orders it: a run of the publisher, or a processor
    number: int = -1  # sequence number of that source
    origin: str = ""  # the publisher's run; differs from ``source`` only in a processor's result

    def json(self) -> Any:
        return json.loads(self.data)

    @property
    def text(self) -> str:
        return self.data.decode()

    @property
    def stamp(self) -> str:
        """The message's identity as text, for ``stamped``; only for a message that has one."""
        return f"{self.origin}.{self.seq}.{round(self.sent_at * 1e6)}"

    def result_stamp(self, processor: str, number: int) -> str:
        """The stamp of a processor's result for this message; empty if the message has no identity."""
        return f"{self.stamp}.{processor}.{number}" if self.source else ""


def identified(topic: str, data: bytes, reply: str, headers: Mapping[str, str] | None) -> Message:
    """A received message with its identity: from its reply subject if that is a stamp, else from its message id."""
    parts = reply.split(".")
    if len(parts) == 5 and parts[0] == "_t" and len(parts[3]) < 16 and parts[3].isdigit():
        try:  # the usual case, inlined for speed
            number, sent_at = int(parts[3]), int(parts[4]) * 1e-6
        except (ValueError, OverflowError):
            return Message(topic, data)
        source = f"{parts[1]}.{parts[2]}"
        return Message(topic, data, parts[1], number, sent_at, source, number, source)
    if reply.startswith(_PREFIX):
        return stamped(topic, data, reply[3:])
    return stamped(topic, data, headers.get(MESSAGE_ID, "")) if headers else Message(topic, data)


def stamped(topic: str, data: bytes, stamp: str) -> Message:
    """A message with the identity in ``stamp`` (without prefix); anonymous if the text is not a stamp."""
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


def as_reply(stamp: str) -> str:
    """The reply subject that carries a stamp; empty without a stamp."""
    return f"{_PREFIX}{stamp}" if stamp else ""


def copy_reply(broker: str, message: Message) -> str:
    """The reply subject of a copy for the spools of other brokers: it names the broker that the copy comes from."""
    return f"{_PREFIX}{broker}.{message.stamp}"


def copied(topic: str, data: bytes, reply: str) -> tuple[str, Message]:
    """The broker that a copy comes from, and the message."""
    broker, _, stamp = reply.removeprefix(_PREFIX).partition(".")
    return broker, stamped(topic, data, stamp)


def places(headers: Mapping[str, str] | None) -> tuple[int, int]:
    """The sequence number of a stored message, and that of the previous message of the same subject."""
    values = headers or {}
    return int(values.get(_SEQUENCE, 0)), int(values.get(_BEFORE, 0))


class Stamper:
    """Stamps the messages of one run of a client, or of an agent on behalf of stock clients."""

    __slots__ = ("_sent", "source")

    def __init__(self, name: str) -> None:
        # Microseconds in base 36: unique among the runs of one client, and sortable.
        self.source = f"{name}.{_base36(time.time_ns() // 1000)}"
        self._sent: dict[str, int] = {}

    def next(self, topic: str) -> str:
        """The stamp of the next message to ``topic``."""
        return self.next_reply(topic)[3:]

    def next_reply(self, topic: str) -> str:
        """The reply subject that carries the stamp of the next message to ``topic``."""
        self._sent[topic] = seq = self._sent.get(topic, 0) + 1
        return f"_t.{self.source}.{seq}.{time.time_ns() // 1000}"

    def undo(self, topic: str) -> None:
        """Take back the last number of ``topic``, because the message was not sent."""
        self._sent[topic] -= 1


def _base36(value: int) -> str:
    digits = ""
    while value:
        value, digit = divmod(value, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits or "0"
