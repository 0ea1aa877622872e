"""Topics near their clients: Algorithm 1 of ePulsar by hand, exact answers on small cases, and what trim adds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.strategies import workloads
from trimtab.errors import MissingColumn
from trimtab.model.centroids import Centroids
from trimtab.model.coordinates import Coordinates
from trimtab.model.ids import Ids
from trimtab.model.nearness import Nearness
from trimtab.model.network import Network
from trimtab.model.placement import UNPLACED, Placement
from trimtab.model.problem import Problem
from trimtab.model.rtts import Rtts
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.place.judge import judge
from trimtab.place.registry import policy
from trimtab.place.topic.measured import unreachable
from trimtab.place.topic.probe import PROBES, Truth

NEAR = ("topic/centroid", "topic/all-pairs", "topic/trim")


def line(clients, brokers, topics, bound=np.inf, rate=1.0, leg=1.0, **columns) -> Problem:
    """Clients and brokers on a line, at these ms. ``topics`` are pairs of publishers and subscribers."""
    links = [(t, c, role) for t, ends in enumerate(topics) for role, side in ((PUB, ends[0]), (SUB, ends[1]))
             for c in side]  # fmt: skip
    topic, client, role = np.array(links).reshape(-1, 3).T
    count = len(topics)
    bounds = np.where(np.isinf(np.broadcast_to(bound, count)), np.nan, np.broadcast_to(bound, count))
    return Problem(
        Workload(
            Topics(Ids.numbered("t", count), np.broadcast_to(rate, count).astype(float), latency_ms=bounds),
            Clients(Ids.numbered("c", len(clients)), coordinate=on_line(clients)),
            Brokers(Ids.numbered("b", len(brokers)), coordinate=on_line(brokers), **columns),
            Links(topic, client, role.astype(np.int8)),
        ),
        "topic", leg=leg,
    )  # fmt: skip


def on_line(places) -> Coordinates:
    return Coordinates(np.array(places, float).reshape(-1, 1), np.zeros(len(places)))


def measured(problem: Problem, rtt_ms) -> Problem:
    """The same with all pairs measured."""
    return replace(problem, workload=replace(problem.workload, rtt=Rtts.matrix(rtt_ms)))


def pairs_of(problem: Problem, topic: int, broker: int) -> list[float]:
    """Latencies of a topic's pairs at a broker, one by one; a side without clients counts nothing."""
    load, network = problem.workload, Network.of(problem.workload)
    everywhere = network.rtt_ms(np.arange(len(load.clients)), np.arange(problem.brokers))
    sides = []
    for role in (PUB, SUB):
        rows = load.links.client[(load.links.topic == topic) & (load.links.role == role)]
        sides.append([everywhere[c, broker] for c in rows if not np.isnan(everywhere[c]).all()])
    if not any(sides):
        return []
    to, away = ([problem.leg * (np.inf if np.isnan(rtt) else rtt) for rtt in side] or [0.0] for side in sides)
    return [one + other for one in to for other in away]


def key_of(problem: Problem, topic: int, broker: int) -> tuple[int, float]:
    bound = problem.workload.topics.latency_ms[topic]
    latencies = pairs_of(problem, topic, broker)
    return sum(each > bound for each in latencies), max(latencies, default=0.0)


located = workloads().filter(lambda load: load.clients.coordinate is not None and len(load.brokers))


@given(load=located, leg=st.sampled_from([0.5, 1.0]), seed=st.integers(0, 5))
@settings(max_examples=60)
def test_the_judge_counts_pairs_one_by_one(load, leg, seed):
    problem = Problem(load, "topic", leg=leg)
    broker = np.random.default_rng(seed).integers(UNPLACED, problem.brokers, problem.units).astype(np.int32)

    network = judge(problem, Placement("topic", broker)).network

    for topic in range(problem.units):
        latencies = pairs_of(problem, topic, max(broker[topic], 0))
        assert network.pairs[topic] == len(latencies)
        if broker[topic] == UNPLACED:
            assert network.violating[topic] == len(latencies)
            assert np.isnan(network.worst_ms[topic])
        else:
            late, worst = key_of(problem, topic, broker[topic])
            assert network.violating[topic] == late
            assert network.worst_ms[topic] == (worst if latencies else pytest.approx(np.nan, nan_ok=True))


