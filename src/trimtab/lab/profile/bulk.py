"""The process that gives a broker traffic in bulk: many messages, whose latency others measure.

It costs as little as it can, so that a broker on the same machine reaches its limits first: messages are copies of one
block of bytes, and what arrives is counted in bytes and thrown away. Like ``load``, it takes a job from standard input
and answers with one line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from trimtab.lab.profile.load import Connection, Usage

if TYPE_CHECKING:
    import socket

BLOCK: Final = 1 << 18  # bytes that are sent in one call, at most
READ: Final = 1 << 20
TICK_S: Final = 0.001
BEHIND_S: Final = 0.05  # messages that could not be sent within this time are not sent at all


class _Publisher:
    def __init__(self, job: dict[str, Any], subject: str, rate: float) -> None:
        self.socket: socket.socket = Connection(job).socket
        self.socket.setblocking(False)
        self._message = f"PUB {subject} {job['size_bytes']}\r\n".encode() + b"." * job["size_bytes"] + b"\r\n"
        self.length = len(self._message)
        count = max(1, BLOCK // self.length)
        self._block = memoryview(self._message * count)
        self._rate = rate * self.length  # bytes/s
        self._owed = 0.0  # bytes that are due
        self._at = 0  # of the current message: bytes that were sent
        self.sent = 0  # bytes

    def send(self, elapsed_s: float) -> None:
        self._owed = min(self._owed + elapsed_s * self._rate, max(BEHIND_S * self._rate, 2.0 * self.length))
        while (due := (self._at + int(self._owed)) // self.length * self.length - self._at) > 0:
            part = self._block[self._at : min(self._at + due, len(self._block))]
            try:
                done = self.socket.send(part)
            except BlockingIOError:
                return
            self.sent += done
            self._owed -= done
            self._at = (self._at + done) % self.length
            if done < len(part):
                return


def play(job: dict[str, Any]) -> dict[str, Any]:
    buffer = bytearray(READ)
    sinks = select.epoll()
    sockets: dict[int, socket.socket] = {}
    for subject in job["subscribe"]:
        connection = Connection(job)
        connection.socket.sendall(f"SUB {subject} 1\r\n".encode())
        connection.settle()
        connection.socket.setblocking(False)
        sockets[connection.socket.fileno()] = connection.socket
        sinks.register(connection.socket, select.EPOLLIN)
    publishers = [_Publisher(job, *item) for item in zip(job["publish"], job["rates"], strict=True)]
    time.sleep(job["settle_s"])  # until the server knows all subscriptions
    received, parent = 0, os.getppid()
    began = last = time.monotonic()
    counts: list[tuple[float, int, int]] = []
    before: Usage | None = None
    while True:
        now = time.monotonic()
        if (not counts and now >= began + job["warm_s"]) or now >= began + job["warm_s"] + job["seconds"]:
            counts.append((now, sum(publisher.sent for publisher in publishers), received))
            if len(counts) == 2:
                break
            before = Usage(job["pids"])
            if os.getppid() != parent:
                raise ConnectionError("the process that measures has ended")
        for publisher in publishers:
            publisher.send(now - last)
        last = now
        for descriptor, _ in sinks.poll(max(0.0, now + TICK_S - time.monotonic())):
            with contextlib.suppress(BlockingIOError):
                got = sockets[descriptor].recv_into(buffer)
                if not got:
                    raise ConnectionError("the server closed a connection of a subscriber")
                received += got
    assert before is not None
    span = counts[1][0] - counts[0][0]
    arrived = len(f"MSG {job['subscribe'][0]} 1 {job['size_bytes']}\r\n") + job["size_bytes"] + 2 if sockets else 1
    return {
        "in_msgs": (counts[1][1] - counts[0][1]) / publishers[0].length / span,
        "out_msgs": (counts[1][2] - counts[0][2]) / arrived / span,
        "cores": Usage(job["pids"]).since(before),
    }


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        print(json.dumps(play(json.loads(sys.stdin.readline()))), flush=True)
    except (OSError, ValueError) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    main()
