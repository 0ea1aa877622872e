"""Forecasts of traffic: exact on traffic that repeats, raised by what earlier forecasts missed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadKnob
from trimtab.predict.forecast import UNKNOWN, forecast

DAY = 24


def days(count, low=10.0, high=100.0):
    hours = np.arange(count * DAY)
    return low + (high - low) * (1.0 - np.cos(2 * np.pi * hours / DAY)) / 2.0


def test_traffic_that_repeats_every_day_is_forecast_exactly():
    rates = days(6)[: 5 * DAY + 8]

    found = forecast(rates, 2, DAY)

    expected = days(6)[5 * DAY + 8 : 5 * DAY + 10].max() / rates[-3:].mean()
    assert found.seasonal
    assert found.growth == pytest.approx(expected * found.margin)
    assert found.growth >= expected


def test_a_day_that_is_busier_than_the_last_is_scaled():
    rates = np.concatenate([days(1), 1.5 * days(1)])[: DAY + 8]

    found = forecast(rates, 2, DAY)

    assert found.growth * rates[-3:].mean() >= 1.5 * days(1)[8:10].max() * 0.999


def test_without_a_day_of_history_growth_goes_on():
    assert forecast(np.linspace(10.0, 20.0, 11), 3, DAY).growth > 1.2
    assert not forecast(np.linspace(10.0, 20.0, 11), 3, DAY).seasonal


def test_without_any_history_there_is_a_margin():
    found = forecast(np.array([]), 1, DAY)

    assert (found.growth, found.tested) == (UNKNOWN, 0)


def test_quiet_traffic_needs_no_margin():
    assert forecast(np.full(40, 5.0), 2, DAY).growth == pytest.approx(1.0)


def test_gaps_are_filled_with_the_last_value():
    rates = np.full(40, 5.0)
    rates[7:9] = np.nan

    assert forecast(rates, 2, DAY) == forecast(np.full(40, 5.0), 2, DAY)


@given(st.lists(st.floats(0.1, 1e6), min_size=30, max_size=120), st.integers(1, 6), st.sampled_from([0.5, 0.9]))
def test_the_margin_would_have_covered_that_share_of_the_past(rates, horizon, coverage):
    rates = np.array(rates)
    found = forecast(rates, horizon, DAY, coverage)

    raised = [
        rates[end : end + horizon].max() <= forecast(rates[:end], horizon, DAY).growth
        / forecast(rates[:end], horizon, DAY).margin * found.margin * rates[max(0, end - 3) : end].mean() * (1 + 1e-9)
        for end in range(3, len(rates) - horizon + 1)
    ]  # fmt: skip
    assert np.mean(raised) >= coverage - 1e-9


@pytest.mark.parametrize("bad", [{"horizon": 0, "season": 1}, {"horizon": 1, "season": 0}])
def test_bad_windows_are_refused(bad):
    with pytest.raises(BadKnob, match="one window or more"):
        forecast(np.ones(5), **bad)


def test_bad_coverage_is_refused():
    with pytest.raises(BadKnob, match="between 0 and 1"):
        forecast(np.ones(5), 1, 1, 1.0)