@given(load=located)
@settings(max_examples=60)
def test_all_pairs_has_the_least_worst_case_and_trim_the_fewest_violating_pairs(load):
    """Without limits of bandwidth, every topic is placed for itself alone."""
    load = replace(load, brokers=replace(load.brokers, bandwidth=None), topics=replace(load.topics, processing_ms=None))
    problem = Problem(load, "topic")
    found = {name: policy(name).place(problem) for name in NEAR[1:]}

    nearness = Nearness.of(problem, Network.of(load))
    for topic in np.flatnonzero(nearness.located).tolist():
        keys = [key_of(problem, topic, broker) for broker in range(problem.brokers)]
        assert keys[found["topic/all-pairs"].broker[topic]][1] == min(worst for _, worst in keys)
        assert keys[found["topic/trim"].broker[topic]] == min(keys)
    assert judge(problem, found["topic/trim"]).network.violating_pairs == found["topic/trim"].bound.value


@given(load=located)
@settings(max_examples=60)
def test_the_worst_case_by_centroids_is_an_upper_bound(load):
    """With the largest height instead of the mean height, and with adjustments of either sign."""
    draw = np.random.default_rng(len(load.links))
    tables = {}
    for name in ("clients", "brokers"):
        table = getattr(load, name)
        adjusted = replace(table.coordinate, adjustment=draw.normal(0, 30, len(table)))
        tables[name] = replace(table, coordinate=adjusted)
    problem = Problem(replace(load, rtt=None, **tables), "topic")
    bounds = Centroids.of(problem).worst_ms(np.arange(problem.units))

    for topic in range(problem.units):
        for broker in range(problem.brokers):
            assert max(pairs_of(problem, topic, broker), default=0.0) <= bounds[topic, broker] * (1 + 1e-9)


def test_centroids_by_hand():
    """Producers at 0 and 20, consumers at 30 and 50, a broker at 20: d = 10 + 20, deviations 10 + 10."""
    problem = line([0, 20, 30, 50], [20, 100], [([0, 1], [2, 3])], bound=50)

    worst = Centroids.of(problem).worst_ms(np.array([0]))

    assert worst.tolist() == [[10 + 20 + 20, 90 + 60 + 20]]
    assert Centroids.of(problem).feasible(np.array([0])).tolist() == [1]
    assert Centroids.of(replace(problem, leg=0.5)).worst_ms(np.array([0]))[0, 0] == 25


def test_topics_with_the_fewest_brokers_are_placed_first():
    """t0 could have either broker and prefers b0; t1 only b0. There is room for one topic on each."""
    problem = line([10, 10], [10, 14], [([0], [0]), ([1], [1])], bound=[100, 5], rate=10.0)

    for name in ("topic/centroid", "topic/all-pairs"):
        assert policy(name, messages=20.0).place(problem).broker.tolist() == [1, 0]
    assert policy("topic/trim", messages=20.0).place(problem).broker.tolist() == [1, 0]


def test_a_topic_that_no_feasible_broker_can_host_stays():
    """Candidates of Algorithm 1 are the feasible brokers, if there are any; trim takes the next best one."""
    problem = line([10, 10], [10, 90], [([0], [0]), ([1], [1])], bound=50, rate=10.0)

    assert policy("topic/all-pairs", messages=20.0).place(problem).broker.tolist() == [0, UNPLACED]
    assert policy("topic/trim", messages=20.0).place(problem).broker.tolist() == [0, 1]
    now = replace(problem, current=Placement("topic", [0, 1]))
    assert policy("topic/all-pairs", messages=20.0).place(now).broker.tolist() == [0, 1]


