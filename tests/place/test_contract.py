"""What every registered policy promises. A new policy gets the whole suite by being registered."""

from __future__ import annotations

import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given, reject

from helpers.strategies import workload, workloads
from trimtab.errors import MissingColumn
from trimtab.model.placement import UNPLACED
from trimtab.model.problem import Problem
from trimtab.place.judge import judge
from trimtab.place.registry import FAMILIES, POLICIES, find_family, policy, policy_class, policy_with

each_policy = pytest.mark.parametrize("name", POLICIES)


NEED_COORDINATES = ("topic/centroid", "topic/all-pairs")


def problem_for(name, load) -> Problem:
    """The problem; a policy that goes by network coordinates refuses a workload without them."""
    problem = Problem(load, find_family(name.split("/")[0]).unit)
    if name in NEED_COORDINATES and load.clients.coordinate is None:
        with pytest.raises(MissingColumn, match="has no column 'coordinate'"):
            policy(name).place(problem)
        reject()
    return problem


EDGE_CASES = {  # arguments of ``workload``
    "no topics": ([], [5, 5], [], 1),
    "no brokers": ([1, 2], [], [(0, 0), (1, 0)]),
    "no links": ([1, 2], [5], [], 1),
    "only publishers": ([1, 2], [5], [], 1, [(0, 0)]),
    "one broker": ([3, 1], [9], [(0, 0), (0, 1), (1, 0), (1, 1)]),
    "zero capacity": ([3, 1], [0, 0], [(0, 0), (1, 1)]),
    "zero capacity and zero rates": ([0, 0], [0, 0], [(0, 0), (1, 1)]),
    "zero rates": ([0, 0, 4], [9, 2], [(0, 0), (1, 1), (2, 0), (2, 1)]),
    "more brokers than links": ([3, 1], [9] * 12, [(0, 0), (1, 1)]),
    "huge rates": ([3e150, 1e151], [9e151, 2e150], [(0, 0), (0, 1), (1, 0), (1, 1)]),
    "rates of every size": ([1e-9, 1, 1e9], [3e9, 2.5], [(k, c) for k in range(3) for c in range(3)]),
    "nothing fits": ([7, 8], [13, 5], [(0, 0), (1, 1), (1, 0)]),
    "a topic larger than any broker": ([1.0], [4, 5, 3], [(0, c) for c in range(20)]),
    "a tenth does not add up": ([0.1], [0.3], [(0, 0), (0, 1), (0, 2)]),
}


def edge_case(case, network):
    return workload(*EDGE_CASES[case], network=network)


@each_policy
@pytest.mark.parametrize("case", EDGE_CASES)
@pytest.mark.parametrize("network", [0, 3])
def test_edge_cases_are_answered_within_every_limit(name, case, network):
    if name in NEED_COORDINATES and not network:
        return
    problem = problem_for(name, edge_case(case, network))

    check(name, problem, policy(name).place(problem))


@each_policy
@given(load=workloads())
def test_any_problem_is_answered_within_every_limit(name, load):
    problem = problem_for(name, load)

    check(name, problem, policy(name).place(problem))


def check(name, problem, placement):
    assert placement.unit == problem.unit
    assert len(placement) == problem.units
    assert ((placement.broker >= UNPLACED) & (placement.broker < problem.brokers)).all()
    if not policy_class(name).may_leave_unplaced and problem.brokers:
        assert (placement.broker != UNPLACED).all()
    judgement = judge(problem, placement)
    if policy_class(name).keeps_limits:
        assert judgement.feasible, [str(v) for v in judgement.violations]
    usable = problem.brokers and (judgement.delay is not None or judgement.load.levels.size)
    bound = placement.bound
    if bound is not None and usable:
        achieved = judgement.figure(bound.figure)
        assert bound.proves(achieved) or bound.gap(achieved) > 0.0 or bound.value == 0.0
        worse = achieved - bound.value if bound.more_is_better else bound.value - achieved
        assert worse <= 1e-9 * max(abs(achieved), abs(bound.value))


@each_policy
@given(load=workloads())
def test_the_same_seed_gives_the_same_answer(name, load):
    problem = problem_for(name, load)

    first, second = policy_with(name, seed=7).place(problem), policy_with(name, seed=7).place(problem)

    assert np.array_equal(first.broker, second.broker)
    assert first.bound == second.bound


@each_policy
@given(load=workloads())
def test_the_problem_is_left_untouched(name, load):
    problem = problem_for(name, load)
    columns = ("data_rate", "bandwidth", "topic", "client")
    before = [getattr(problem, column).tobytes() for column in columns]

    policy(name).place(problem)

    assert [getattr(problem, column).tobytes() for column in columns] == before


@each_policy
def test_a_policy_is_a_frozen_dataclass_that_pickles_and_shows_its_knobs(name):
    made = policy(name)

    assert made == pickle.loads(pickle.dumps(made))
    assert all(field.name in repr(made) for field in dataclasses.fields(made))
    assert type(made).__dataclass_params__.frozen


@each_policy
def test_a_policy_belongs_to_a_family(name):
    assert name.split("/")[0] in FAMILIES
