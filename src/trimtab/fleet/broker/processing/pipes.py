"""The agent's ends of the two pipes to a worker; neither blocks the event loop.

There are two pipes, not one socket, because a failed write closes only its own pipe. So the answers that a worker
wrote before it died can still be read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from trimtab.fleet.broker.processing.worker import ANSWER, ERROR, READY

if TYPE_CHECKING:
    from collections.abc import Callable


class _Pipe(asyncio.BaseProtocol):
    """``lost`` is done when the pipe is closed, from whichever end."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


class RequestPipe(_Pipe):
    """The pipe for requests. ``on_room()`` is called when it has room again after it was full."""

    _transport: asyncio.WriteTransport | None

    def __init__(self, on_room: Callable[[], None]) -> None:
        super().__init__()
        self._on_room = on_room
        self._full = False

    @property
    def has_room(self) -> bool:
        return self._transport is not None and not self._full and not self._transport.is_closing()

    def write(self, data: bytes) -> bool:
        """False if the other end is closed."""
        if self._transport is None or self._transport.is_closing():
            return False
        self._transport.write(data)
        return not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is None:
            self.connection_lost(None)
        elif not self._transport.is_closing():  # aborting twice is an error
            self._transport.abort()  # close() would wait until all is written

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self._on_room()


class AnswerPipe(_Pipe, asyncio.Protocol):
    """The pipe for answers. At data that is no answer, ``on_garbage()`` is called and reading ends."""

    _transport: asyncio.ReadTransport | None

    def __init__(self, on_answer: Callable[[int, float, bytes], None], on_garbage: Callable[[], None]) -> None:
        super().__init__()
        self._on_answer = on_answer
        self._on_garbage = on_garbage
        self._buffer = bytearray()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= ANSWER.size:
            kind, cpu_s, size = ANSWER.unpack_from(self._buffer, start)
            if not (READY <= kind <= ERROR and cpu_s >= 0.0):
                self.close()
                self._on_garbage()
                return
            end = start + ANSWER.size + size
            if end > len(self._buffer):
                break
            with memoryview(self._buffer) as view:
                payload = bytes(view[start + ANSWER.size : end])
            self._on_answer(kind, cpu_s, payload)
            start = end
        del self._buffer[:start]

    def close(self) -> None:
        if self._transport is None:
            self.connection_lost(None)
        else:
            self._transport.close()
