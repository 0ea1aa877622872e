"""One Spark session for all tests of the pipeline, and real nats-servers with JetStream."""

import itertools

import pytest

from helpers.nats_server import NatsServer


@pytest.fixture(scope="session")
def spark(tmp_path_factory, java):
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


@pytest.fixture(scope="session")
def nats(tmp_path_factory, nats_server):
    """For tests that leave it alone."""
    running = NatsServer(tmp_path_factory.mktemp("nats"))
    yield running
    running.kill()


@pytest.fixture
def start_nats(tmp_path, nats_server):
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
