"""The fixed point of co-located topics: exact for one topic, monotone in topics, the same in any batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput, BadKnob
from trimtab.model.hardware import PAPER, PROFILES, Hardware
from trimtab.predict.model import Structured
from trimtab.predict.queueing import Queueing, Shape
from trimtab.predict.sets import Sets, features
from trimtab.predict.simulator import Hosted, simulate

topics = st.tuples(st.floats(0.1, 80.0), st.sampled_from([1.0, 10.0, 20.0, 40.0]))


def sets_of(*groups):
    rate = np.array([rate for group in groups for rate, _ in group])
    processing = np.array([processing for group in groups for _, processing in group])
    return Sets(np.concatenate([[0], np.cumsum([len(group) for group in groups])]), rate, processing)


def test_a_topic_alone_uses_its_worker_by_rate_and_cpu_time():
    use, time = Queueing(PAPER).solve(sets_of([(20.0, 10.0)]))

    assert use == pytest.approx([20 * (0.01285 + 0.000015)])  # with the copy for its subscriber
    assert time == pytest.approx([12.85 + 0.015])


@given(st.lists(topics, min_size=1, max_size=6), st.floats(1.0, 5000.0), st.sampled_from(list(PROFILES.values())))
def test_copies_for_subscribers_take_as_long_as_processing_of_that_time(group, subscribers, profile):
    sets = sets_of(group)
    many = replace(sets, subscribers=np.full(len(group), subscribers))

    more = profile.message_ms(many.processing_ms, many.subscribers) - profile.message_ms(sets.processing_ms, 1.0)
    assert more == pytest.approx(np.full(len(group), (subscribers - 1.0) * profile.fanout_ms), rel=1e-6, abs=1e-9)
    assert Queueing(profile).use(many) == pytest.approx(Queueing(profile).use(many.for_one_subscriber(profile)))
    assert (Queueing(profile).p90_ms(many) >= Queueing(profile).p90_ms(sets) * (1 - 1e-3)).all()


def test_hardware_whose_service_does_not_rise_says_nothing_about_many_subscribers():
    flat = Hardware("flat", service=((0.0, 5.0), (10.0, 8.0), (20.0, 8.0)), fanout_ms=0.02)

    assert flat.for_one_subscriber(np.array([0.0]), np.array([51.0])) == pytest.approx([10.0 / 3.0])
    assert flat.for_one_subscriber(np.array([20.0]), np.array([1.0])) == pytest.approx([20.0])
    with pytest.raises(BadInput, match="service of hardware 'flat' does not rise after 10 ms"):
        flat.for_one_subscriber(np.array([0.0]), np.array([500.0]))


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


@given(
    run_ms=st.sampled_from([5_000.0, 14_000.0, 30_000.0, 120_000.0]), drained=st.floats(0.0, 3.0),
    bound=st.floats(20.0, 60_000.0), beyond=st.floats(1e-4, 1.0),
)  # fmt: skip
def test_a_worker_busier_than_the_most_use_of_a_bound_is_predicted_above_it(run_ms, drained, bound, beyond):
    model = Queueing(PAPER, Shape(run_ms=run_ms, drained=drained))

    most = model.most_use(bound)

    if most < np.inf:
        use = most + beyond
        assert model.latency(np.array([use]), np.array([10.0]))[0] > bound
    else:  # so much drains that no overload makes messages wait for longer than the bound
        assert model.latency(np.array([1e6]), np.array([0.0]))[0] <= bound + 0.1


def test_short_runs_allow_more_overload_than_long_ones_within_the_same_bound():
    """90 % of the messages of a run of 30 s wait for at most 27 s per share of overload."""
    short, long = (Queueing(PAPER, Shape(run_ms=run_ms, drained=0.0)) for run_ms in (30_000.0, 120_000.0))

    assert short.most_use(1002.0) == pytest.approx(1.0 + 1.0 / 27.0)
    assert long.most_use(1002.0) == pytest.approx(1.0 + 1.0 / 108.0)


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
    assert replace(sets, subscribers=[5.0, 6.0, 7.0]).take(np.array([1, 0])).subscribers.tolist() == [7.0, 5.0, 6.0]
    assert sets.topics_of(np.array([1, 0])).tolist() == [2, 0, 1]
    assert Sets.matrix(np.array([[0, 2], [1, -1]]), rate, processing).rate.tolist() == [1.0, 3.0, 2.0]
    with pytest.raises(BadInput, match="at most 1 topics on a broker, but was asked about 2"):
        sets.refuse_if_larger_than(1, "the model")


def test_the_papers_features_are_of_the_topic_and_of_its_neighbours():
    sets = sets_of([(2.0, 10.0), (3.0, 20.0)], [(4.0, 30.0)])

    assert features(sets).tolist() == [
        [10.0, 2.0, 20.0, 20.0, 3.0, 60.0], [20.0, 3.0, 60.0, 10.0, 2.0, 20.0], [30.0, 4.0, 120.0, 0.0, 0.0, 0.0],
    ]  # fmt: skip


def test_the_queueing_structure_is_a_latency_model_of_its_own():
    model = Queueing(PAPER)
    sets = sets_of([(20.0, 10.0), (10.0, 40.0)], [(37.0, 20.0)])

    low, high = model.interval_ms(sets)
    narrow, wide = model.interval_ms(sets, 0.5)

    assert isinstance(model, Structured)
    assert (low < narrow).all()
    assert (narrow < model.p90_ms(sets)).all()
    assert (model.p90_ms(sets) < wide).all()
    assert (wide < high).all()
    assert model.on(PROFILES["memory-bound"]) == Queueing(PROFILES["memory-bound"])


@pytest.mark.parametrize("cores", [0.1, 0.5, 1.5])
def test_the_simulator_and_the_model_agree_about_a_fraction_of_a_core(cores):
    """Before, 0.1 and 0.5 cores counted as one, and 1.5 as two."""
    part, rate = PAPER.scaled(cores=cores), 0.5 * 1000.0 * min(cores, 1.0) / 26.9
    sets, share = sets_of([(rate, 20.0)]), min(cores, 1.0)

    run = simulate(part, Hosted.of(np.array([rate]), np.array([20.0])), seed=1, duration_s=600.0)

    assert Queueing(part).use(sets)[0] == pytest.approx(0.5, rel=0.01)
    assert run.cpu * cores / share == pytest.approx(0.5, rel=0.05)
    assert Queueing(part).cpu(sets)[0] == pytest.approx(run.cpu, rel=0.05)
    assert min(run.p90_ms[0], Queueing(part).p90_ms(sets)[0]) > 26.9 / share


def test_two_topics_need_more_than_one_and_a_half_cores_if_each_fills_one():
    sets = sets_of([(33.0, 20.0), (33.0, 20.0)])

    assert Queueing(PAPER.scaled(cores=1.5)).use(sets).min() > 1.0
    assert Queueing(PAPER.scaled(cores=2)).use(sets).max() < 1.0


def test_time_slices_on_a_fraction_of_a_core_serve_everybody():
    part = replace(PROFILES["four-cores-quantum"], cores=1.5)

    run = simulate(part, Hosted.of(np.full(3, 5.0), np.full(3, 20.0)), seed=2)

    assert (run.p90_ms < 1000.0).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, "steep", None, True])
def test_a_shape_of_senseless_numbers_is_refused(value):
    with pytest.raises(BadKnob, match="steep must be a number, zero or more, and finite"):
        Shape(steep=value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"shape": {"bend": 1.0}}, "shape of a queueing model must be an object with idle, linear"),
        ({"shape": None}, "shape of a queueing model must be an object with"),
        ({"hardware": 3}, "a hardware profile is a JSON object"),
        ({"spread": Queueing(PAPER).spread.as_json() | {"scale": [0.1]}}, "columns that do not fit together"),
    ],
)
def test_a_damaged_model_is_refused(change, sentence):
    with pytest.raises(BadInput, match=sentence):
        Queueing.from_json(Queueing(PAPER).as_json() | change)


def test_intervals_with_nan_are_refused():
    spread = Queueing(PAPER).spread

    with pytest.raises(BadInput, match="'scale' that is not a number"):
        replace(spread, scale=np.full(len(spread.scale), np.nan))
    with pytest.raises(ValueError, match="numbers were expected"):
        type(spread).from_json(spread.as_json() | {"at": [None] * len(spread.at)})
