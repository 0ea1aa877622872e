"""Summaries of topics of constant size: what they say, how large they are, and that nothing is lost by them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from helpers.strategies import workloads
from trimtab.lab.worlds.mmog import Mmog
from trimtab.model.centroids import Centroids
from trimtab.model.coordinates import Coordinates
from trimtab.model.ids import Ids
from trimtab.model.nearness import Nearness
from trimtab.model.network import Network
from trimtab.model.placement import UNPLACED, Placement
from trimtab.model.problem import Problem
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.observe.summary import (
    BestBrokers,
    as_columns,
    best_brokers,
    centroid_summaries,
    client_coordinates,
    wire_bytes,
)
from trimtab.place.registry import policy
from trimtab.place.topic.by_network import decide
from trimtab.place.topic.room import Room


class NothingElse:
    """A ranking that must not be asked: summaries have to be enough."""

    def best(self, topics, most):
        raise AssertionError("a longer list was asked for")


def random_topics(topics, brokers, seed) -> Problem:
    """Topics with one to eight clients each, some of them without a feasible broker."""
    rng = np.random.default_rng(seed)
    clients = 5000
    size = rng.integers(1, 9, topics)
    topic = np.repeat(np.arange(topics), size)
    client = (
        np.concatenate([rng.choice(40, each, replace=False) for each in size])
        + rng.integers(0, 124, topics)[topic] * 40
    )
    role = np.where(rng.random(len(topic)) < 0.3, PUB, SUB)
    return Problem(
        Workload(
            Topics(Ids.numbered("t", topics), np.ones(topics), latency_ms=rng.uniform(40, 250, topics)),
            Clients(Ids.numbered("c", clients), coordinate=Coordinates(rng.normal(0, 40, (clients, 4)),
                                                                      rng.exponential(3, clients))),
            Brokers(Ids.numbered("b", brokers), coordinate=Coordinates(rng.normal(0, 40, (brokers, 4)),
                                                                      rng.exponential(3, brokers))),
            Links(topic, client, role.astype(np.int8)),
        ),
        "topic", leg=1.0,
    )  # fmt: skip


@pytest.mark.slow
def test_eight_numbers_per_topic_place_a_hundred_thousand_topics_as_by_all_pairs_or_better():
    problem = random_topics(100_000, 30, seed=5)
    nearness = Nearness.of(problem, Network.of(problem.workload))
    names, home = problem.workload.brokers.ids, np.zeros(100_000, np.int32)
    room = Room.of(problem, 0.85, None)

    wire = msgspec.json.encode(best_brokers(nearness, home, names, margin=0.0, margin_ms=0.0))
    reports = msgspec.json.decode(wire, type=list[BestBrokers])
    columns = as_columns(reports, home, nearness.bound_ms, names, margin=0.0, margin_ms=0.0)
    placed = decide(*columns, room, home, NothingElse())

    all_pairs = policy("topic/all-pairs").place(problem)
    ours, theirs = nearness.at(placed), nearness.at(all_pairs.broker)
    assert len(BestBrokers.__struct_fields__) <= 8
    assert (ours.violating <= theirs.violating).all()
    same = ours.violating == theirs.violating
    assert (ours.worst_ms <= theirs.worst_ms + 0.001)[same].all()  # reported to a microsecond
    assert 0.1 < (theirs.violating > 0).mean() < 0.9


@given(load=workloads().filter(lambda load: load.clients.coordinate is not None and len(load.brokers)))
@settings(max_examples=50)
def test_decisions_by_summaries_are_those_by_all_clients(load):
    """With room for everything, from any present placement."""
    problem = Problem(load, "topic")
    nearness = Nearness.of(problem, Network.of(load))
    rng = np.random.default_rng(len(load.links))
    home = rng.integers(0, problem.brokers, problem.units).astype(np.int32)
    room = Room.of(
        Problem(Workload(load.topics, load.clients, Brokers(load.brokers.ids), load.links), "topic"), 1, None
    )

    reports = best_brokers(nearness, home, load.brokers.ids)
    again = msgspec.json.decode(msgspec.json.encode(reports), type=list[BestBrokers])
    if not again:
        return
    placed = decide(*as_columns(again, home, nearness.bound_ms, load.brokers.ids), room, home, NothingElse())

    unlimited = Workload(load.topics, load.clients, Brokers(load.brokers.ids, coordinate=load.brokers.coordinate),
                         load.links, load.rtt)  # fmt: skip
    whole = Problem(unlimited, "topic", Placement("topic", home))
    assert placed.tolist() == policy("topic/trim", by="network").place(whole).broker.tolist()


def test_the_size_of_summaries_does_not_grow_with_clients():
    sizes = {"best": [], "centroid": [], "all": []}
    for clients in (4, 64):
        world = Mmog(cities=8, clients=256, group=clients)
        problem = Problem(world.make(1), "topic")
        nearness = Nearness.of(problem, Network.of(problem.workload))
        names, home = list(problem.workload.topics.ids), np.zeros(256, np.int32)
        sizes["best"].append(wire_bytes(names, best_brokers(nearness, home, problem.workload.brokers.ids)))
        summaries = centroid_summaries(Centroids.of(problem), nearness.at(home))
        sizes["centroid"].append(wire_bytes(names, summaries))
        sizes["all"].append(wire_bytes(names, client_coordinates(nearness, problem.workload.clients.coordinate)))

    for summary in ("best", "centroid"):
        assert sizes[summary][1] == pytest.approx(sizes[summary][0], rel=0.1)
        assert sizes[summary][1] < sizes["all"][1] / 10
    assert sizes["all"][1] > 8 * sizes["all"][0]


def test_a_topic_without_a_known_client_has_an_empty_summary():
    problem = random_topics(3, 2, seed=1)
    load = problem.workload
    nowhere = Coordinates(np.full((5000, 4), np.nan), np.full(5000, np.nan))
    problem = Problem(
        Workload(load.topics, Clients(load.clients.ids, coordinate=nowhere), load.brokers, load.links), "topic"
    )
    nearness = Nearness.of(problem, Network.of(problem.workload))

    (first, *_) = best_brokers(nearness, np.array([0, 1, UNPLACED], np.int32), load.brokers.ids)

    assert (first.broker, first.second, first.worst_ms) == ("", "", None)
