"""The judge's figures, by hand and by definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import loads, workload, workloads
from trimtab.errors import BadTable
from trimtab.model.placement import Placement
from trimtab.model.problem import Problem
from trimtab.place.judge import judge

LOAD = workload([10, 1, 5], [40, 100], [(0, 0), (0, 1), (1, 1)], publications=[(2, 0)])


def figures(unit, broker):
    return judge(Problem(LOAD, unit), Placement(unit, np.array(broker, np.int32)))


def test_links_pay_one_copy_in_per_broker_and_one_out_each():
    found = figures("link", [0, 1, 1])

    assert found.load.per_broker.tolist() == [10 + 10, 10 + 10 + 1 + 1]
    assert (found.received, found.offered, found.placed, found.unplaced) == (21, 21, 3, 0)
    assert (found.load.max, found.load.mean, found.load.total) == (22, 21, 42)
    assert found.load.cov == pytest.approx(1 / 21)
    assert found.brokers_used == 2
    assert found.feasible


def test_an_unplaced_link_is_not_received():
    found = figures("link", [0, -1, 1])

    assert (found.received, found.received_share, found.unplaced) == (11, 11 / 21, 1)


def test_a_topic_is_taken_in_by_its_host_even_while_nobody_subscribes():
    found = figures("topic", [0, 0, 1])

    assert found.load.per_broker.tolist() == [10 + 20 + 1 + 1, 5]


def test_a_client_brings_all_its_links_home():
    found = figures("client", [0, 1])

    assert found.load.per_broker.tolist() == [10 + 10, 10 + 10 + 1 + 1]


def test_a_violation_says_what_is_exceeded_and_by_how_much():
    load = workload([10], [25, 100], [(0, 0), (0, 1)])

    found = judge(Problem(load, "link"), Placement("link", np.array([0, 0])))

    assert not found.feasible
    assert [str(v) for v in found.violations] == ["broker 'b0' uses 30 of 25 bandwidth: 5 too much"]
    assert found.as_json()["violations"] == 1


def test_nothing_offered_is_all_received():
    found = judge(Problem(workload([1], [1], [], clients=1), "link"), Placement("link", np.empty(0)))

    assert (found.received_share, found.load.cov, found.load.max) == (1.0, 0.0, 0.0)


def test_rounding_is_not_a_violation():
    load = workload([0.1], [0.3], [(0, 0), (0, 1)])

    assert judge(Problem(load, "link"), Placement("link", np.array([0, 0]))).feasible


@given(load=workloads(), data=st.data())
def test_the_load_of_any_placement_is_the_formula(load, data):
    problem = Problem(load, "link")
    broker = data.draw(st.lists(st.integers(-1, problem.brokers - 1), min_size=problem.units, max_size=problem.units))

    found = judge(problem, Placement("link", np.array(broker, np.int32)))

    assert found.load.per_broker.tolist() == pytest.approx(loads(problem, broker))
    assert found.received == pytest.approx(
        sum(problem.data_rate[k] for k, j in zip(problem.topic, broker, strict=True) if j >= 0)
    )


@pytest.mark.parametrize(
    ("unit", "broker", "sentence"),
    [
        ("topic", [0, 0, 0], "places topics, but the question is about links"),
        ("link", [0], "has 1 links, but the workload has 3"),
        ("link", [0, 7, 0], "row 2: broker 7 is not one of the 2"),
        ("link", [0, -2, 0], "row 2: broker -2 is not one of the 2"),
    ],
)
def test_a_placement_of_another_problem_is_refused(unit, broker, sentence):
    with pytest.raises(BadTable, match=sentence):
        judge(Problem(LOAD, "link"), Placement(unit, np.array(broker)))
