"""A gate that lets publishers through in the order they came, also those who come while others still wait."""

from __future__ import annotations

import asyncio


class Turnstile:
    """Open at first. ``busy`` says whether ``enter`` must be awaited: most of the time it need not be."""

    __slots__ = ("_closed", "_queue", "_waiting", "busy")

    def __init__(self, *, closed: bool = False) -> None:
        self.busy = closed
        self._closed = closed
        self._queue: list[asyncio.Future[None]] = []
        self._waiting = 0

    def close(self) -> None:
        self._closed = self.busy = True

    def open(self) -> None:
        """All who wait go on, one after the other, before anybody who comes now."""
        self._closed = False
        for each in self._queue:
            _go(each)
        self._queue.clear()
        self.busy = self._waiting > 0

    async def enter(self) -> None:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting += 1
        self.busy = True
        if self._closed:
            self._queue.append(turn)
        else:  # behind those whose turn has come and who have not run yet: the loop is first in, first out
            loop.call_soon(_go, turn)
        try:
            await turn
        finally:
            self._waiting -= 1
            self.busy = self._closed or self._waiting > 0


def _go(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # whoever waited may have been cancelled
        turn.set_result(None)
