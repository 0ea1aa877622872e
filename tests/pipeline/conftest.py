"""One Spark session for all tests of the pipeline, and real nats-servers with JetStream."""

import asyncio
import itertools
import json
import socket
import subprocess
import time

import nats as nats_py
import pytest

from trimtab.fleet.site.server import find_nats_server, free_ports
from trimtab.pipeline.nats.jetstream import JetStream
from trimtab.pipeline.nats.wire import Server

HOST = "127.0.0.1"
PATIENCE_S = 20.0
PASSWORD = "open-sesame"


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """Compiled lightly: tests are over before more would pay."""
    from trimtab.pipeline.session import open_session

    session = open_session(
        "tests",
        {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        },
    )
    yield session
    session.stop()


@pytest.fixture(name="until")
def _until():
    return until


def until(condition):
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "it has not come true"
        time.sleep(0.01)
    return value


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
        until(self._listens)

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
            connection = await nats_py.connect(f"nats://{host}:{port}", user="me", password=PASSWORD)
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


@pytest.fixture(scope="session")
def nats(tmp_path_factory):
    """For tests that leave it alone."""
    running = NatsServer(tmp_path_factory.mktemp("nats"))
    yield running
    running.kill()


@pytest.fixture
def start_nats(tmp_path):
    """Servers of a test's own."""
    running = []

    def start(**config):
        folder = tmp_path / f"nats{len(running)}"
        folder.mkdir()
        running.append(NatsServer(folder, **config))
        return running[-1]

    yield start
    for each in running:
        each.kill()


_numbers = itertools.count(1)


@pytest.fixture
def stream(nats):
    """An empty stream that no other test uses."""
    name = f"S{next(_numbers)}"
    nats.add_stream(name)
    return name
