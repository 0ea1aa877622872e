"""Copies for subscribers take CPU time: predictions, placements and the judge agree about it."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.errors import BadInput
from trimtab.model.hardware import PAPER
from trimtab.model.ids import Ids
from trimtab.model.placement import UNPLACED, Placement
from trimtab.model.problem import Problem
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.place.judge import judge
from trimtab.place.registry import policy
from trimtab.place.topic import simulated
from trimtab.place.topic.instance import Instance
from trimtab.place.topic.misfits import misfits, split
from trimtab.predict.sets import Sets

PREDICTING = ("topic/ffd", "topic/lfs", "topic/lfs-ffd", "topic/ilp", "topic/trim")


def audience(rate, processing, subscribers, brokers, bound=1000.0) -> Problem:
    """Topics with one client whose link has the weight of so many subscriptions."""
    count = len(rate)
    topics = Topics(Ids.numbered("t", count), rate, processing_ms=processing, latency_ms=np.full(count, bound))
    links = Links(np.arange(count), np.zeros(count), np.full(count, SUB), subscribers)
    load = Workload(topics, Clients(Ids(["c"])), Brokers(Ids.numbered("b", brokers)), links)
    return Problem(load, "topic")


@pytest.mark.parametrize("subscribers", [1_000, 3_000])
@pytest.mark.parametrize(("topics", "rate"), [(1, 5.0), (3, 5.0), (3, 12.0), (6, 4.0)])
def test_the_prediction_of_topics_with_many_subscribers_is_at_most_somewhat_above_the_judge(subscribers, topics, rate):
    """It is about the last subscriber to get a copy; the judge draws subscribers at random."""
    problem = audience([rate] * topics, [10.0] * topics, [subscribers] * topics, 1)
    instance = Instance.of(problem, topics, None)

    predicted = instance.models[0].p90_ms(instance.sets(np.arange(topics)[None, :]))

    judged = judge(problem, Placement("topic", [0] * topics)).latency.p90_ms
    assert judged.mean() < predicted.mean() < 1.35 * judged.mean()


def test_fan_out_that_saturates_workers_is_predicted_as_the_judge_finds_it():
    """With 3,000 copies a message takes 58 ms, so that 20 messages/s are more than one worker does."""
    problem = audience([20.0] * 3, [10.0] * 3, [3000] * 3, 3)
    instance = Instance.of(problem, 3, None)

    predicted = instance.models[0].p90_ms(instance.sets(np.array([[0, 1, 2]])))

    judged = judge(problem, Placement("topic", [0, 0, 0])).latency.p90_ms
    assert predicted == pytest.approx(judged, rel=0.15)
    assert (judged > 30_000.0).all()
    for name in PREDICTING:
        assert (policy(name).place(problem).broker == UNPLACED).all(), name


@pytest.mark.parametrize("name", PREDICTING)
@pytest.mark.parametrize("subscribers", [1_000, 2_000, 2_400])
def test_topics_with_many_subscribers_are_placed_within_their_bounds(name, subscribers):
    """Topics that differ in nothing but their subscribers are not exchangeable."""
    problem = audience([15.0] * 8, [10.0] * 8, [1, subscribers] * 4, 8)

    placement = policy(name).place(problem)

    assert (placement.broker != UNPLACED).all()
    assert judge(problem, placement).latency.topics_out_of_bound == 0
    assert placement.bound.value <= len(np.unique(placement.broker))


def test_subscribers_are_counted_from_the_links():
    links = Links([0, 0, 0, 1, 1, 2], [0, 1, 2, 0, 1, 0], [SUB, SUB, PUB, SUB, PUB, PUB], [2, 3, 1, 0.4, 1, 1])
    load = Workload(Topics(Ids.numbered("t", 4), [1.0] * 4), Clients(Ids.numbered("c", 3)), Brokers(Ids(["b"])), links)

    assert load.copies.tolist() == [5.0, 1.0, 1.0, 1.0]


def test_a_broker_with_too_many_messages_to_simulate_is_predicted_with_its_copies(monkeypatch):
    problem = audience([20.0] * 3, [10.0] * 3, [3000] * 3, 1)
    simulated_one = judge(problem, Placement("topic", [0, 0, 0])).latency

    monkeypatch.setattr(simulated, "MOST_MESSAGES", 1.0)
    predicted = judge(problem, Placement("topic", [0, 0, 0])).latency

    assert predicted.p90_ms == pytest.approx(simulated_one.p90_ms, rel=0.15)
    assert predicted.cpu == pytest.approx(simulated_one.cpu, abs=0.1)


def test_a_topic_with_too_many_subscribers_is_named_with_the_replicas_that_would_fit():
    problem = audience([20.0, 20.0], [10.0, 10.0], [8000, 100], 6)

    (misfit,) = misfits(problem)

    assert (misfit.topic, misfit.subscribers) == ("t0", 8000)
    assert "publish it as 4 topics with all messages and at most 2,4" in str(misfit)
    one = PAPER.message_ms(np.array([10.0]), np.array([misfit.most_subscribers]))[0]
    assert 0.95 < 20.0 * one / 1000.0 < 1.02  # a worker that is just busy all the time
    assert misfit.as_json()["replicas"] == 4
    shares = [misfit.most_subscribers] * 3 + [8000 - 3 * misfit.most_subscribers]
    replicated = audience([20.0] * 4, [10.0] * 4, shares, 4)
    assert not misfits(replicated)


def test_a_topic_that_is_too_much_without_its_subscribers_gets_no_advice_about_them():
    (misfit,) = misfits(audience([100.0], [10.0], [300], 2))

    assert misfit.most_subscribers == 0
    assert "subscribers" not in str(misfit)


def test_parts_by_publishers_are_small_enough_for_the_copies_of_all_subscribers():
    problem = audience([60.0], [10.0], [2000], 8)

    parts = Problem(split(problem), "topic")

    assert len(parts.workload.topics) == 3
    placement = policy("topic/trim").place(parts)
    assert (placement.broker != UNPLACED).all()
    assert judge(parts, placement).latency.topics_out_of_bound == 0


def test_a_bound_that_only_the_copies_exceed_is_not_refused_but_explained():
    (misfit,) = misfits(audience([1.0], [10.0], [300_000], 1))

    assert misfit.most == 0.0
    assert "carries 0 to 300,000 subscribers, or all messages to 2" in str(misfit)


def test_sets_refuse_another_number_of_subscribers_than_of_topics():
    with pytest.raises(BadInput, match=r"subscribers has shape \(1,\), but must have \(2,\)"):
        Sets(np.array([0, 2]), [1.0, 2.0], [1.0, 2.0], [1.0])
