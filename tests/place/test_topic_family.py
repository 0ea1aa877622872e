"""Topics that share brokers: limits of every policy, exact answers on small cases, and the readings of the paper."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import BadInput, BadKnob, MissingColumn, TooLarge
from trimtab.lab.worlds.colocation import R_MAX, Colocation
from trimtab.model.hardware import PAPER, Hardware
from trimtab.model.ids import Ids
from trimtab.model.placement import UNPLACED, Placement
from trimtab.model.problem import Problem
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.place.judge import judge
from trimtab.place.knobs import knobs
from trimtab.place.registry import policies, policy, policy_with
from trimtab.place.stop import NO_LIMIT
from trimtab.place.topic.balance import Balance
from trimtab.place.topic.ffd import first_fit
from trimtab.place.topic.instance import Instance
from trimtab.place.topic.misfits import misfits, split
from trimtab.place.topic.strain import Strain
from trimtab.predict.queueing import Queueing
from trimtab.predict.sets import Sets

COLOCATE = [name for name in policies("topic") if any(own.name == "k" for own in knobs(name))]
each_policy = pytest.mark.parametrize("name", COLOCATE)


def request(rate, processing, brokers, bound=1000.0, **columns) -> Problem:
    count = len(rate)
    topics = Topics(
        Ids.numbered("t", count), np.array(rate, float), processing_ms=np.array(processing, float),
        latency_ms=np.full(count, bound) if np.isscalar(bound) else np.array(bound, float),
    )  # fmt: skip
    table = Brokers(Ids.numbered("b", brokers), **columns)
    return Problem(Workload(topics, Clients(Ids.numbered("c", 0)), table, Links([], [], [])), "topic")


@st.composite
def requests(draw, most=12) -> Problem:
    """Topics that an empty broker of the paper's hardware carries; sometimes too few brokers, or unequal ones."""
    count = draw(st.integers(1, most))
    processing = draw(st.lists(st.sampled_from(list(R_MAX)), min_size=count, max_size=count))
    rate = [draw(st.integers(1, R_MAX[ms])) for ms in processing]
    brokers = draw(st.sampled_from([count, max(1, count // 4)]))
    bound = [draw(st.sampled_from([200.0, 1000.0, np.nan])) for _ in processing]
    columns = {}
    if draw(st.booleans()):
        columns["cores"] = [draw(st.sampled_from([2.0, 4.0])) for _ in range(brokers)]
    return request(rate, processing, brokers, bound, **columns)


def groups(placement: Placement) -> list[list[int]]:
    return [np.flatnonzero(placement.broker == row).tolist() for row in np.unique(placement.broker) if row != UNPLACED]


@each_policy
@pytest.mark.parametrize("k", [1, 2, 3, 6])
@given(problem=requests())
@settings(max_examples=15)
def test_no_broker_has_more_than_k_topics_and_the_bound_is_kept(name, k, problem):
    placement = policy_with(name, k=k, k_prime=min(3, k)).place(problem)

    assert max((len(group) for group in groups(placement)), default=0) <= k
    assert placement.bound.figure == "brokers_used"
    assert placement.bound.value <= len(groups(placement))


@each_policy
@given(problem=requests())
@settings(max_examples=15)
def test_a_topic_is_left_over_only_if_no_empty_broker_would_carry_it(name, problem):
    placement = policy(name).place(problem)

    instance = Instance.of(problem, 6, None)
    unused = np.setdiff1d(np.arange(problem.brokers), placement.broker)
    left = np.flatnonzero(placement.broker == UNPLACED)
    if name == "topic/hash":
        assert not len(left) or problem.units > 6 * problem.brokers
    else:
        assert not instance.alone[np.ix_(left, instance.kind[unused])].any()


@dataclass(frozen=True)
class Listed:
    """A latency model by a list of feasible sets of topics: their subsets are feasible too, other sets are not."""

    name: ClassVar[str] = "listed"
    feasible: tuple[frozenset[int], ...]
    hardware: Hardware = PAPER
    most: int = 6
    asked: list[int] = field(default_factory=list)

    def p90_ms(self, sets):
        """Topics are known by their rates, which are 1, 2, 3, ..."""
        answer = []
        for row in range(len(sets)):
            members = frozenset(int(rate) - 1 for rate in sets.rate[sets.begin[row] : sets.begin[row + 1]])
            self.asked.append(len(members))
            fits = any(members <= known for known in self.feasible)
            answer += [500.0 - sum(members) if len(members) == 1 else 900.0 if fits else 2000.0] * len(members)
        return np.array(answer)

    def interval_ms(self, sets, coverage=0.9):
        return self.p90_ms(sets), self.p90_ms(sets)

    def as_json(self) -> dict[str, Any]:
        return {}


def listed(count, *sets) -> tuple[Problem, Listed]:
    """Topic 0 has the longest latency alone, topic 1 the next, ..."""
    return request(range(1, count + 1), [10] * count, count), Listed(tuple(frozenset(each) for each in sets))


def placed(name, problem, model, **knobs):
    return sorted(groups(policy(name, model=model, **knobs).place(problem)))


def test_ffd_puts_every_topic_on_the_first_broker_that_takes_it():
    problem, model = listed(5, {0, 2}, {1, 3, 4}, {0, 4})

    assert placed("topic/ffd", problem, model) == [[0, 2], [1, 3, 4]]
    assert placed("topic/ffd", problem, model, k=2) == [[0, 2], [1, 3], [4]]


def test_lfs_takes_the_largest_sets_first_and_pairs_by_maximum_matching():
    problem, model = listed(7, {0, 1, 2}, {3, 4}, {4, 5}, {5, 6}, {0, 3})

    assert placed("topic/lfs", problem, model) == [[0, 1, 2], [3, 4], [5, 6]]  # greedy pairs would also find these


def test_the_last_pairs_are_a_maximum_matching():
    problem, model = listed(4, {0, 1}, {0, 2}, {1, 3})  # the first pair in order would leave 2 and 3 alone

    assert placed("topic/lfs", problem, model) == [[0, 2], [1, 3]]
    assert placed("topic/lfs", problem, model, k=2) == [[0, 2], [1, 3]]
    assert placed("topic/lfs", problem, model, k=1) == [[0], [1], [2], [3]]


def test_the_hybrid_fills_up_sets_of_k_prime_and_leaves_the_rest_to_smaller_sets():
    problem, model = listed(7, {0, 1, 2, 5}, {3, 4})

    assert placed("topic/lfs-ffd", problem, model, k_prime=3) == [[0, 1, 2, 5], [3, 4], [6]]
    assert placed("topic/lfs-ffd", problem, model, k_prime=3, k=3) == [[0, 1, 2], [3, 4], [5], [6]]
    assert placed("topic/lfs-ffd", problem, model, k_prime=1) == placed("topic/ffd", problem, model)


@given(sets=st.lists(st.sets(st.integers(0, 6), min_size=2, max_size=5), max_size=6), k=st.integers(1, 5))
@settings(max_examples=40)
def test_lfs_leaves_no_feasible_set_that_is_larger_than_those_after_it(sets, k):
    problem, model = listed(7, *sets)

    found = groups(policy("topic/lfs", model=model, k=k).place(problem))

    largest = max((len(each) for each in combinations_of(model, range(7), k)), default=1)
    assert max(len(group) for group in found) == largest


@given(sets=st.lists(st.sets(st.integers(0, 6), min_size=2, max_size=5), max_size=8), k=st.integers(1, 5))
@settings(max_examples=60)
def test_the_hybrid_with_k_prime_equal_to_k_is_exactly_the_largest_feasible_set(sets, k):
    problem, model = listed(7, *sets)

    hybrid, largest = policy("topic/lfs-ffd", model=model, k=k, k_prime=k), policy("topic/lfs", model=model, k=k)

    assert hybrid.place(problem).broker.tolist() == largest.place(problem).broker.tolist()


def test_the_hybrid_matches_pairs_as_well_as_possible_if_k_is_two():
    problem, model = listed(4, {0, 1}, {0, 2}, {1, 3})

    assert placed("topic/lfs-ffd", problem, model, k=2, k_prime=2) == [[0, 2], [1, 3]]


def combinations_of(model, topics, k):
    """All feasible sets."""
    return [
        each for size in range(1, k + 1) for each in combinations(topics, size)
        if size == 1 or any(frozenset(each) <= known for known in model.feasible)
    ]  # fmt: skip


def test_a_margin_on_latency_makes_sets_infeasible():
    problem, model = listed(3, {0, 1, 2})

    assert placed("topic/ffd", problem, model) == [[0, 1, 2]]
    assert placed("topic/ffd", problem, model, margin_ms=150.0) == [[0], [1], [2]]


@pytest.mark.parametrize("name", ["topic/ffd", "topic/lfs", "topic/lfs-ffd"])
def test_with_a_margin_on_load_bounds_hold_at_rates_that_are_higher_by_it(name):
    problem = request([37, 30, 24, 20, 20, 12, 8, 30], [10, 20, 20, 30, 10, 30, 40, 10], 8)

    def late(**knobs) -> bool:
        """Whether a topic that shares a broker misses its bound at rates that are higher by 10 %."""
        broker = policy(name, k=4, **knobs).place(problem).broker
        groups = [np.flatnonzero(broker == each) for each in np.unique(broker)]
        sets = Sets.of(
            [group for group in groups if len(group) > 1], 1.1 * problem.workload.topics.rate,
            problem.workload.topics.processing_ms,
        )  # fmt: skip
        return bool((Queueing(problem.hardware).p90_ms(sets) > 1000.0).any())

    assert late()
    assert not late(growth=0.1)


def test_brokers_are_opened_strongest_first():
    problem = request([1], [10], 3, cores=[2.0, 4.0, 2.0])

    assert policy("topic/ffd").place(problem).broker.tolist() == [1]


def test_a_topic_that_is_too_much_for_every_broker_is_left_unplaced():
    problem = request([10, 200], [10, 10], 2)

    assert (policy("topic/ffd").place(problem).broker == UNPLACED).tolist() == [False, True]


def test_a_bound_below_one_message_is_refused_with_the_way_out():
    with pytest.raises(BadInput, match=r"'t1' has a bound of 20 ms, but .* takes 28.9 ms .* raise latency_ms to 28.9"):
        policy("topic/ffd").place(request([1, 1], [10, 20], 2, [20.0, 20.0]))


def test_missing_columns_are_named():
    load = Workload(Topics(Ids(["a"]), [1.0]), Clients(Ids([])), Brokers(Ids(["b"])), Links([], [], []))

    with pytest.raises(MissingColumn, match="no column 'processing_ms'"):
        policy("topic/ffd").place(Problem(load, "topic"))


def test_a_model_for_fewer_topics_than_k_is_refused():
    problem, model = listed(3, {0, 1})

    with pytest.raises(BadInput, match=r"predicts for up to 6 topics .* k is 7: set k=6"):
        policy("topic/ffd", model=model, k=7).place(problem)


def test_a_model_of_other_hardware_is_refused():
    problem, model = request([1, 2], [10, 10], 2, cores=[2.0, 4.0]), Listed(())

    with pytest.raises(BadInput, match="knows hardware 'xeon-e5420' only"):
        policy("topic/ffd", model=model).place(problem)


def test_k_prime_is_at_most_k():
    with pytest.raises(BadKnob, match="k_prime must be at most k, which is 2"):
        policy("topic/lfs-ffd", k=2, k_prime=3)


@pytest.mark.parametrize("kind", ["u", "u5", "skew"])
def test_requests_are_drawn_as_in_the_paper_and_its_code(kind):
    topics = Colocation(kind, topics=2000).make(3).topics

    most = np.array([R_MAX[int(ms)] for ms in topics.processing_ms]) - (0 if kind == "u" else 6)
    assert topics.rate.min() == 1
    assert (topics.rate <= most).all()
    assert set(topics.processing_ms) == set(R_MAX)
    if kind == "skew":
        assert ((topics.rate <= 5) | (topics.rate > most - 5)).all()
        assert 0.45 < (topics.rate > most - 5).mean() < 0.55
    else:
        assert (topics.rate == most).any()


def test_the_judge_simulates_and_is_not_fooled_by_a_policy():
    """Six topics with 78 messages/s of 10 ms each are far too much for four cores."""
    problem = request([78] * 6 + [1], [10] * 7, 7)
    together = judge(problem, Placement("topic", [0] * 6 + [1])).latency
    apart = judge(problem, Placement("topic", [0, 1, 2, 3, 4, 5, 6])).latency

    assert together.topics_out_of_bound == 6
    assert together.messages_out_of_bound > 0.7
    assert together.cpu[0] > 0.95
    assert apart.p90_ms[6] < 30.0
    assert together.as_json()["p90_ms"]["t0"] > 1000.0


def test_the_judge_says_the_same_every_time_and_nothing_of_topics_without_a_broker():
    problem = request([20, 5], [10, 40], 2)
    placement = Placement("topic", [0, UNPLACED])

    one, other = (judge(problem, placement).latency for _ in range(2))

    assert one.as_json() == other.as_json()
    assert one.as_json()["p90_ms"]["t1"] is None


@pytest.mark.parametrize(("kind", "seed"), [("u5", 1), ("skew", 2), ("u", 3)])
def test_trim_keeps_its_limits_and_uses_no_more_brokers_than_first_fit_within_them(kind, seed):
    problem = Problem(Colocation(kind, topics=40).make(seed), "topic")
    instance = Instance.of(problem, 6, None)
    strain = Strain(instance, use=1.0, growth=0.02, coverage=0.8)

    placement = policy("topic/trim").place(problem)

    fitted = first_fit(instance, strain, instance.in_order_of_latency())
    assert len(groups(placement)) <= len(fitted)
    for group in groups(placement):
        assert strain.fit(np.array([group]), 0).all()


def test_a_margin_on_load_finds_sets_that_a_margin_on_use_does_not():
    """Five busy topics slow each other down: their use is 0.93, but they do not recover from a backlog."""
    problem = request([1, 12, 12, 12, 12, 12], [40] * 6, 6)
    together = np.arange(6)[None, :]
    instance = Instance.of(problem, 6, None)

    assert instance.models[0].use(instance.sets(together)).max() < 0.95
    assert judge(problem, Placement("topic", [0] * 6)).latency.topics_out_of_bound > 0
    assert Strain(instance, use=0.95, growth=0.0, coverage=0.8).fit(together, 0).all()
    assert not Strain(instance, use=1.0, growth=0.02, coverage=0.8).fit(together, 0).any()


def test_trim_places_all_topics_of_unequal_brokers_where_the_small_ones_take_only_light_topics():
    problem = request([30, 30, 30, 2, 2, 2], [20] * 6, 3, cores=[1.0, 4.0, 4.0])

    placement = policy("topic/trim").place(problem)

    assert (placement.broker != UNPLACED).all()
    assert judge(problem, placement).latency.topics_out_of_bound == 0


def fewest_groups(model, topics: frozenset[int], k: int) -> int:
    """The fewest feasible sets that topics can be divided into, by trying all."""
    if not topics:
        return 0
    first = min(topics)
    rest = topics - {first}
    best = len(topics)
    for size in range(min(k, len(topics))):
        for more in combinations(sorted(rest), size):
            group = frozenset((first, *more))
            if len(group) == 1 or any(group <= known for known in model.feasible):
                best = min(best, 1 + fewest_groups(model, topics - group, k))
    return best


@given(sets=st.lists(st.sets(st.integers(0, 6), min_size=2, max_size=5), max_size=7), k=st.integers(1, 5))
@settings(max_examples=40)
def test_ilp_is_optimal_and_knows_it_on_small_problems(sets, k):
    problem, model = listed(7, *sets)

    placement = policy("topic/ilp", model=model, k=k).place(problem)

    best = fewest_groups(model, frozenset(range(7)), k)
    assert len(groups(placement)) == best
    assert placement.bound.value == best
    assert len(groups(policy("topic/trim", model=model, k=k).place(problem))) >= best


@pytest.mark.parametrize(
    ("k", "sets"),
    [
        (4, [{0, 1, 2, 3, 5}, {1, 2, 4}, {0, 1, 4}]),
        (3, [{1, 4}, {0, 1, 2, 4, 5}, {1, 5}, {3, 5}, {1, 2, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3}, {0, 1, 3, 5}]),
        (3, [{0, 1, 4, 5}, {1, 5}, {0, 1, 2, 3, 4}, {1, 2, 3}, {2, 3}, {0, 2, 3, 5}, {1, 3}, {0, 4}]),
    ],
)
def test_ilp_finds_sets_that_the_linear_program_does_not_need(k, sets):
    """Its patterns allow two brokers in fractions, but whole numbers of them need three."""
    problem, model = listed(6, *sets)

    placement = policy("topic/ilp", model=model, k=k, growth=0.0).place(problem)

    assert len(groups(placement)) == fewest_groups(model, frozenset(range(6)), k) == 2


@given(problem=requests(most=8))
@settings(max_examples=20)
def test_no_placement_within_the_limits_has_fewer_brokers_than_the_bound_of_ilp(problem):
    """Equal topics are one type, brokers may differ, and topics may be left over."""
    ilp, trim = (policy(name).place(problem) for name in ("topic/ilp", "topic/trim"))

    if (trim.broker != UNPLACED).all() and (ilp.broker != UNPLACED).all():
        assert ilp.bound.value <= len(groups(trim))
        assert len(groups(ilp)) <= len(groups(trim))


@pytest.mark.parametrize("seed", [1, 2])
def test_a_narrow_search_for_patterns_proves_a_bound_that_is_not_above_the_optimum(seed):
    problem = Problem(Colocation("u", topics=20).make(seed), "topic")
    exact = policy("topic/ilp").place(problem)

    narrow = policy("topic/ilp", max_sets=20).place(problem)

    assert exact.bound.value == len(groups(exact))
    assert narrow.bound.value <= exact.bound.value
    assert len(groups(narrow)) >= len(groups(exact))


def test_looser_bounds_and_more_places_never_need_more_brokers():
    request_of = Colocation("u", topics=20, latency_ms=300.0).make(1), Colocation("u", topics=20).make(1)
    tight, loose = (Problem(load, "topic") for load in request_of)

    assert used(policy("topic/ilp").place(loose)) <= used(policy("topic/ilp").place(tight))
    fewer = [used(policy("topic/ilp", k=k).place(loose)) for k in (1, 2, 4, 6)]
    assert fewer == sorted(fewer, reverse=True)
    assert used(policy("topic/ilp", growth=0.0).place(loose)) <= used(policy("topic/ilp", growth=0.1).place(loose))


def used(placement: Placement) -> int:
    return len(groups(placement))


def test_ilp_refuses_what_is_too_large_for_it():
    with pytest.raises(TooLarge, match=r"at most 5 topics, but there are 20: use topic/trim"):
        policy("topic/ilp", max_topics=5).place(Problem(Colocation("u", topics=20).make(0), "topic"))


def test_a_topic_that_is_too_much_is_split_by_its_publishers_into_parts_that_fit():
    """Four publishers share 200 messages/s as 4 : 2 : 1 : 1; an empty broker carries about 78 messages/s of 10 ms."""
    topics = Topics(Ids(["calm", "busy"]), [5.0, 160.0], processing_ms=[10, 10], latency_ms=[1000, 1000])
    links = Links([1, 1, 1, 1, 1, 0], [0, 1, 2, 3, 4, 4], [PUB] * 4 + [SUB] * 2, [0.375, 0.25, 0.25, 0.125, 2, 1])
    load = Workload(topics, Clients(Ids.numbered("c", 5)), Brokers(Ids.numbered("b", 4)), links)
    problem = Problem(load, "topic")

    (misfit,) = misfits(problem)
    parts = split(problem)

    assert misfit.topic == "busy"
    assert misfit.most == pytest.approx(78.5, abs=0.5)
    assert list(parts.topics.ids) == ["calm", "busy#1", "busy#2", "busy#3"]
    assert parts.topics.rate.tolist() == [5.0, 60.0, 60.0, 40.0]
    assert parts.topics.rate.sum() == load.topics.rate.sum()
    of_parts = parts.links.topic > 0
    assert ((parts.links.role == SUB) & of_parts).sum() == 3  # every part goes to the subscriber
    assert parts.links.weight[(parts.links.role == SUB) & of_parts].tolist() == [2, 2, 2]
    published = (parts.links.role == PUB) & of_parts
    assert sorted(parts.links.client[published].tolist()) == [0, 1, 2, 3]
    assert np.bincount(parts.links.topic[published], parts.links.weight[published]).tolist() == [0, 1, 1, 1]
    assert (policy("topic/trim").place(Problem(parts, "topic")).broker != UNPLACED).all()


def test_a_publisher_that_is_too_much_alone_cannot_be_split():
    topics = Topics(Ids(["a"]), [200.0], processing_ms=[10], latency_ms=[1000])
    load = Workload(topics, Clients(Ids(["c"])), Brokers(Ids(["b"])), Links([0], [0], [PUB]))

    with pytest.raises(BadInput, match="one publisher alone sends 200: use faster brokers"):
        split(Problem(load, "topic"))


def test_a_workload_without_topics_that_are_too_much_is_not_changed_by_a_split():
    load = Colocation("u", topics=5).make(0)

    parts = split(Problem(load, "topic"))

    assert list(parts.topics.ids) == list(load.topics.ids)
    assert parts.links.topic.tolist() == load.links.topic.tolist()


@given(problem=requests(most=20), seed=st.integers(0, 5))
@settings(max_examples=25)
def test_exchanges_lose_no_topic_and_never_raise_the_highest_strain(problem, seed):
    instance = Instance.of(problem, 6, None)
    balance = Balance.spread(instance, Strain(instance, 1.0, 0.02, 0.8), instance.order, seed)
    before = sorted(topic for _, members in balance.groups() for topic in members)
    highest = balance.strain.max(initial=0.0)

    balance.relieve(0.5, 5, NO_LIMIT)

    assert sorted(topic for _, members in balance.groups() for topic in members) == before
    assert balance.strain.max(initial=0.0) <= highest
    again = balance.strain.copy()
    balance.judge(np.arange(len(again)))
    assert balance.strain == pytest.approx(again)


def test_a_search_whose_time_is_up_still_places_every_topic():
    class Over:
        def left_s(self) -> float:
            return 0.0

    problem = Problem(Colocation("u", topics=30).make(0), "topic")
    for name in ("topic/trim", "topic/ilp", "topic/lfs", "topic/lfs-ffd"):
        placement = policy(name, stop=Over()).place(problem)
        assert (placement.broker != UNPLACED).all(), name
        assert placement.bound.value <= used(placement)
