"""Averages that know a change from a peak."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.observe.average import Averages

HALF_S = 2.5


def averaged(rates, average_s=20.0, seconds=HALF_S):
    """The average after each of these rates has been there for a while."""
    averages, seen = Averages(average_s, rows=1), []
    for rate in rates:
        averages.add(np.array([[rate * seconds]]), seconds)
        seen.append(float(averages.mean[0, 0]))
    return seen


def test_the_recent_average_follows_a_change_within_ten_seconds():
    averages = Averages(20.0, rows=1)
    for rate in [100.0] * 40 + [150.0] * 4:
        averages.add(np.array([[rate * HALF_S]]), HALF_S)

    assert averages.recent[0] == pytest.approx(150.0, rel=0.06)


def test_a_steady_rate_is_its_average_from_the_beginning():
    assert averaged([100.0] * 50) == pytest.approx([100.0] * 50)


@pytest.mark.parametrize("factor", [5.0, 0.2, 1.5, 0.0])
def test_a_rate_that_changes_for_good_is_believed_the_second_time(factor):
    seen = averaged([100.0] * 80 + [100.0 * factor] * 3)

    assert abs(seen[80] - 100.0) < 0.15 * abs(100.0 * factor - 100.0)
    assert seen[81:] == pytest.approx([100.0 * factor] * 2)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_short_peak_leaves_nothing_behind(length):
    seen = averaged([100.0] * 80 + [400.0] * length + [100.0] * 4)

    assert seen[-3] == pytest.approx(100.0, rel=0.4)
    assert seen[-1] < 135.0


@pytest.mark.parametrize("length", [1, 2])
@pytest.mark.parametrize("every", [3, 4, 8, 12, 24, 120])
def test_bursts_are_averaged_however_far_they_are_apart(every, length):
    """Results of a channel with a period, say: a lot, and then nothing for up to five minutes."""
    seen = averaged([100.0 * every / length if at % every < length else 0.0 for at in range(20 * every)])

    assert seen[every + length :] == pytest.approx([100.0] * (19 * every - length), rel=0.35)
    assert seen[-8 * every :] == pytest.approx([100.0] * (8 * every), rel=0.2)


def test_what_was_quiet_for_long_and_then_goes_on_is_believed_soon():
    seen = averaged([100.0] * 80 + [0.0] * 240 + [100.0] * 6)

    assert seen[319] == 0.0
    assert seen[-1] == pytest.approx(100.0)


def test_noise_is_averaged():
    rng = np.random.default_rng(0)
    averages = Averages(20.0, rows=500)
    for _ in range(80):
        averages.add(1000.0 * (1 + 0.1 * rng.standard_normal((500, 1))) * HALF_S, HALF_S)

    assert np.std(averages.mean) / 1000.0 < 0.05


def test_what_comes_now_and_then_is_averaged():
    """Three messages a minute, say."""
    rng = np.random.default_rng(0)
    averages, seen = Averages(20.0, rows=300), []
    for _ in range(400):
        averages.add(rng.poisson(0.05 * HALF_S, (300, 1)).astype(float), HALF_S)
        seen.append(averages.mean.mean())

    assert np.mean(seen[100:]) == pytest.approx(0.05, rel=0.1)
    assert averages.mean.max() < 0.5


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=60), st.floats(0.1, 60.0))
def test_an_average_is_between_the_least_and_the_most_there_was(rates, seconds):
    seen = averaged(rates, seconds=seconds)

    for at, value in enumerate(seen):
        some = rates[: at + 1]
        assert min(some) * (1 - 1e-9) <= value <= max(some) * (1 + 1e-9)


def test_rows_come_and_go():
    averages = Averages(20.0, rows=3, columns=2)
    averages.add(np.array([[10.0, 1.0], [20.0, 2.0], [30.0, 3.0]]), 10.0)

    averages.keep(np.array([2, 0]), more=1)
    averages.add(np.array([[30.0, 3.0], [10.0, 1.0], [0.0, 0.0]]), 10.0)

    assert averages.mean == pytest.approx(np.array([[3.0, 0.3], [1.0, 0.1], [0.0, 0.0]]))


def test_what_has_come_once_only_is_not_sure():
    """Steady, or every few seconds, or once a minute: that takes some time to see."""
    averages, seen = Averages(20.0, rows=3), []
    for at in range(30):
        averages.add(np.array([[100.0], [300.0 if at % 3 < 2 else 0.0], [2400.0 if at % 24 == 0 else 0.0]]), HALF_S)
        seen.append(averages.unsure())

    assert seen[0] == 1.0
    assert 0.2 < seen[10] < seen[4] < 0.9
    assert seen[24:] == [0.0] * 6


def test_a_fleet_of_which_nothing_comes_is_sure():
    averages = Averages(20.0, rows=2)
    averages.add(np.zeros((2, 1)), HALF_S)

    assert averages.unsure() == 0.0


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.integers(0, 3))
def test_rows_that_are_kept_go_on_as_if_the_others_had_never_been(came, more):
    both, one = Averages(20.0, rows=2, columns=2), Averages(20.0, rows=1, columns=2)
    for at, each in enumerate(came):
        amount = np.array([[10.0, 3.0]]) * each
        if at == len(came) // 2:
            both.keep(np.array([1]), more)
        rows = both.mean.shape[0]
        place = 1 if at < len(came) // 2 else 0
        both.add(np.vstack([amount if row == place else np.array([[7.0, 1.0]]) for row in range(rows)]), HALF_S)
        one.add(amount, HALF_S)

        assert both.mean[place] == pytest.approx(one.mean[0])