def test_only_topics_with_a_violated_bound_and_those_of_overloaded_brokers_move():
    problem = line([0, 0, 0, 0], [0, 40, 100], [([c], [c]) for c in range(4)], bound=100, rate=[10, 30, 20, 5])
    current = Placement("topic", [1, 0, 0, 2])

    for name in ("topic/centroid", "topic/all-pairs"):
        calm = policy(name).place(replace(problem, current=current))
        busy = policy(name, messages=80.0).place(replace(problem, current=current))
        full = policy(name, messages=70.0).place(replace(problem, current=current))

        assert calm.broker.tolist() == [1, 0, 0, 0]  # t3 is at 200 ms
        # b0 has 60 + 40 messages/s in and out: t1, which has most, leaves.
        assert busy.broker.tolist() == [1, 1, 0, 0]
        # No feasible broker has room for t1, so it stays. Then b0 has no room for t3.
        assert full.broker.tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("resource", ["bandwidth", "cores"])
def test_brokers_are_filled_to_85_percent(resource):
    problem = line([0] * 4, [0, 1], [([c], [c]) for c in range(4)], rate=10.0)
    load = problem.workload
    limit = {"bandwidth": [50.0, 100.0], "cores": [0.5, 4.0]}[resource]  # a topic takes 20 data/s, or 0.2 cores
    topics = replace(load.topics, processing_ms=np.full(4, 20.0)) if resource == "cores" else load.topics
    load = replace(load, topics=topics, brokers=replace(load.brokers, **{resource: np.array(limit)}))

    for name in ("topic/centroid", "topic/all-pairs"):
        assert sorted(policy(name).place(replace(problem, workload=load)).broker.tolist()) == [0, 0, 1, 1]


def test_a_topic_moves_only_for_an_improvement_above_the_margin():
    """At 20 ms, the margin is 2 ms; at 100 ms, it is 5 ms. Legs count twice."""
    for distance, gain, moves in ((10.0, 0.9, False), (10.0, 1.1, True), (50.0, 2.4, False), (50.0, 2.6, True)):
        problem = line([0.0], [distance, distance - gain], [([0], [0])])
        now = replace(problem, current=Placement("topic", [0]))

        assert (policy("topic/trim").place(now).broker[0] == 1) == moves
        assert policy("topic/trim").place(problem).broker[0] == 1


def test_a_topic_with_fewer_violating_pairs_elsewhere_moves_if_they_violate_by_more_than_the_margin():
    problem = line([0.0, 0.0, 30.0], [0.0, 30.0], [([0], [1, 2])], bound=20)
    now = replace(problem, current=Placement("topic", [1]))

    assert judge(now, now.current).network.violating_pairs == 2
    assert policy("topic/trim").place(now).broker[0] == 0
    assert policy("topic/trim", margin_ms=40.0).place(now).broker[0] == 1


@given(seed=st.integers(0, 1000))
@settings(max_examples=40)
def test_at_most_eight_brokers_are_probed_for_a_topic_and_the_best_of_them_is_chosen(seed):
    draw = np.random.default_rng(seed)
    topics = [(draw.choice(6, 1), draw.choice(6, 3, replace=False)) for _ in range(5)]
    problem = line(draw.uniform(0, 100, 6), draw.uniform(0, 100, 20), topics, bound=60)
    truth = measured(problem, draw.uniform(0, 80, (6, 20)))
    placements = [None, Placement("topic", draw.integers(0, 20, 5))]
    for current in placements:
        probe = Truth.of(truth)

        placement = policy("topic/trim", probe=probe).place(replace(problem, current=current))

        assert max(probe.asked, default=0) <= PROBES
        assert len(probe.asked) <= problem.units
        after = [key_of(truth, topic, placement.broker[topic]) for topic in range(5)]
        shortlist = Nearness.of(problem, Network.of(problem.workload)).ranked(PROBES).broker
        if current is None:
            assert after == [min(key_of(truth, t, b) for b in shortlist[t]) for t in range(5)]
        else:  # no topic gets worse by more than its margin
            before = [key_of(truth, topic, current.broker[topic]) for topic in range(5)]
            assert all(new[0] <= old[0] or new[1] < old[1] for new, old in zip(after, before, strict=True))


def test_measured_pairs_override_estimates_in_every_policy_that_uses_pairs():
    problem = line([0.0], [1.0, 50.0], [([0], [0])])
    other = measured(problem, [[70.0, np.nan]])

    assert policy("topic/all-pairs").place(problem).broker.tolist() == [0]
    for name in ("topic/all-pairs", "topic/trim"):
        assert policy(name).place(other).broker.tolist() == [1]
    assert judge(other, Placement("topic", [0])).network.source == "mixed"
    assert judge(measured(problem, [[70.0, 3.0]]), Placement("topic", [0])).network.source == "measured"
    assert judge(problem, Placement("topic", [0])).network.source == "estimated"


