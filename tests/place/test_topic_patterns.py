"""Patterns of topics: the compiled search beside brute force, exchanges, and bounds never above the optimum."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.lab.worlds.colocation import KINDS, R_MAX, Colocation
from trimtab.model.ids import Ids
from trimtab.model.problem import Problem
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.place.registry import policy
from trimtab.place.stop import NO_LIMIT
from trimtab.place.topic import patterns
from trimtab.place.topic.cover import Cover
from trimtab.place.topic.exchanges import lighter, steps, taken
from trimtab.place.topic.ffd import first_fit
from trimtab.place.topic.instance import NONE, Instance
from trimtab.place.topic.patterns import Types
from trimtab.place.topic.pricing import Pricing
from trimtab.place.topic.strain import Strain


def oracle_of(problem: Problem, k: int = 4) -> Strain:
    return Strain(Instance.of(problem, k, None), use=1.0, growth=0.02, coverage=0.8)


@st.composite
def requests(draw, most=7) -> Problem:
    """Topics that an empty broker of the paper's hardware carries, with equal ones and tight bounds among them; brokers
    may differ, and there may be few of the strong ones."""
    count = draw(st.integers(1, most))
    processing = draw(st.lists(st.sampled_from(list(R_MAX)), min_size=count, max_size=count))
    rate = [draw(st.integers(1, R_MAX[ms] - 2)) for ms in processing]
    bound = [draw(st.sampled_from([300.0, 1000.0])) for _ in processing]
    cores = [draw(st.sampled_from([2.0, 4.0])) for _ in range(count)] if draw(st.booleans()) else [4.0] * count
    topics = Topics(
        Ids.numbered("t", count), np.array(rate, float), processing_ms=np.array(processing, float),
        latency_ms=np.array(bound),
    )  # fmt: skip
    brokers = Brokers(Ids.numbered("b", count), cores=cores)
    return Problem(Workload(topics, Clients(Ids.numbered("c", 0)), brokers, Links([], [], [])), "topic")


def matrix(sets, most) -> np.ndarray:
    members = np.full((len(sets), most), NONE, np.int64)
    for row, each in enumerate(sets):
        members[row, : len(each)] = each
    return members


def feasible_patterns(oracle: Strain, types: Types, kind: int) -> list[tuple[int, ...]]:
    """All feasible patterns, by trying every multiset of types."""
    found = []
    for size in range(1, oracle.instance.most + 1):
        every = [
            each for each in combinations_with_replacement(range(len(types)), size)
            if (np.bincount(each, minlength=len(types)) <= types.count).all()
        ]  # fmt: skip
        if every:
            rows = types.topic[np.array(every)]
            found += [each for each, fits in zip(every, oracle.fit(rows, kind).tolist(), strict=True) if fits]
    return found


@pytest.mark.slow
@given(problem=requests(), seed=st.integers(0, 100))
@settings(max_examples=60)
def test_the_search_finds_a_pattern_that_is_worth_most_and_knows_its_worth(problem, seed):
    oracle = oracle_of(problem)
    types = Types.of(oracle.instance)
    prices = np.random.default_rng(seed).random(len(types))

    for kind in np.unique(oracle.instance.kind).tolist():
        every = feasible_patterns(oracle, types, kind)
        best = max((prices[list(each)].sum() for each in every), default=0.0)
        priced = Pricing.of(oracle, types, kind).search(prices, 0.0, 10**9)
        assert priced.complete
        assert priced.at_most == pytest.approx(best)
        assert not priced.patterns or priced.patterns[0] in every
        assert Pricing.of(oracle, types, kind).search(prices, best + 1e-9, 10**9).patterns == []


@given(problem=requests(), seed=st.integers(0, 100), width=st.integers(1, 10))
@settings(max_examples=40)
def test_a_search_that_leaves_sets_out_knows_a_worth_that_none_of_them_exceeds(problem, seed, width):
    oracle = oracle_of(problem)
    types = Types.of(oracle.instance)
    prices = np.random.default_rng(seed).random(len(types))

    priced = Pricing.of(oracle, types, 0).search(prices, 0.1, width)

    every = feasible_patterns(oracle, types, 0)
    assert priced.at_most >= max((prices[list(each)].sum() for each in every), default=0.0) - 1e-9


@pytest.mark.parametrize("kind", ["u", "u5", "skew"])
def test_the_compiled_search_and_the_model_agree_on_which_sets_are_feasible(kind):
    """Every set that has all its prices, as if it were the only one that is offered."""
    problem = Problem(Colocation(kind, topics=200).make(5), "topic")
    oracle = oracle_of(problem, 6)
    every = Types.of(oracle.instance)
    types = replace(every, count=np.ones_like(every.count))
    pricing = Pricing.of(oracle, types, 0)
    rng = np.random.default_rng(0)
    for size in (2, 4, 6):
        sets = np.array([rng.choice(len(types), size, replace=False) for _ in range(150)])
        fits = oracle.fit(types.topic[sets], 0)
        for row, expected in zip(sets, fits.tolist(), strict=True):
            prices = np.zeros(len(types))
            prices[row] = 1.0
            found = pricing.search(prices, size - 0.5, 10**9).patterns
            assert found == ([tuple(sorted(row.tolist()))] if expected else [])


@pytest.mark.slow
@given(problem=requests(), seed=st.integers(0, 1000))
@settings(max_examples=60)
def test_a_set_stays_feasible_when_a_lighter_topic_takes_a_place(problem, seed):
    oracle = oracle_of(problem)
    types = Types.of(oracle.instance)
    less = lighter(oracle, types)
    rng = np.random.default_rng(seed)

    for kind in np.unique(oracle.instance.kind).tolist():
        for pattern in feasible_patterns(oracle, types, kind)[-200:]:
            place = int(rng.integers(len(pattern)))
            for other in np.flatnonzero(less[:, pattern[place]]).tolist():
                swapped = sorted([*pattern[:place], *pattern[place + 1 :], other])
                assert oracle.fit(types.topic[np.array([swapped])], kind).all()


def test_all_pairs_of_lighter_and_heavier_types_follow_from_the_steps():
    oracle = oracle_of(Problem(Colocation("u", topics=60).make(2), "topic"))
    less = lighter(oracle, Types.of(oracle.instance))
    count = len(less)
    reached = np.eye(count, dtype=bool)
    for a, b in steps(less):
        reached[a, b] = True
    for _ in range(7):  # twice as long ways each time
        reached = (reached.astype(int) @ reached.astype(int)) > 0

    assert (reached == less).all()
    assert len(steps(less)) < less.sum() / 4


def test_places_go_to_topics_of_the_same_type_or_lighter_ones_until_all_have_one():
    less = np.array([[1, 1, 1], [0, 1, 0], [0, 0, 1]], bool)  # type 0 can take the places of types 1 and 2

    flow = taken(np.array([0, 3, 1]), np.array([2, 1, 1]), less)

    assert flow is not None
    assert flow.sum(axis=0).tolist() == [2, 1, 1]
    assert (flow.sum(axis=1) <= [0, 3, 1]).all()
    assert flow[1].tolist() == [2, 1, 0]
    assert taken(np.array([3, 1, 0]), np.array([2, 1, 1]), less) is None


def fewest(oracle: Strain) -> int:
    """The fewest brokers that carry all topics, by trying all; a large number if there is no way."""
    instance = oracle.instance
    topics = instance.topics.tolist()
    subsets = [[topics[at] for at in range(len(topics)) if mask >> at & 1] for mask in range(1, 2 ** len(topics))]
    small = [mask + 1 for mask, each in enumerate(subsets) if len(each) <= instance.most]
    kinds = np.unique(instance.kind).tolist()
    there = np.bincount(instance.kind, minlength=len(instance.machines))
    fits = {
        kind: [mask for mask, good in zip(
            small, oracle.fit(matrix([subsets[mask - 1] for mask in small], instance.most), kind).tolist(), strict=True,
        ) if good]
        for kind in kinds
    }  # fmt: skip
    every = 2 ** len(topics) - 1
    ways = {(every, tuple(there.tolist()))}
    for brokers in range(1, len(topics) + 1):
        following = set()
        for rest, free in ways:
            lowest = rest & -rest
            for kind in kinds:
                if free[kind]:
                    less = tuple(count - (at == kind) for at, count in enumerate(free))
                    following |= {(rest & ~mask, less) for mask in fits[kind] if mask & lowest and mask & ~rest == 0}
        if any(rest == 0 for rest, _ in following):
            return brokers
        ways = following
    return 10**6


@given(problem=requests())
@settings(max_examples=40)
def test_ilp_proves_the_fewest_brokers_there_are(problem):
    oracle = oracle_of(problem)
    placement = policy("topic/ilp", k=4).place(problem)

    best = fewest(oracle)
    placed = placement.broker >= 0
    if best < 10**6:
        assert placed.all()
        assert len(np.unique(placement.broker)) == best
        assert placement.bound.value <= best
        assert placement.bound.value >= best - 1
    for kind in np.unique(oracle.instance.kind).tolist():
        brokers = np.flatnonzero(oracle.instance.kind == kind)
        sets = [np.flatnonzero(placement.broker == each) for each in brokers]
        assert oracle.fit(matrix([each for each in sets if len(each)], 4), kind).all()


@given(problem=requests(), width=st.integers(1, 20), tests=st.integers(1, 200))
@settings(max_examples=40)
def test_no_bound_of_a_search_that_ends_early_is_above_the_optimum(problem, width, tests):
    oracle = oracle_of(problem)
    groups = first_fit(oracle.instance, oracle, oracle.instance.in_order_of_latency())
    cover = Cover.of(oracle.instance, oracle, groups)

    cover.improve([width], NO_LIMIT, tests, converged=False)

    assert cover.least <= fewest(oracle) + 1e-6


def test_exchanges_do_not_change_the_value_of_the_converged_program(monkeypatch):
    oracle = oracle_of(Problem(Colocation("u", topics=25).make(4), "topic"))
    covers = []
    for relation in (lighter, lambda oracle, types: np.eye(len(types), dtype=bool)):
        monkeypatch.setattr(patterns, "lighter", relation)
        cover = Cover.of(oracle.instance, oracle, [])
        cover.improve([10**6], NO_LIMIT, 1e9, converged=True)
        covers.append(cover)

    with_exchanges, without = covers

    assert with_exchanges.pool.exchanges
    assert not without.pool.exchanges
    assert with_exchanges.value == pytest.approx(without.value, abs=1e-4)
    assert with_exchanges.least == pytest.approx(without.least, abs=1e-4)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", [0, 1])
def test_ilp_proves_a_request_of_a_hundred_topics_within_one_broker(seed):
    problem = Problem(Colocation("u", topics=100).make(seed), "topic")

    placement = policy("topic/ilp").place(problem)

    assert len(np.unique(placement.broker)) - placement.bound.value <= 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_trim_needs_no_more_brokers_than_the_exact_program_for_thirty_topics(kind, seed):
    problem = Problem(Colocation(kind, topics=30).make(seed), "topic")

    used = {name: len(np.unique(policy(name).place(problem).broker)) for name in ("topic/trim", "topic/ilp")}

    assert used["topic/trim"] <= used["topic/ilp"]
