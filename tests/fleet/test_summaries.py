"""The summaries of topics that an agent reports, without a fleet."""

from __future__ import annotations

import asyncio

import pytest

from trimtab.fleet.broker.links import Links
from trimtab.fleet.broker.positions import ClientPositions
from trimtab.fleet.broker.summaries import TopicSummaries
from trimtab.fleet.operator.tables import topic_rows
from trimtab.fleet.protocol.admin_verbs import Entries
from trimtab.fleet.protocol.entries import CoordinateEntry, Topic
from trimtab.fleet.protocol.registry import Registry, coordinate_entry, topic_entry
from trimtab.observe.best_brokers import BestBrokers
from trimtab.observe.coordinates.coordinate import Coordinate
from trimtab.observe.report import BrokerReport, ClientPosition

BROKERS = ("b1", "b2", "b3")
TOPICS = (
    Topic("near", "b1", latency_ms=40.0), Topic("free", "b1"), Topic("other", "b2", latency_ms=40.0),
    Topic("shared", "b1", unit="client", latency_ms=40.0), Topic("empty", "b1", latency_ms=40.0),
)  # fmt: skip


def summaries(scenario):
    """Three brokers on a line, 20 ms apart, each behind 1 ms of its own."""

    async def run():
        registry, links, positions = Registry(), Links(), ClientPositions()
        for number, name in enumerate(BROKERS):
            entry = CoordinateEntry(Coordinate((20.0 * number, 0.0), 1.0))
            registry.apply(coordinate_entry(name), entry, number + 1)
        for number, topic in enumerate(TOPICS):
            registry.apply(topic_entry(topic.name), topic, number + 10)
        return await scenario(TopicSummaries("b1", registry, links, positions), links, positions)

    return asyncio.run(run())


def test_only_whole_topics_with_a_bound_that_are_hosted_here_have_one():
    async def scenario(topics, *_):
        return await topics.take(BROKERS, {})

    found = summaries(scenario)

    assert sorted(found) == ["empty", "near"]
    assert found["near"].broker == ""


def test_the_best_broker_is_nearest_to_publishers_and_subscribers_together():
    async def scenario(topics, links, positions):
        links.update("pub", {"near": ["pub"], "free": ["pub"]})
        links.update("sub", {"near": ["sub"]})
        links.update("quiet", {"near": ["sub"]})  # has not reported its position
        positions.update("pub", ClientPosition("b3", 4.0), BROKERS)
        positions.update("sub", ClientPosition("b3", 2.0, {"b2": 30.0}), BROKERS)
        return await topics.take(BROKERS, {})

    near = summaries(scenario)["near"]

    # At b1: 46 and 44 ms there and back, half of it one way, which is above the bound. The subscriber has measured b2.
    assert near == BestBrokers(45.0, 1, 2, "b3", 3.0, 0, "b2", 28.0)


def test_plain_subscribers_of_this_broker_are_here():
    async def scenario(topics, links, positions):
        links.update("pub", {"near": ["pub"]})
        positions.update("pub", ClientPosition("b2", 0.0), BROKERS)
        return await topics.take(BROKERS, {"near": 3})

    near = summaries(scenario)["near"]

    assert (near.worst_ms, near.broker, near.broker_ms) == (11.0, "b1", 11.0)


def test_a_broker_without_a_coordinate_is_only_as_near_as_it_was_measured():
    async def scenario(topics, links, positions):
        links.update("pub", {"near": ["pub"]})
        positions.update("pub", ClientPosition("b2", 2.0, {"new": 1.0}), (*BROKERS, "new"))
        return await topics.take((*BROKERS, "new", "newer"), {})

    near = summaries(scenario)["near"]

    assert (near.broker, near.broker_ms, near.second, near.feasible) == ("new", 0.5, "b2", 4)


@pytest.mark.parametrize("clients", [1, 300])
def test_the_size_of_a_report_does_not_grow_with_the_clients(clients):
    async def scenario(topics, links, positions):
        for number in range(clients):
            links.update(f"c{number}", {"near": ["pub", "sub"]})
            positions.update(f"c{number}", ClientPosition("b2", 1.0 + number % 7), BROKERS)
        return await topics.take(BROKERS, {})

    report = BrokerReport("b1", 1.0, 1.0, summaries={"near": summaries(scenario)["near"]})

    assert len(str(report.encode()["summaries"])) < 100


def test_the_table_of_topics_shows_them():
    listing = Entries({"near": TOPICS[0], "free": TOPICS[1]}, ["b1"], [])
    summary = BestBrokers(45.0, 0, 3, "b3", 3.0, 0, "b2", 28.0)

    free, near = topic_rows(listing, {"b1": BrokerReport("b1", 1.0, 1.0, summaries={"near": summary})})

    assert (near.network_ms, near.best_broker, near.best_ms) == (45.0, "b3", 3.0)
    assert (free.network_ms, free.best_broker, free.best_ms) == (None, None, None)
