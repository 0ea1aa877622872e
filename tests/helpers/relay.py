"""A TCP relay in front of a broker, whose connections a test can cut."""

from __future__ import annotations

import asyncio
import contextlib


class Relay:
    """Use it with ``async with``; ``url`` leads to the broker at ``target`` until ``cut`` is called."""

    def __init__(self, target: str) -> None:
        self._host, port = target.split("//")[-1].rsplit(":", 1)
        self._port = int(port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task] = set()
        self._at = 0

    async def __aenter__(self) -> Relay:
        await self.restore()
        return self

    async def __aexit__(self, *_) -> None:
        await self.cut()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._at}"

    async def restore(self) -> None:
        """Accept connections (again)."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._at)
        self._at = self._server.sockets[0].getsockname()[1]

    async def cut(self) -> None:
        """Break all connections and refuse new ones."""
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader, writer) -> None:
        self._tasks.add(asyncio.current_task())
        there_reader, there = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, there}
        await asyncio.gather(_copy(reader, there), _copy(there_reader, writer))
        self._tasks.discard(asyncio.current_task())


async def _copy(reader, writer) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
