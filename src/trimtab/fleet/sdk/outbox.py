"""Publishing to a persistent topic: every message is repeated until it is stored, in order.

Messages are pipelined. When the topic moves, all unacknowledged messages are sent again at once, because the new store
exists by then. When a message is refused or not acknowledged, only the oldest one is sent until it is acknowledged;
then the rest follow. So a store that starts in between cannot store a later message before an earlier one. If the store
starts while messages are sent again after a move, readers restore the order by sequence number. Repeating a message is
harmless because the store drops a second message with the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import BadInput
from trimtab.fleet import tasks
from trimtab.fleet.protocol.message import MESSAGE_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg

    from trimtab.fleet.protocol.entries import Topic

AGAIN_S: Final = 0.5  # time without an acknowledgement after which a message is sent again
SOON_S: Final = 0.02  # pause after a refusal, before the message is sent again
HEADER_ROOM: Final = 512  # bytes of the server's message limit that are reserved for the header
WINDOW: Final = 2048  # unacknowledged messages at a time; further publishers wait


@dataclass(slots=True)
class _Entry:
    data: bytes
    stamp: str
    stored: asyncio.Future[None]


class Outbox:
    """The messages that one client has published to one persistent topic and that are not acknowledged yet."""

    def __init__(self, topic: Topic, start: Callable[[Any], Any]) -> None:
        self._topic = topic.name
        self._nats: Nats | None = None
        self._subject = ""
        self._inbox = ""
        self._aim_number = 0  # number of changes of the aim; an acknowledgement names the aim that it answers
        self._numbers = itertools.count()
        self._entries: dict[int, _Entry] = {}  # in the order of publication
        self._aimed = asyncio.Event()  # set when the aim has changed and all entries must be sent again
        self._careful = False  # whether only the oldest entry is sent
        self._refused = False
        self._next: tuple[Nats, int] | None = None  # next connection, used once messages up to this are stored
        self._wake = asyncio.Event()
        self._room = asyncio.Semaphore(WINDOW)
        self._runner: asyncio.Task[None] | None = None
        self._start = start

    def aim(self, nats: Nats, subject: str) -> None:
        """Send to this subject over this connection from now on.

        If only the connection changes, the new one is used after all sent messages are acknowledged. So no message
        overtakes an earlier one.
        """
        if subject == self._subject and self._entries and not self._careful:
            self._next = (nats, next(reversed(self._entries))) if nats is not self._nats else None
        else:
            self._take_aim(nats, subject)
        if self._runner is None:
            self._runner = self._start(self._run())

    def _take_aim(self, nats: Nats, subject: str) -> None:
        if nats is not self._nats:
            self._nats, self._inbox = nats, ""
        self._subject = subject
        self._next = None
        self._aim_number += 1
        self._aimed.set()
        self._wake.set()

    def end(self, error: Exception) -> None:
        """Fail all unacknowledged messages with ``error``, because the topic was deleted."""
        for entry in self._entries.values():
            if not entry.stored.done():
                entry.stored.set_exception(error)
        self._entries.clear()
        if self._runner is not None:
            self._start(tasks.end(self._runner))

    def check(self, data: bytes) -> None:
        assert self._nats is not None
        limit = self._nats.max_payload - HEADER_ROOM
        if len(data) > limit:
            raise BadInput(f"a message of {len(data):,} bytes is over the limit of {limit:,}")

    async def send(self, data: bytes, stamp: str) -> None:
        async with self._room:
            number = next(self._numbers)
            entry = _Entry(data, stamp, asyncio.get_running_loop().create_future())
            self._entries[number] = entry
            if not (self._careful or self._aimed.is_set() or self._next) or len(self._entries) == 1:
                await self._transmit(number, entry)
            try:
                await entry.stored
            finally:
                self._entries.pop(number, None)

    async def _transmit(self, number: int, entry: _Entry) -> None:
        nats = self._nats
        if nats is None or not self._inbox:
            return
        reply = f"{self._inbox}.{self._aim_number}-{number}"
        with contextlib.suppress(Exception):  # without an acknowledgement the message is sent again
            await nats.publish(self._subject, entry.data, reply, headers={MESSAGE_ID: entry.stamp})

    async def _run(self) -> None:
        oldest = -1
        while True:
            await tasks.happens(self._wake, AGAIN_S)
            if self._refused:
                await tasks.happens(self._aimed, SOON_S)
            self._wake.clear()
            self._refused = False
            if not self._inbox and self._nats is not None:
                await self._listen(self._nats)
            first = next(iter(self._entries), None)
            if self._aimed.is_set() and self._inbox:
                self._aimed.clear()
                self._careful = False
                await self._transmit_all()
            elif first is None:
                self._careful = False
            elif first == oldest or self._careful:  # no progress since the last round
                self._careful = True
                if self._next is not None:
                    self._take_aim(self._next[0], self._subject)
                else:
                    await self._transmit(first, self._entries[first])
            oldest = -1 if first is None else first

    async def _transmit_all(self) -> None:
        for number, entry in list(self._entries.items()):
            await self._transmit(number, entry)

    async def _listen(self, nats: Nats) -> None:
        inbox = nats.new_inbox()
        with contextlib.suppress(Exception):
            await nats.subscribe(f"{inbox}.*", cb=self._on_acknowledgement)
            if nats is self._nats:
                self._inbox = inbox

    async def _on_acknowledgement(self, raw: Msg) -> None:
        aim, number = map(int, raw.subject.rsplit(".", 1)[1].split("-"))
        refused = (raw.headers or {}).get("Status") == "503" or (raw.data and "error" in json.loads(raw.data))
        if refused:
            if aim == self._aim_number:
                self._careful = self._refused = True
                self._wake.set()
            return
        entry = self._entries.pop(number, None)
        if entry is not None and not entry.stored.done():
            entry.stored.set_result(None)
        if self._next is not None and next(iter(self._entries), self._next[1] + 1) > self._next[1]:
            self._take_aim(self._next[0], self._subject)
        elif self._careful and aim == self._aim_number:
            self._careful = False
            await self._transmit_all()
