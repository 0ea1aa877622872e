"""The process that publishes to the topics of a load test and receives the results.

It shares cores with the broker where both run on one machine. So it costs as little as it can: one blocking socket, the
text protocol of NATS without a library, one loop for both directions. Its latencies and its CPU time go to standard
output as one line of JSON; its job comes from standard input in the same way.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import signal
import socket
import ssl
import struct
import sys
import time
from pathlib import Path
from typing import Any, Final

NUMBER: Final = struct.Struct("!qq")  # number of the message, time of sending in ns; the rest of the payload is filler
PRIORITY: Final = -10  # so that a busy machine does not delay sending and receiving, which belong to other machines
DRIFT: Final = 0.1  # standard deviation of a publisher's interval, as a share of it: as in the broker simulator
TICKS: Final = os.sysconf("SC_CLK_TCK")


class Connection:
    """A connection to a nats-server, in the text protocol."""

    def __init__(self, job: dict[str, Any]) -> None:
        host, port = job["url"].split("//")[-1].rsplit(":", 1)
        self.socket: socket.socket = socket.create_connection((host, int(port)), timeout=10.0)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        while b"\r\n" not in self._rest:  # INFO
            self._rest += self._received()
        self._rest = b""
        if job["ca"]:
            context = ssl.create_default_context(cafile=job["ca"])
            self.socket = context.wrap_socket(self.socket, server_hostname=host)
        options = {"user": job["user"], "pass": job["password"], "name": job["name"], "verbose": False,
                   "pedantic": False, "lang": "python", "version": "1", "headers": True}  # fmt: skip
        self.socket.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\n")
        self.settle()

    def _received(self) -> bytes:
        data = self.socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def settle(self) -> None:
        """Return when the server has handled everything sent so far."""
        self.socket.sendall(b"PING\r\n")
        while b"PONG\r\n" not in self._rest:
            self._rest += self._received()
            if b"-ERR" in self._rest:
                raise ConnectionError(self._rest.split(b"-ERR", 1)[1].split(b"\r\n")[0].decode().strip(" '"))
        self._rest = b""

    def payloads(self, wait_s: float) -> list[bytes]:
        """Payloads of messages that have arrived; waits for the first of them."""
        pending = getattr(self.socket, "pending", None)
        if not (pending and pending()) and not select.select([self.socket], [], [], max(wait_s, 0.0))[0]:
            return []
        data, at = self._rest + self._received(), 0
        found: list[bytes] = []
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at:end]
            if line.startswith((b"MSG ", b"HMSG ")):
                fields = line.split()
                size = int(fields[-1])
                head = int(fields[-2]) if line.startswith(b"H") else 0
                if len(data) < end + 4 + size:
                    break
                found.append(data[end + 2 + head : end + 2 + size])
                at = end + 4 + size
                continue
            if line.startswith(b"PING"):
                self.socket.sendall(b"PONG\r\n")
            elif line.startswith(b"-ERR"):
                raise ConnectionError(line[4:].decode().strip(" '"))
            at = end + 2
        self._rest = data[at:]
        return found


def schedule(job: dict[str, Any], length_s: float) -> list[tuple[float, int]]:
    """When to publish to which topic. Every publisher has its own phase, and intervals that drift."""
    draw = random.Random(job["seed"])
    due: list[tuple[float, int]] = []
    for topic, (rate, publishers) in enumerate(zip(job["rates"], job["publishers"], strict=True)):
        interval = publishers / rate
        for _ in range(publishers):
            at = draw.random() * interval
            while at < length_s:
                due.append((at, topic))
                at += interval * max(draw.gauss(1.0, DRIFT), 0.0)
    return sorted(due)


def cpu_s(pid: int) -> float:
    """CPU time of a process and of its children that have ended; NaN if there is no such process."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return sum(map(int, fields[11:15])) / TICKS
    return float("nan")


def machine_s() -> float:
    """Time that all cores of this machine have been in use; NaN without /proc/stat."""
    try:
        ticks = [float(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return float("nan")
    return (sum(ticks) - ticks[3] - ticks[4]) / TICKS  # without idle time and I/O wait


class Usage:
    """CPU times at one moment."""

    def __init__(self, pids: list[int]) -> None:
        self.at = time.monotonic()
        own = resource.getrusage(resource.RUSAGE_SELF)
        self.values = [machine_s(), own.ru_utime + own.ru_stime, *(cpu_s(pid) for pid in pids)]

    def since(self, before: Usage) -> list[float]:
        """Cores in use since ``before``: of the machine, of this process, of the others."""
        span = self.at - before.at
        return [(now - then) / span for now, then in zip(self.values, before.values, strict=True)]


def play(connection: Connection, job: dict[str, Any]) -> dict[str, Any]:
    """Publish as scheduled, receive the results, and return the latency of every message that counts: that of its last
    copy."""
    due = schedule(job, job["warm_s"] + job["seconds"])
    topic_of = [topic for _, topic in due]
    counted = [at >= job["warm_s"] for at, _ in due]
    latency: list[float | None] = [None] * len(due)
    missing = [job["subscribers"][topic] for topic in topic_of]  # copies of each message
    late: list[float] = []
    filler = b"." * max(job["size_bytes"] - NUMBER.size, 0)
    heads = [f"PUB {subject} _t.{job['source']}.".encode() for subject in job["publish"]]
    size = NUMBER.size + len(filler)
    sent = [0] * len(heads)
    waiting, before, parent = 0, None, os.getppid()

    def receive(wait_s: float) -> None:
        nonlocal waiting
        for payload in connection.payloads(wait_s):
            number, at = NUMBER.unpack_from(payload)
            missing[number] -= 1
            if missing[number] == 0:
                latency[number] = (time.monotonic_ns() - at) / 1e6
                waiting -= 1

    began = time.monotonic()
    for number, (at, topic) in enumerate(due):
        if before is None and counted[number]:
            before = Usage(job["pids"])
        while (left := began + at - time.monotonic()) > 0.0:
            receive(left)
            if os.getppid() != parent:
                raise ConnectionError("the process that measures has ended")
        sent[topic] += 1
        waiting += 1
        stamp = f"{sent[topic]}.{time.time_ns() // 1000} {size}\r\n".encode()
        body = NUMBER.pack(number, time.monotonic_ns())
        connection.socket.sendall(b"".join((heads[topic], stamp, body, filler, b"\r\n")))
        late.append(1000.0 * (time.monotonic() - began - at))
    after = Usage(job["pids"])
    deadline = time.monotonic() + job["wait_s"]
    while waiting and time.monotonic() < deadline:
        receive(deadline - time.monotonic())
    found: list[list[float | None]] = [[] for _ in heads]
    for topic, counts, value in zip(topic_of, counted, latency, strict=True):
        if counts:
            found[topic].append(value)
    return {
        "latencies_ms": found,
        "cores": after.since(before) if before is not None else [],
        "late_ms": sorted(late)[int(0.9 * len(late))] if late else 0.0,
    }


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the parent ends this process
    job = json.loads(sys.stdin.readline())
    with contextlib.suppress(OSError):  # only a privileged user may
        os.nice(PRIORITY)
    try:
        connection = Connection(job)
        every = [
            subject for subject, count in zip(job["subscribe"], job["subscribers"], strict=True) for _ in range(count)
        ]
        for sid, subject in enumerate(every, 1):
            connection.socket.sendall(f"SUB {subject} {sid}\r\n".encode())
        connection.settle()
        print(json.dumps(play(connection, job)), flush=True)
    except (OSError, ValueError) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    main()
