"""The summary that an agent computes in plain Python is the one that is computed in columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import workloads
from trimtab.model.nearness import Nearness
from trimtab.model.network import Network
from trimtab.model.placement import UNPLACED
from trimtab.model.problem import Problem
from trimtab.observe.best_brokers import KEPT, AtBrokers, BestBrokers, Pairs, at_brokers, summarise
from trimtab.observe.summary import best_brokers


@given(load=workloads(topics=4, clients=5, brokers=4), data=st.data())
def test_it_is_the_one_that_is_computed_in_columns(load, data):
    network = Network.of(load)
    if network is None or not len(load.brokers) or not len(load.topics):
        return
    problem = Problem(load, "topic")
    nearness, names = Nearness.of(problem, network), list(load.brokers.ids)
    rows = st.integers(UNPLACED, len(names) - 1)
    home = np.array(data.draw(st.lists(rows, min_size=len(load.topics), max_size=len(load.topics))), np.int32)

    every = np.arange(len(load.clients), dtype=np.int32), np.arange(len(names), dtype=np.int32)
    legs = (problem.leg * np.nan_to_num(network.rtt_ms(*every), nan=np.inf, posinf=np.inf)).tolist()
    ends = nearness.ends
    for topic, expected in enumerate(best_brokers(nearness, home, load.brokers.ids)):
        sides = [
            [legs[client] for client in clients[begin[topic] : begin[topic + 1]]]
            for begin, clients in ((ends.pub_begin, ends.pub), (ends.sub_begin, ends.sub))
        ]

        found = summarise(Pairs(*sides, len(names)), float(nearness.bound_ms[topic]), int(home[topic]), names)

        assert _comparable(found) == _comparable(expected)


def _comparable(summary: BestBrokers) -> tuple:
    """Without what is said of a broker that is none, and to a hundredth of a millisecond."""
    best = (summary.broker, _near(summary.broker_ms), summary.broker_violating) if summary.broker else None
    second = (summary.second, _near(summary.second_ms)) if summary.second else None
    return _near(summary.worst_ms), summary.violating, summary.feasible, best, second


def _near(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 2)


def test_by_hand():
    """Two publishers and a subscriber: b1 keeps the bound, b2 does not for one of the pairs."""
    publishers, subscribers = [[1.0, 9.0, 2.0], [2.0, 3.0, 9.0]], [[4.0, 2.0, 9.0]]

    found = summarise(Pairs(publishers, subscribers, 3), 10.0, 2, ["b1", "b2", "b3"])

    assert found == BestBrokers(18.0, 1, 1, "b1", 6.0, 0, "b2", 11.0)


def test_a_topic_without_a_known_client_has_no_best_broker():
    assert summarise(Pairs([], [], 2), 10.0, 0, ["b1", "b2"]) == BestBrokers(None, 0, 2, "", None, 0, "", None)


def test_the_latencies_at_all_known_brokers():
    pairs = Pairs([[1.0, 9.0, np.inf]], [[4.0, 9.0, 9.0]], 3)

    found = at_brokers(pairs, 10.0, 1, ["b1", "b2", "b3"])

    assert found == AtBrokers("b2", 1, {"b1": (5.0, 0), "b2": (18.0, 1)})
    assert (found.worst_ms, found.better()) == (18.0, ["b1"])


def test_of_many_brokers_the_best_and_its_own_are_kept():
    found = at_brokers(Pairs([list(range(100))], [], 100), 10.0, 99, [f"b{row}" for row in range(100)])

    assert list(found.brokers) == [f"b{row}" for row in [*range(KEPT), 99]]


def test_no_broker_is_better_if_the_gain_is_not_worth_a_move():
    """19 ms instead of 20 ms, both above the bound, are not worth a move; 17 ms are."""
    assert at_brokers(Pairs([[20.0, 19.0]], [], 2), 10.0, 0, ["b1", "b2"]).better() == []
    assert at_brokers(Pairs([[20.0, 17.0]], [], 2), 10.0, 0, ["b1", "b2"]).better() == ["b2"]


def test_a_topic_without_a_known_client_or_at_a_broker_of_unknown_latency_has_no_latencies():
    assert at_brokers(Pairs([], [], 2), 10.0, 0, ["b1", "b2"]) is None
    assert at_brokers(Pairs([[np.inf, 1.0]], [], 2), 10.0, 0, ["b1", "b2"]) is None
