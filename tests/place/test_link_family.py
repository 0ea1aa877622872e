"""What the link policies are for: exact answers on small cases, bounds that hold, and the papers' readings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.strategies import loads, most_data, workload
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


@pytest.mark.slow
@given(problem=tiny())
@settings(max_examples=150)
def test_trim_and_ilp_are_optimal_and_know_it_on_tiny_problems(problem):
    best = most_data(problem)

    for name in ("link/trim", "link/ilp"):
        placement = policy(name).place(problem)
        assert judge(problem, placement).received == pytest.approx(best, rel=1e-9)
        assert placement.bound.value == pytest.approx(best, rel=1e-6)


@pytest.mark.slow
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
    down = Grid.of(instance, down=True, cells=7)

    best = most_data(problem) * (1 - 1e-9)
    assert bounds.merged_exact(instance, down).value >= best
    assert bounds.patterns(instance, down).value >= best


@pytest.mark.slow
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


@pytest.mark.slow
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
    with pytest.raises(BadKnob, match="effort must be a number from 0 to 1,000, but is -1"):
        Trim(effort=-1)


def problem_of(rates, degrees, bandwidths) -> Problem:
    links = [(k, c) for k, d in enumerate(degrees) for c in range(d)]
    return Problem(workload(list(rates), list(bandwidths), links, clients=max(degrees)), "link")


def test_many_topics_of_one_kind_are_bundled_within_the_table():
    """Twelve thousand equal topics on two brokers: thirteen bundles for the selected, as many for the rest."""
    problem = problem_of(np.full(12_000, 10.0), np.full(12_000, 2), [122_890.0, 122_890.0])

    placement = policy("link/trim").place(problem)

    assert judge(problem, placement).feasible


def test_mkpbs_ends_where_a_link_fits_the_broker_but_not_the_cells():
    problem = problem_of([2 / 3], [5], [4 / 3, 11 / 3])

    found = judge(problem, policy("link/mkpbs").place(problem))

    assert found.feasible
    assert found.placed == 5


THIRDS = ([1, 1 / 3, 1, 4 / 3, 1 / 3], [7, 7, 7, 6, 8], [41 / 3, 5 / 3, 13 / 3])
SEVENTEENTHS = (np.array([3, 1, 2, 5, 5, 5]) / 1.7, [1, 3, 5, 4, 4, 8], np.array([57, 6, 26, 2]) / 1.7)


@pytest.mark.parametrize("name", ["link/trim", "link/ilp"])
@pytest.mark.parametrize(("case", "scale"), [(THIRDS, 3), (SEVENTEENTHS, 1.7)])
def test_an_exact_fit_of_real_rates_is_neither_missed_nor_ruled_out(name, case, scale):
    """The same instance in whole numbers has the same answer."""
    rates, degrees, bandwidths = case
    real = problem_of(rates, degrees, bandwidths)
    whole = problem_of(np.rint(np.multiply(rates, scale)), degrees, np.rint(np.multiply(bandwidths, scale)))
    best = judge(whole, policy("link/trim").place(whole)).received

    placement = policy(name).place(real)

    assert judge(real, placement).received * scale == pytest.approx(best)
    assert placement.bound.value * scale >= best * (1 - 1e-9)


@pytest.mark.parametrize("name", ["link/trim", "link/ilp"])
def test_a_topic_that_fits_nowhere_does_not_blur_the_rest(name):
    problem = problem_of([1e12, 1, 2], [1, 5, 7], [9, 9, 5])

    assert judge(problem, policy(name).place(problem)).received == 16


def test_nothing_is_claimed_to_be_proven_beyond_the_precision_of_the_solver():
    problem = problem_of([1e10, 1, 2], [50, 5, 7], [51e10, 9, 9, 5])

    placement = policy("link/trim").place(problem)

    received = judge(problem, placement).received
    assert received >= 50e10 + 13
    assert placement.bound.value >= 50e10 + 16
    assert not placement.bound.proves(received) or received == 50e10 + 16


@pytest.mark.parametrize(
    ("rates", "degrees", "bandwidths"),
    [
        ([999_999_999.5] * 3, [7, 5, 1], [5 * 999_999_999.5] * 3),
        ([1000.000001] * 3, [3, 2, 4], [4999.99999999] * 3),
        ([8.884421006425116], [8], [50.0]),
        ([1e-9, 1e10, 3e10], [30, 10, 10], [1e11, 3e10, 5.0]),
    ],
)
def test_rates_that_are_nearly_whole_are_not_taken_for_whole(rates, degrees, bandwidths):
    problem = problem_of(rates, degrees, bandwidths)

    placement = policy("link/trim").place(problem)

    found = judge(problem, placement)
    assert found.feasible
    assert placement.bound.value >= judge(problem, policy("link/ilp").place(problem)).received * (1 - 1e-9)
    assert placement.bound.value >= found.received * (1 - 1e-12)


@pytest.mark.slow
def test_units_of_measure_do_not_matter():
    """Bytes or gigabytes: the same share is received and the same share is proved."""
    load = MaxData(rates="low", machines=20, bandwidth=200).make(0)
    shares = []
    for scale in (1.0, 1e-9, 1e9):
        degrees = np.bincount(load.links.topic, minlength=100)
        problem = problem_of(load.topics.rate * scale, degrees, load.brokers.bandwidth * scale)
        placement = policy("link/trim").place(problem)
        shares.append(judge(problem, placement).received / placement.bound.value)

    assert shares == pytest.approx([shares[0]] * 3, abs=1e-3)


def test_whole_rates_stay_exact_up_to_the_finest_grid():
    world = MaxData(publishers=100, subscribers=400, rates="low", machines=10, bandwidth=1510)
    problem = Problem(world.make(0), "link")

    placement = policy("link/trim").place(problem)

    assert placement.bound.proves(judge(problem, placement).received)


@pytest.mark.parametrize("name", ["link/ilp", "link/trim"])
def test_next_to_no_data_fits_any_number_of_times(name):
    """A warning would be an error here: the quotient of a bandwidth and the least rate there is, is infinite."""
    problem = Problem(workload([np.finfo(float).tiny], [4.0], [(0, 0)]), "link")

    assert policy(name).place(problem).broker.tolist() == [0]
