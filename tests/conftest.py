"""What all tests share: how Hypothesis behaves, who starts what, and one real fleet for the tests that ask for it."""

import itertools
import sys

import pytest
from hypothesis import HealthCheck, settings

from helpers import processes
from helpers.fleet import RunningFleet
from trimtab.fleet.protocol.admin_verbs import ListCordons, UncordonBroker

# Hypothesis must not time compiled code, and examples must not depend on the day.

settings.register_profile(
    "trimtab", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=60
)
settings.register_profile("quick", settings.get_profile("trimtab"), max_examples=5)
settings.load_profile("trimtab")


def pytest_configure():
    sys.addaudithook(processes.check)


def pytest_itemcollected(item):
    for fixture in processes.fixtures_of(item.fixturenames):
        item.add_marker(processes.MARKERS[fixture])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    processes.allow(processes.fixtures_of(item.fixturenames))


@pytest.fixture(scope="session")
def nats_server():
    """Of every test and fixture that starts a nats-server, so that the test is marked ``live``."""


@pytest.fixture(scope="session")
def java():
    """Of every test and fixture that starts a JVM, so that the test is marked ``spark``."""


@pytest.fixture(scope="session")
def modules(tmp_path_factory):
    """A folder on the path of this process and of every agent."""
    folder = tmp_path_factory.mktemp("modules")
    sys.path.append(str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="session")
def fleet(tmp_path_factory, modules, nats_server):
    """A hub and three brokers."""
    running = RunningFleet(tmp_path_factory.mktemp("fleet") / "home")
    try:
        running.start()
        yield running
    finally:
        running.stop()


@pytest.fixture
def open_brokers(fleet):
    """No broker of the shared fleet is cordoned, before and after: a drain leaves a cordon behind."""

    def uncordon():
        for broker in fleet.ask(ListCordons()).entries:
            fleet.ask(UncordonBroker(broker))

    uncordon()
    yield
    uncordon()


_numbers = itertools.count()


@pytest.fixture
def topic():
    """A name no other test uses."""
    return f"t{next(_numbers)}.x"
