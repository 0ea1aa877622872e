"""Distance between sites, emulated: TCP proxies that hold every byte back for a while.

They run in a process of their own, so that a busy experiment does not add to the delays; a line of JSON on its
standard input changes a delay while connections are open. Loss and congestion are not emulated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet.server import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK: Final = "127.0.0.1"
CHUNK: Final = 1 << 16
MOST_HELD: Final = 64 << 20  # bytes on their way in one direction; more stops the reader, as a full pipe does


class Delays:
    """The proxies of one experiment. ``addresses`` says where to connect instead of the real listeners."""

    def __init__(self, links: Mapping[str, tuple[str, float]]) -> None:
        """``links``: name -> (host:port behind it, one-way delay in ms)."""
        ports = free_ports(LOOPBACK, len(links))
        self.addresses = {name: f"{LOOPBACK}:{port}" for name, port in zip(links, ports, strict=True)}
        self._links = {name: [port, *link] for port, (name, link) in zip(ports, links.items(), strict=True)}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Delays:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trimtab.lab.delay", json.dumps(self._links)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it listens
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()  # its sign to end
            self._process.wait()
            self._process.stdout.close()

    def set(self, name: str, delay_ms: float) -> None:
        """From now on; what is on its way keeps its order."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"link": name, "delay_ms": delay_ms}) + "\n")
        self._process.stdin.flush()


class _Link:
    def __init__(self, port: int, target: str, delay_ms: float) -> None:
        self.port = port
        self.host, _, target_port = target.rpartition(":")
        self.target_port = int(target_port)
        self.delay_s = delay_ms / 1000.0

    async def serve(self) -> None:
        await asyncio.start_server(self._accept, LOOPBACK, self.port, limit=CHUNK)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(2 * self.delay_s)  # the handshake that loopback did for nothing
            up_reader, up_writer = await asyncio.open_connection(self.host, self.target_port, limit=CHUNK)
        except (OSError, asyncio.CancelledError):
            writer.close()
            return
        with contextlib.suppress(asyncio.CancelledError):  # the end of the experiment
            await asyncio.gather(self._carry(reader, up_writer), self._carry(up_reader, writer))

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One direction: read at once, write when the time has come."""
        loop = asyncio.get_running_loop()
        held: deque[tuple[float, bytes]] = deque()
        size = 0
        news, room = asyncio.Event(), asyncio.Event()
        room.set()

        async def read() -> None:
            nonlocal size
            last = 0.0
            while True:
                try:
                    data = await reader.read(CHUNK)
                except OSError:
                    data = b""
                last = max(last, loop.time() + self.delay_s)  # a shorter delay does not let bytes overtake
                held.append((last, data))
                size += len(data)
                news.set()
                if not data:
                    return
                if size > MOST_HELD:
                    room.clear()
                    await room.wait()

        task = asyncio.create_task(read())
        try:
            while True:
                while not held:
                    news.clear()
                    await news.wait()
                due, data = held[0]
                pause = due - loop.time()
                if pause > 0:
                    await asyncio.sleep(pause)
                held.popleft()
                if not data:
                    break
                size -= len(data)
                room.set()
                writer.write(data)
                if not held:
                    await writer.drain()
        except OSError:
            pass
        finally:
            task.cancel()
            with contextlib.suppress(OSError, RuntimeError):
                writer.close()


async def _serve(links: dict[str, list[Any]]) -> None:
    running = {name: _Link(*link) for name, link in links.items()}
    for link in running.values():
        await link.serve()
    print("listening", flush=True)
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        order = json.loads(line)
        running[order["link"]].delay_s = order["delay_ms"] / 1000.0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(json.loads(sys.argv[1])))
