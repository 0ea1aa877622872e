"""The keeper's decisions, without a server."""

from __future__ import annotations

import asyncio

from helpers.keeper import keeper_of
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
