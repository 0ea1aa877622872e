"""Publishing to a persistent topic: every message is repeated until it is stored, in order.

Messages are pipelined. When one is not acknowledged, or the topic moves, the oldest goes first and alone until
it is acknowledged, then the rest follow: so a store that comes up in the middle cannot take a later message
before an earlier one. The message id makes repeating harmless.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import BadInput
from trimtab.fleet.message import MESSAGE_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg

    from trimtab.fleet.registry import Topic

AGAIN_S: Final = 0.5  # without an answer for so long, it is sent again
SOON_S: Final = 0.02  # after an answer that nobody stores it just now
HEADER_ROOM: Final = 512  # bytes of a message that its header may need
WINDOW: Final = 2048  # messages on their way; more wait for their turn


@dataclass(slots=True)
class _Entry:
    data: bytes
    stamp: str
    stored: asyncio.Future[None]


class Outbox:
    """What one client has published to one persistent topic and is not yet known to be stored."""

    def __init__(self, topic: Topic, start: Callable[[Any], Any]) -> None:
        self._topic = topic.name
        self._nats: Nats | None = None
        self._subject = ""
        self._inbox = ""
        self._numbers = itertools.count()
        self._entries: dict[int, _Entry] = {}  # in the order of publication
        self._careful = True  # only the oldest is on its way
        self._refused = False
        self._wake = asyncio.Event()
        self._room = asyncio.Semaphore(WINDOW)
        self._runner: asyncio.Task[None] | None = None
        self._start = start

    def aim(self, nats: Nats, subject: str) -> None:
        """From now on to this subject; whatever is open is sent again."""
        if nats is not self._nats:
            self._nats, self._inbox = nats, ""
        self._subject = subject
        self._careful = True
        self._wake.set()
        if self._runner is None:
            self._runner = self._start(self._run())

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
            if not self._careful or len(self._entries) == 1:
                await self._transmit(number, entry)
            try:
                await entry.stored
            finally:
                self._entries.pop(number, None)

    async def _transmit(self, number: int, entry: _Entry) -> None:
        nats = self._nats
        if nats is None or not self._inbox:
            return
        with contextlib.suppress(Exception):  # no answer comes, and it is sent again
            await nats.publish(self._subject, entry.data, f"{self._inbox}.{number}", headers={MESSAGE_ID: entry.stamp})

    async def _run(self) -> None:
        oldest = -1
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), AGAIN_S)
            self._wake.clear()
            if self._refused:
                self._refused = False
                await asyncio.sleep(SOON_S)
            if not self._inbox and self._nats is not None:
                await self._listen(self._nats)
            first = next(iter(self._entries), None)
            if first is None:
                self._careful = False
            elif first == oldest or self._careful:  # no progress since the last look
                self._careful = True
                await self._transmit(first, self._entries[first])
            oldest = -1 if first is None else first

    async def _listen(self, nats: Nats) -> None:
        inbox = nats.new_inbox()

        async def answered(raw: Msg) -> None:
            if inbox == self._inbox:
                await self._answered(raw)

        with contextlib.suppress(Exception):
            await nats.subscribe(f"{inbox}.*", cb=answered)
            if nats is self._nats:
                self._inbox = inbox

    async def _answered(self, raw: Msg) -> None:
        number = int(raw.subject.rsplit(".", 1)[1])
        refused = (raw.headers or {}).get("Status") == "503" or (raw.data and "error" in json.loads(raw.data))
        if refused:
            self._careful = self._refused = True
            self._wake.set()
            return
        entry = self._entries.pop(number, None)
        if entry is not None and not entry.stored.done():
            entry.stored.set_result(None)
        if self._careful:
            self._careful = False
            for later, each in list(self._entries.items()):
                await self._transmit(later, each)
