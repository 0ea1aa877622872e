"""A gate that publishers pass in order of arrival, including those that arrive while others still wait."""

from __future__ import annotations

import asyncio


class Turnstile:
    """The gate. Callers must await ``enter`` only while ``busy`` is true, which is rare."""

    __slots__ = ("__weakref__", "_closed", "_queue", "_waiting", "busy")

    def __init__(self, *, closed: bool = False) -> None:
        self.busy = closed
        self._closed = closed
        self._queue: list[asyncio.Future[None]] = []
        self._waiting = 0

    def close(self) -> None:
        self._closed = self.busy = True

    def open(self) -> None:
        """Let all waiting publishers pass, in order and ahead of new ones."""
        self._closed = False
        for turn in self._queue:
            _go(turn)
        self._queue.clear()
        self.busy = self._waiting > 0

    async def enter(self) -> None:
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting += 1
        self.busy = True
        if self._closed:
            self._queue.append(turn)
        else:  # after publishers that may pass but have not run yet: the event loop is first in, first out
            loop.call_soon(_go, turn)
        try:
            await turn
        finally:
            self._waiting -= 1
            self.busy = self._closed or self._waiting > 0


def _go(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # the waiting task may have been cancelled
        turn.set_result(None)
