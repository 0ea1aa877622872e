"""What all tests share: how Hypothesis behaves, and one real fleet that is started when the first test asks for it."""

import itertools
import sys

import pytest
from hypothesis import HealthCheck, settings

from fleet_helpers import RunningFleet

# Hypothesis must not time compiled code, and examples must not depend on the day.

settings.register_profile(
    "trimtab", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], max_examples=60
)
settings.load_profile("trimtab")


@pytest.fixture(scope="session")
def modules(tmp_path_factory):
    """A folder on the path of this process and of every agent."""
    folder = tmp_path_factory.mktemp("modules")
    sys.path.append(str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="session")
def fleet(tmp_path_factory, modules):
    """A hub and three brokers."""
    running = RunningFleet(tmp_path_factory.mktemp("fleet") / "home")
    try:
        running.start()
        yield running
    finally:
        running.stop()


_numbers = itertools.count()


@pytest.fixture
def topic():
    """A name no other test uses."""
    return f"t{next(_numbers)}.x"
