"""What the link policies are for: exact answers on small cases, bounds that hold, and the papers' readings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strategies import loads, most_data, workload
from trimtab.errors import BadKnob, TooLarge, UnknownName
from trimtab.lab.worlds.maxdata import MaxData
from trimtab.model.problem import Problem
from trimtab.place.judge import judge
from trimtab.place.link import bounds
from trimtab.place.link.counts import Grid, Instance
from trimtab.place.link.mkpbs import fullest
from trimtab.place.link.trim import Trim
from trimtab.place.registry import policies, policy, policy_with


@st.composite
def tiny(draw) -> Problem:
    """At most three topics on at most three unequal brokers, whole or real rates: all answers can be tried."""
    number = draw(st.sampled_from([st.integers(1, 6).map(float), st.floats(0.5, 6.0)]))
    rate = draw(st.lists(number, min_size=1, max_size=3))
    bandwidth = draw(st.lists(number.map(lambda b: 4 * b), min_size=1, max_size=3))
    degrees = draw(st.lists(st.integers(0, 5), min_size=len(rate), max_size=len(rate)))
    links = [(k, c) for k, d in enumerate(degrees) for c in range(d)]
    return Problem(workload(rate, bandwidth, links, clients=5), "link")


@given(problem=tiny())
@settings(max_examples=150)
def test_trim_and_ilp_are_optimal_and_know_it_on_tiny_problems(problem):
    best = most_data(problem)

    for name in ("link/trim", "link/ilp"):
        placement = policy(name).place(problem)
        assert judge(problem, placement).received == pytest.approx(best, rel=1e-9)
        assert placement.bound.value == pytest.approx(best, rel=1e-6)


@given(problem=tiny())
@settings(max_examples=150)
def test_no_bound_lies_below_the_optimum(problem):
    best = most_data(problem) * (1 - 1e-9)
    instance = Instance.of(problem)

    assert bounds.paper(instance).value >= best
    assert bounds.merged_lp(instance).value >= best
    assert bounds.merged_exact(instance).value >= best
    assert bounds.patterns(instance).value >= best
    alike = bounds.alike(instance)
    assert alike is None or alike.value >= best


@given(problem=tiny())
def test_a_coarse_grid_still_bounds_from_above(problem):
    instance = Instance.of(problem)
    if not len(instance.order) or instance.room.max() <= 0:
        return
    down = Grid.of(instance, 7, down=True)

    best = most_data(problem) * (1 - 1e-9)
    assert bounds.merged_exact(instance, down).value >= best
    assert bounds.patterns(instance, down).value >= best


@pytest.mark.parametrize("rates", ["homogeneous", "low", "high", "uniform:0.5:20"])
@pytest.mark.parametrize(("publishers", "bandwidth", "machines"), [(100, 200, 15), (100, 500, 5), (1000, 200, 10)])
@pytest.mark.parametrize("spread", [0.0, 0.4])
def test_trim_is_never_below_a_rival_and_near_its_bound(rates, publishers, bandwidth, machines, spread):
    world = MaxData(publishers=publishers, rates=rates, machines=machines, bandwidth=bandwidth, spread=spread)
    problem = Problem(world.make(1), "link")

    trim = policy("link/trim").place(problem)

    received = judge(problem, trim).received
    for rival in ("link/gs", "link/gs-strict", "link/mkpbs"):
        assert received >= judge(problem, policy(rival).place(problem)).received
    assert received >= 0.995 * trim.bound.value


def test_gs_follows_algorithm_1():
    """Topic 0 has most links and fills the roomiest broker as far as it goes; its rest competes with topic 1."""
    problem = Problem(workload([2, 1], [8, 5], [(0, c) for c in range(4)] + [(1, c) for c in range(2)]), "link")

    broker = policy("link/gs").place(problem).broker

    # 3 of topic 0 at broker 0 (2 in + 6 out = 8); then topic 1 (2 left) at broker 1 (1 + 2 = 3); nothing else fits
    assert broker.tolist() == [0, 0, 0, -1, 1, 1]


def test_gs_drops_a_topic_that_the_roomiest_broker_cannot_take_and_ends():
    """As printed, topic and broker are pushed back for ever."""
    problem = Problem(workload([9, 1], [10], [(0, 0), (0, 1), (1, 0)]), "link")

    assert policy("link/gs").place(problem).broker.tolist() == [-1, -1, 0]


def test_gs_strict_leaves_the_last_slot_of_a_broker_empty():
    problem = Problem(workload([1], [4], [(0, c) for c in range(5)]), "link")

    assert judge(problem, policy("link/gs").place(problem)).placed == 3
    assert judge(problem, policy("link/gs-strict").place(problem)).placed == 2


def test_mkpbs_places_whole_topics_first_and_then_parts():
    # topic 0 (4 links, weight 5) goes whole to broker 0; of topic 1 (3 links) broker 1 takes what fits
    links = [(0, c) for c in range(4)] + [(1, c) for c in range(3)]
    problem = Problem(workload([1, 1], [5, 3], links), "link")

    assert policy("link/mkpbs").place(problem).broker.tolist() == [0, 0, 0, 0, 1, 1, -1]


@given(
    weights=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    data=st.data(),
    cells=st.integers(0, 40),
)
def test_the_knapsack_inside_mkpbs_is_exact(weights, data, cells):
    copies = data.draw(st.lists(st.integers(0, 4), min_size=len(weights), max_size=len(weights)))
    chosen = np.empty(len(weights), np.int32)

    fullest(np.array(weights), np.array(copies, np.int32), cells, chosen)

    reachable = {0}
    for w, n in zip(weights, copies, strict=True):
        reachable = {s + w * m for s in reachable for m in range(n + 1)}
    assert (chosen <= copies).all()
    assert chosen @ weights == max(s for s in reachable if s <= cells)


@pytest.mark.parametrize("name", policies("link"))
def test_the_load_that_the_judge_sees_is_the_load_by_definition(name):
    problem = Problem(MaxData(publishers=12, subscribers=9, edges=4, machines=4, bandwidth=90).make(2), "link")

    placement = policy_with(name, effort=0.1).place(problem)

    assert judge(problem, placement).load.per_broker.tolist() == loads(problem, placement.broker)


def test_large_problems_take_the_sweep_and_stay_close_to_the_bound():
    for rates in ("homogeneous", "low", "high"):
        world = MaxData(publishers=1000, subscribers=1000, edges=50, rates=rates, machines=60, bandwidth=2000)
        problem = Problem(world.make(0), "link")

        placement = policy("link/trim").place(problem)

        received = judge(problem, placement).received
        assert placement.bound.value * 0.999 <= received <= placement.bound.value
        assert received >= judge(problem, policy("link/gs").place(problem)).received


def test_a_time_that_is_up_still_gives_an_answer_and_a_bound():
    class Over:
        def left_s(self) -> float:
            return 0.0

    problem = Problem(MaxData(rates="low", machines=15, bandwidth=200).make(0), "link")
    for name in ("link/trim", "link/ilp"):
        placement = policy(name, stop=Over()).place(problem)

        judgement = judge(problem, placement)
        assert judgement.feasible
        assert judgement.received >= judge(problem, policy("link/gs").place(problem)).received
        assert placement.bound.value >= judgement.received


def test_more_effort_is_never_worse_on_average():
    problems = [Problem(MaxData(rates="low", machines=20, bandwidth=200).make(seed), "link") for seed in range(3)]

    quick, thorough = (
        sum(judge(p, policy("link/trim", effort=effort).place(p)).received for p in problems) for effort in (0.0, 0.5)
    )

    assert thorough > quick


def test_a_program_that_is_too_large_is_refused_with_a_way_out():
    problem = Problem(MaxData(publishers=200, machines=200).make(0), "link")

    with pytest.raises(TooLarge, match="use link/trim"):
        policy("link/ilp", max_variables=1000).place(problem)


def test_a_knob_that_a_policy_does_not_have_is_refused():
    with pytest.raises(UnknownName, match=r"there is no knob of link/trim 'efort'; did you mean 'effort'\?"):
        policy("link/trim", efort=2)


def test_a_negative_effort_is_refused():
    with pytest.raises(BadKnob, match="effort must be zero or more, but is -1"):
        Trim(effort=-1)
