"""Publishes messages to a stream: they are sent in groups, kept until acknowledged, and sent again if necessary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from trimtab.errors import BadInput, TooLarge
from trimtab.pipeline.nats.answers import passes, reason
from trimtab.pipeline.nats.wire import Broken

if TYPE_CHECKING:
    from trimtab.pipeline.nats.wire import ReceivedMessage, Wire

WINDOW_BYTES: Final = 16 << 20  # most bytes that await acknowledgement


class UnacknowledgedMessages:
    """Messages that are published and not yet acknowledged."""

    def __init__(self) -> None:
        self.waiting: dict[bytes, bytes] = {}  # frames in order, by the subject of their acknowledgement
        self.unsent: list[bytes] = []
        self.size = 0  # bytes of the waiting frames
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

    def take(self, messages: list[ReceivedMessage]) -> None:
        for words, head, data in messages:
            frame = self.waiting.get(words[1])
            if frame is None:  # acknowledged before, or a reply to another request
                continue
            if head or not data.startswith(b'{"stream"'):
                raise_refused(frame.split(b" ", 2)[1].decode(), head, data)
            if b'"duplicate"' in data and words[1] not in self._repeated:
                self.duplicates += 1
            del self.waiting[words[1]]
            self.size -= len(frame)

    def repeat(self) -> None:
        """Mark all unacknowledged messages to be sent again."""
        self._repeated.update(self.waiting)
        self.unsent = list(self.waiting.values())


def frame(subject: str, reply: str, data: bytes, message_id: str, most: int) -> bytes:
    if not subject or not subject.isprintable() or " " in subject:
        raise BadInput(f"{subject!r} cannot be published to: a subject is printable text without spaces")
    if not message_id.strip() or not message_id.isprintable():
        raise BadInput(f"{message_id!r} cannot be a message id: it is printable text")
    head = b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % message_id.encode()
    size = len(head) + len(data)
    if size > most:
        raise TooLarge(f"message '{message_id}' has {size:,} bytes with its header, but the server takes {most:,}")
    return b"%b%b%b\r\n" % (f"HPUB {subject} {reply} {len(head)} {size}\r\n".encode(), head, data)


def raise_refused(subject: str, head: bytes, data: bytes) -> None:
    """Handle a reply that does not look like an acknowledgement: raises unless it is one after all."""
    if head:  # no responders
        raise Broken(f"no stream stores messages published to '{subject}'")
    answer = json.loads(data)
    if passes(answer):
        raise Broken(reason(answer))
    if "error" in answer:
        raise BadInput(f"a message to '{subject}' was refused: {reason(answer)}")
