"""A real nats-server with JetStream, alone."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess

import nats

from helpers.waiting import until_blocking
from trimtab.fleet.site.server import find_nats_server, free_ports
from trimtab.pipeline.nats.jetstream import JetStream
from trimtab.pipeline.nats.wire import Server

HOST = "127.0.0.1"
PASSWORD = "open-sesame"


class NatsServer:
    """A process that can be killed and started again with what it has stored."""

    def __init__(self, folder, **config) -> None:
        (port,) = free_ports(HOST, 1)
        jetstream = {"store_dir": str(folder)} | config.pop("jetstream", {})
        self._config = folder / "nats.json"
        self._config.write_text(
            json.dumps(
                {
                    "server_name": folder.name,
                    "listen": f"{HOST}:{port}",
                    "jetstream": jetstream,
                    "authorization": {"user": "me", "password": PASSWORD},
                }
                | config
            )
        )
        self.server = Server(f"nats://{HOST}:{port}", "me", PASSWORD)
        self.start()

    def start(self) -> None:
        log = str(self._config.with_suffix(".log"))
        self._process = subprocess.Popen([find_nats_server(), "-c", str(self._config), "-l", log])
        until_blocking(self._listens)

    def _listens(self) -> bool:
        with socket.socket() as trial:
            return trial.connect_ex(self.server.address) == 0

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()

    def do(self, work):
        """What ``work`` (a coroutine function of nats-py's JetStream) returns; a second opinion on what is stored."""

        async def run():
            host, port = self.server.address
            connection = await nats.connect(f"nats://{host}:{port}", user="me", password=PASSWORD)
            try:
                return await work(connection.jetstream())
            finally:
                await connection.close()

        return asyncio.run(run())

    def add_stream(self, name: str, **config) -> None:
        config = {"subjects": [f"{name}.>"], "allow_direct": True} | config
        self.do(lambda jetstream: jetstream.add_stream(name=name, **config))

    def fill(self, stream: str, count: int, first: int = 1) -> None:
        """Messages whose data is their number."""
        with JetStream(self.server) as jetstream:
            jetstream.publish((f"{stream}.x", b"%d" % n, f"{stream}-{n}") for n in range(first, first + count))
