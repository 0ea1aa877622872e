"""Emulated distance between sites: TCP proxies that delay every byte.

The proxies run in a process of their own, so that a busy experiment does not add to the delays. A line of JSON on the
standard input of that process changes a delay while connections are open. Loss and congestion are not emulated.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import subprocess
import sys
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet.site.server import free_ports

if TYPE_CHECKING:
    from collections.abc import Mapping

LOOPBACK: Final = "127.0.0.1"
TICK_S: Final = 0.0005  # data due within this time is sent at once
MOST_HELD: Final = 64 << 20  # most bytes in flight in one direction; beyond that, reading stops, as with a full pipe


class Delays:
    """The proxies of one experiment. ``addresses`` maps each link to the address of its proxy."""

    def __init__(self, links: Mapping[str, tuple[str, float]], *, jitter: float = 0.0) -> None:
        """``links``: name -> (host:port of the real listener, one-way delay in ms). With ``jitter``, each delay is up
        to this share shorter or longer, at random."""
        ports = free_ports(LOOPBACK, len(links))
        self.addresses = {name: f"{LOOPBACK}:{port}" for name, port in zip(links, ports, strict=True)}
        self._links = {name: [port, *link, jitter] for port, (name, link) in zip(ports, links.items(), strict=True)}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Delays:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trimtab.lab.delay", json.dumps(self._links)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        self._process.stdout.readline()  # wait until the proxies listen
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.close()  # end of input makes the process exit
            self._process.wait()
            self._process.stdout.close()

    def set(self, name: str, delay_ms: float) -> None:
        """Change the delay from now on; data in flight keeps its order."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"link": name, "delay_ms": delay_ms}) + "\n")
        self._process.stdin.flush()


class _Link:
    def __init__(self, port: int, target: str, delay_ms: float, jitter: float) -> None:
        self.port = port
        self.host, _, target_port = target.rpartition(":")
        self.target_port = int(target_port)
        self.delay_s = delay_ms / 1000.0
        self._jitter = jitter
        self._joining: set[asyncio.Task[None]] = set()

    def next_s(self) -> float:
        """The delay of the next data."""
        return self.delay_s * (1.0 + self._jitter * (2.0 * random.random() - 1.0))

    async def serve(self) -> None:
        await asyncio.get_running_loop().create_server(self._accept, LOOPBACK, self.port)

    def _accept(self) -> _End:
        near = _End(self)
        task = asyncio.get_running_loop().create_task(self._join(near))
        self._joining.add(task)
        task.add_done_callback(self._joining.discard)
        return near

    async def _join(self, near: _End) -> None:
        """Connect an incoming connection to the listener behind the proxy."""
        await asyncio.sleep(2 * self.delay_s)  # the delay of a TCP handshake, which loopback does not have
        far = _End(self)
        try:
            await asyncio.get_running_loop().create_connection(lambda: far, self.host, self.target_port)
        except OSError:
            if near.transport is not None:
                near.transport.close()
            return
        near.meet(far)
        far.meet(near)


class _End(asyncio.Protocol):
    """One end of a connection: the other end sends the data it receives after the delay."""

    def __init__(self, link: _Link) -> None:
        self.transport: asyncio.Transport | None = None
        self._link = link
        self._other: _End | None = None
        self._held: deque[tuple[float, bytes]] = deque()  # (send time, data); empty data means end of stream
        self._size = 0
        self._last = 0.0  # send time of the newest data
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def meet(self, other: _End) -> None:
        self._other = other
        self._arm()

    def data_received(self, data: bytes) -> None:
        self._last = max(self._last, self._loop.time() + self._link.next_s())  # no reordering when the delay shrinks
        self._held.append((self._last, data))
        self._size += len(data)
        if self._size > MOST_HELD and self.transport is not None:
            self.transport.pause_reading()
        self._arm()

    def connection_lost(self, _: Exception | None) -> None:
        self._held.append((max(self._last, self._loop.time() + self._link.next_s()), b""))
        self._arm()

    def _arm(self) -> None:
        if self._timer is None and self._held and self._other is not None:
            self._timer = self._loop.call_at(self._held[0][0], self._send)

    def _send(self) -> None:
        self._timer = None
        out = self._other.transport if self._other is not None else None
        now = self._loop.time() + TICK_S
        ready = []
        while self._held and self._held[0][0] <= now:
            _, data = self._held.popleft()
            self._size -= len(data)
            ready.append(data)
        if out is not None and not out.is_closing():
            out.write(b"".join(ready))
            if ready and not ready[-1]:
                out.close()
        if self._size <= MOST_HELD and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()
        self._arm()


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
