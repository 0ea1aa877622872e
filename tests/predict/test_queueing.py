"""The fixed point of co-located topics: exact for one topic, monotone in topics, the same in any batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput
from trimtab.predict.hardware import PAPER, PROFILES, Hardware
from trimtab.predict.queueing import Queueing
from trimtab.predict.sets import Sets, features

topics = st.tuples(st.floats(0.1, 80.0), st.sampled_from([1.0, 10.0, 20.0, 40.0]))


def sets_of(*groups):
    rate = np.array([rate for group in groups for rate, _ in group])
    processing = np.array([processing for group in groups for _, processing in group])
    return Sets(np.concatenate([[0], np.cumsum([len(group) for group in groups])]), rate, processing)


def test_a_topic_alone_uses_its_worker_by_rate_and_cpu_time():
    use, time = Queueing(PAPER).solve(sets_of([(20.0, 10.0)]))

    assert use == pytest.approx([20 * 0.01285])
    assert time == pytest.approx([12.85])


def test_two_topics_on_one_core_slow_each_other_down():
    """x = rho / ((1 - x) + x / 2): by hand for rho = 0.4."""
    one_core = Queueing(Hardware("one", cores=1))

    use = one_core.use(sets_of([(40.0, 10.0), (40.0, 10.0)]))

    assert use == pytest.approx([1.0 - np.sqrt(1.0 - 0.8)] * 2, abs=2e-3)


@given(st.lists(topics, min_size=1, max_size=6), topics, st.sampled_from(list(PROFILES.values())))
def test_one_more_topic_never_lowers_the_use_or_latency_of_another(group, more, profile):
    model = Queueing(profile)

    before, after = sets_of(group), sets_of([*group, more])

    assert (model.use(after)[:-1] >= model.use(before) - 1e-3).all()
    assert (model.p90_ms(after)[:-1] >= model.p90_ms(before) * (1 - 1e-3)).all()


@given(st.lists(st.lists(topics, max_size=5), max_size=5))
def test_sets_are_answered_independently(groups):
    together = Queueing(PAPER).p90_ms(sets_of(*groups))

    apart = [value for group in groups for value in Queueing(PAPER).p90_ms(sets_of(group)).tolist()]

    assert together.tolist() == apart


def test_a_model_is_the_same_after_it_was_stored():
    model = Queueing(PROFILES["memory-bound"])

    assert Queueing.from_json(model.as_json()) == model


def test_sets_are_taken_and_made_by_rows():
    rate, processing = np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 30.0])
    sets = Sets.of([[0, 2], [1], []], rate, processing)

    assert sets.rate.tolist() == [1.0, 3.0, 2.0]
    assert sets.sum(sets.rate).tolist() == [4.0, 2.0, 0.0]
    assert sets.highest(sets.rate).tolist() == [3.0, 2.0, -np.inf]
    assert sets.take(np.array([1, 0])).rate.tolist() == [2.0, 1.0, 3.0]
    assert sets.topics_of(np.array([1, 0])).tolist() == [2, 0, 1]
    assert Sets.matrix(np.array([[0, 2], [1, -1]]), rate, processing).rate.tolist() == [1.0, 3.0, 2.0]
    with pytest.raises(BadInput, match="at most 1 topics on a broker, but was asked about 2"):
        sets.refuse_if_larger_than(1, "the model")


def test_the_papers_features_are_of_the_topic_and_of_its_neighbours():
    sets = sets_of([(2.0, 10.0), (3.0, 20.0)], [(4.0, 30.0)])

    assert features(sets).tolist() == [
        [10.0, 2.0, 20.0, 20.0, 3.0, 60.0], [20.0, 3.0, 60.0, 10.0, 2.0, 20.0], [30.0, 4.0, 120.0, 0.0, 0.0, 0.0],
    ]  # fmt: skip
