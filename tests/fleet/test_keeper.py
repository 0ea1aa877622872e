"""The keeper's decisions, without a server."""

from __future__ import annotations

import asyncio

import pytest
from nats.js.errors import NotFoundError

from helpers.keeper import Connection, keeper_of
from trimtab.fleet.hub import keeper as keeper_module
from trimtab.fleet.hub.keeper import Keeper
from trimtab.fleet.operator.tables import topic_rows
from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.protocol.admin_verbs import ListBrokers
from trimtab.fleet.protocol.entries import Topic
from trimtab.observe.report import BrokerReport, TopicReport


class Raw:
    def __init__(self, broker, **report):
        self.subject = subjects.telemetry(broker)
        self.data = coding.to_json(BrokerReport(broker, **report))


def test_only_brokers_that_are_alive_are_reported():
    """The clients of a dead broker are at other brokers, which report them too."""

    async def scenario():
        keeper = keeper_of("b1", "b2", away=("b3",))
        for broker in ("b1", "b2", "b3", "forgotten"):
            counted = {"cam": TopicReport(publishers=1)}
            await keeper._report(Raw(broker, at=1.0, period_s=1.0, topics=counted))
        listing = await keeper._operators._brokers(ListBrokers(reports=True))
        assert sorted(listing.reports) == ["b1", "b2"]
        [row] = topic_rows(
            type(listing)({"cam": Topic("cam", "b1")}, listing.alive, listing.heard), listing.reports
        )  # fmt: skip
        assert row.publishers == 2

    asyncio.run(scenario())


class Starting(Keeper):
    """A keeper whose state cannot be loaded the first few times."""

    def __init__(self, failures, *, flush=None):
        super().__init__(Connection())
        self.failures = failures
        self.connection.flush_error = flush

    async def _load(self):
        if self.failures:
            raise self.failures.pop()


def test_a_keeper_whose_state_cannot_be_loaded_at_once_tries_again_and_subscribes_once(monkeypatch):
    monkeypatch.setattr(keeper_module, "ATTEMPT_S", 0.0)

    async def scenario():
        keeper = Starting([NotFoundError(), TimeoutError()])
        await keeper.start()
        assert len(keeper.connection.subscribed) == len({*keeper.connection.subscribed}) > 10

    asyncio.run(scenario())


def test_a_keeper_whose_state_cannot_be_loaded_at_all_ends(monkeypatch):
    """The supervisor starts another one."""
    monkeypatch.setattr(keeper_module, "ATTEMPT_S", 0.0)

    async def scenario():
        keeper = Starting([TimeoutError("no answer")] * 50)
        with pytest.raises(TimeoutError, match="no answer"):
            await keeper.start()
        assert keeper.connection.subscribed == []

    asyncio.run(scenario())


def test_a_keeper_never_subscribes_a_second_time(monkeypatch):
    """Every request would be carried out twice."""
    monkeypatch.setattr(keeper_module, "ATTEMPT_S", 0.0)

    async def scenario():
        keeper = Starting([], flush=TimeoutError("the server is busy"))
        with pytest.raises(TimeoutError, match="the server is busy"):
            await keeper.start()
        assert len(keeper.connection.subscribed) == len({*keeper.connection.subscribed})

    asyncio.run(scenario())