def test_topics_whose_clients_have_no_known_latency_are_spread_and_stay():
    problem = line([0.0] * 8, [0, 1, 2, 3], [([c], [c]) for c in range(8)])
    load = problem.workload
    unknown = Coordinates(np.full((8, 1), np.nan), np.full(8, np.nan))
    problem = replace(problem, workload=replace(load, clients=replace(load.clients, coordinate=unknown)))

    placement = policy("topic/trim").place(problem)

    assert sorted(placement.broker.tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert policy("topic/trim").place(replace(problem, current=placement)).broker.tolist() == placement.broker.tolist()
    assert judge(problem, placement).network.unknown == 16
    assert judge(problem, placement).as_json()["network"]["worst_ms"] is None


def test_a_bound_that_no_broker_keeps_is_named_with_the_best_possible():
    problem = line([0.0, 100.0], [40.0, 90.0], [([0], [1]), ([0], [0])], bound=[60, 90])

    assert policy("topic/trim").place(problem).broker.tolist() == [0, 0]
    (found,) = unreachable(problem)
    assert str(found) == (
        "topic 't0' has a bound of 60 ms, but the network alone takes up to 100 ms even at its best broker, 'b0': "
        "raise latency_ms to 100 or more, or add a broker nearer to its clients"
    )


def test_a_workload_without_coordinates_is_refused_by_name():
    problem = line([0.0], [1.0], [([0], [0])])
    load = problem.workload
    without = replace(problem, workload=replace(load, brokers=replace(load.brokers, coordinate=None)))

    for name in ("topic/centroid", "topic/all-pairs"):
        with pytest.raises(MissingColumn, match="brokers has no column 'coordinate'"):
            policy(name).place(without)
    only_measured = measured(without, [[1.0]])
    assert policy("topic/all-pairs").place(only_measured).broker.tolist() == [0]
    with pytest.raises(MissingColumn, match="centroids of clients"):
        policy("topic/centroid").place(only_measured)


def test_removing_a_broker_moves_only_its_topics():
    def load(brokers):
        return Workload(Topics(Ids.numbered("t", 1000), np.ones(1000)), Clients(Ids([])), Brokers(Ids(brokers)),
                        Links([], [], []))  # fmt: skip

    names = [f"b{row}" for row in range(10)]
    before, after = (
        np.array(brokers)[policy("topic/hash", k=1000).place(Problem(load(brokers), "topic")).broker]
        for brokers in (names, [name for name in names if name != "b3"])
    )

    assert (before[before != after] == "b3").all()
    share = np.unique(before, return_counts=True)[1]
    assert (len(share), bool(share.max() < 200)) == (10, True)


@pytest.mark.parametrize("start", ["by true latencies", "by jittered ones"])
def test_topics_come_to_rest_although_latencies_jitter_by_five_percent(start):
    """Every pair has its own error in every round. A topic whose first broker was chosen by wrong latencies may move
    on to a better one, but no topic returns to a broker that it left."""
    draw = np.random.default_rng(4)
    topics = [([c], np.unique(draw.choice(60, 6))) for c in draw.integers(0, 60, 80)]
    problem = line(draw.uniform(0, 100, 60), draw.uniform(0, 100, 12), topics, bound=90)
    true = Network.of(problem.workload).rtt_ms(np.arange(60), np.arange(12))
    current = policy("topic/trim").place(problem) if start == "by true latencies" else None
    moves, left = [], [set() for _ in topics]

    for _ in range(60):
        noisy = measured(problem, true * draw.uniform(1.0, 1.05, true.shape))
        new = policy("topic/trim").place(replace(noisy, current=current))
        if current is not None:
            moved = np.flatnonzero(new.broker != current.broker).tolist()
            moves.append(len(moved))
            for topic in moved:
                assert new.broker[topic] not in left[topic]
                left[topic].add(current.broker[topic])
        current = new

    assert sum(moves[20:]) == 0
