"""One broker in virtual time: exact answers for a few messages, and properties of whole runs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput
from trimtab.model.hardware import PAPER, PROFILES, Hardware
from trimtab.predict.simulator import Hosted, _process, latencies, simulate

STILL = Hardware("still", drift=0.0)


def processed(sent, service, *, cores=1, quantum=0.0, fanout=None):
    """Latencies per topic, with cores that are shared evenly and CPU times without variation."""
    begin = np.concatenate([[0], np.cumsum([len(times) for times in sent])])
    speed = np.array([1.0, *[min(1.0, cores / m) for m in range(1, len(sent) + 1)]])
    latency, busy = _process(
        np.array([at for times in sent for at in times], float), begin, np.array(service, float),
        np.zeros(len(sent)) if fanout is None else np.array(fanout, float), speed, 0.0, quantum, cores, 1000.0,
        np.random.default_rng(0),
    )  # fmt: skip
    return [latency[begin[row] : begin[row + 1]].tolist() for row in range(len(sent))], busy


def test_two_topics_share_a_core():
    assert processed([[0.0], [5.0]], [10.0, 10.0]) == ([[15.0], [15.0]], 20.0)


def test_two_topics_with_a_core_each_do_not_wait():
    assert processed([[0.0], [5.0]], [10.0, 10.0], cores=2) == ([[10.0], [10.0]], 20.0)


def test_topics_take_turns_of_a_quantum():
    """The first topic has used up its slice when the second one comes."""
    assert processed([[0.0], [5.0]], [10.0, 10.0], quantum=4.0) == ([[18.0], [15.0]], 20.0)


def test_messages_of_a_topic_wait_in_their_order():
    assert processed([[0.0, 1.0, 2.0]], [10.0])[0] == [[10.0, 19.0, 28.0]]


def test_copies_for_subscribers_take_time_too():
    assert processed([[0.0, 1.0]], [10.0], fanout=[5.0])[0] == [[15.0, 29.0]]


def test_without_neighbours_and_noise_the_latency_is_the_cpu_time_and_the_network():
    profile = Hardware("quiet", service=((0.0, 1.0), (10.0, 21.0)), network_ms=3.0, drift=0.0)

    run = simulate(profile, Hosted.of(np.array([5.0]), np.array([10.0]), publishers=np.array([1])), seed=1)

    assert run.quantiles_ms == pytest.approx(np.full((1, 3), 24.0))
    assert run.messages.tolist() == [575]  # of 115 s, without the first five
    assert run.cpu == pytest.approx(5 * 0.021 / 4, rel=0.01)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_the_same_seed_gives_the_same_run(profile):
    hosted = Hosted.of(np.array([10.0, 20.0, 3.0]), np.array([20.0, 10.0, 40.0]))

    one, again, other = (simulate(profile, hosted, seed=seed) for seed in ((1, 2), (1, 2), (1, 3)))

    assert (one.quantiles_ms == again.quantiles_ms).all()
    assert (one.quantiles_ms != other.quantiles_ms).any()


@given(
    topics=st.lists(st.tuples(st.integers(0, 30), st.floats(0.0, 40.0), st.integers(1, 20)), min_size=1, max_size=6),
    profile=st.sampled_from(list(PROFILES.values())),
    seed=st.integers(0, 100),
)
def test_every_publication_is_processed_and_counted(topics, profile, seed):
    rate, processing, publishers = (np.array(column) for column in zip(*topics, strict=True))
    hosted = Hosted.of(rate.astype(float), processing, publishers=publishers)
    bound = np.full(len(topics), 100.0)

    run = simulate(profile, hosted, seed=seed, bound_ms=bound, duration_s=20.0)
    times = latencies(profile, hosted, seed=seed, duration_s=20.0)

    assert run.messages.tolist() == [len(of_topic) for of_topic in times]
    assert run.late.tolist() == [int((of_topic > 100.0).sum()) for of_topic in times]
    assert 0.0 <= run.cpu <= 1.0
    for row, of_topic in enumerate(times):
        assert (of_topic > 0.0).all()
        if len(of_topic):
            assert run.quantiles_ms[row] == pytest.approx(np.quantile(of_topic, [0.5, 0.9, 0.99]))
        else:
            assert np.isnan(run.quantiles_ms[row]).all()


def test_publishers_keep_their_rate():
    for profile in (STILL, PAPER, PROFILES["two-cores-smt"]):
        run = simulate(profile, Hosted.of(np.array([40.0]), np.array([1.0])), seed=3)
        assert run.messages[0] == pytest.approx(40 * 115, rel=0.05)


def test_wrong_columns_are_refused():
    with pytest.raises(BadInput, match="one number each per topic"):
        Hosted.of(np.array([1.0, 2.0]), np.array([1.0]))
    with pytest.raises(BadInput, match="rate must be zero or more, and finite"):
        Hosted.of(np.array([np.nan]), np.array([1.0]))
    with pytest.raises(BadInput, match="duration_s must be more than zero"):
        simulate(PAPER, Hosted.of(np.array([1.0]), np.array([1.0])), seed=0, duration_s=0.0)
