"""The drift alarm on a simulated broker: it rings when processing becomes slower, and not in quiet minutes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput, BadKnob
from trimtab.model.hardware import PROFILES
from trimtab.predict.drift import Drift, Settings, Window
from trimtab.predict.fit import fitted
from trimtab.predict.queueing import Queueing
from trimtab.predict.samples import Samples
from trimtab.predict.sets import Sets
from trimtab.predict.simulator import Hosted, latencies
from trimtab.predict.update import updated

MACHINE = PROFILES["two-slow-cores"]
RATE, MS = np.array([8.0, 5.0, 3.0]), np.array([10.0, 20.0, 40.0])
NAMES = ("a", "b", "c")


def windows(hardware, count, seed):
    """Ten-second windows of one run, with the predictions of a model that is 30 % off for one topic."""
    run = latencies(hardware, Hosted.of(RATE, MS), seed=seed, duration_s=10.0 * count + 5.0)
    p90 = np.array([[np.quantile(part, 0.9) for part in np.array_split(each, count)] for each in run]).T
    sets = Sets(np.array([0, 3]), RATE, MS)
    model = Queueing(MACHINE)
    predicted, (low, high) = model.p90_ms(sets), model.interval_ms(sets)
    off = np.array([1.3, 1.0, 1.0])
    return [Window(NAMES, row, predicted * off, low * off, high * off) for row in p90]


def after(state, seen):
    rung = []
    for number, window in enumerate(seen):
        state = state.after(window)
        if state.ringing:
            rung.append(number)
    return state, rung


@pytest.mark.parametrize("seed", range(20))
def test_ten_quiet_minutes_do_not_ring_and_a_slower_processor_does(seed):
    slower = replace(MACHINE, service=tuple((nominal, 1.5 * real) for nominal, real in MACHINE.service))

    quiet, rung = after(Drift(), windows(MACHINE, 60, (seed, 0)))
    loud, rung_later = after(quiet, windows(slower, 12, (seed, 1)))

    assert rung == []
    assert quiet.reason == ""
    assert quiet.factor == pytest.approx(1.0, abs=0.1)
    assert rung_later
    assert rung_later[0] <= 6  # within a minute or so
    assert "slower than usual" in loud.reason
    assert loud.factor > 1.3


def test_a_faster_processor_rings_too():
    faster = replace(MACHINE, service=tuple((nominal, real / 2.0) for nominal, real in MACHINE.service))

    quiet, _ = after(Drift(), windows(MACHINE, 20, 1))
    state, rung = after(quiet, windows(faster, 12, 2))

    assert rung
    assert "faster than usual" in state.reason


def test_one_odd_window_does_not_ring():
    state, _ = after(Drift(), windows(MACHINE, 20, 1))
    odd = windows(MACHINE, 1, 3)[0]

    state = state.after(replace(odd, measured_ms=odd.measured_ms * 100.0))

    assert not state.ringing


@pytest.mark.slow
def test_the_false_alarm_rate_holds_for_independent_windows():
    """The stated rate is 1 in 200 windows, of which 30,000 are looked at, in runs of 100."""
    rng = np.random.default_rng(5)
    one, rung = np.ones(1), 0
    for _ in range(300):
        state = Drift(Settings(change=1.5, false_alarms=1 / 200, settle=12))
        for value in np.exp(0.25 * rng.standard_normal(112)):
            state = state.after(Window(("t",), one * value, one, one * 0.6, one * 1.6))
            if state.ringing:
                rung += 1
                break

    assert rung / 30_000 <= 1 / 200


def test_predictions_that_never_fitted_are_a_misfit():
    names = tuple("abcdefgh")
    one = np.ones(len(names))
    window = Window(names, 2.0 * one, one, 0.7 * one, 1.3 * one)

    state, rung = after(Drift(), [window] * 20)

    assert rung == []
    assert state.misfit < 1e-6
    assert "predictions do not fit this broker" in state.reason


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=40))
def test_quiet_topics_change_nothing(values):
    one = np.ones(1)
    state, with_gaps = Drift(), Drift()
    for value in values:
        window = Window(("t",), one * value, one, one * 0.8, one * 1.2)
        state = state.after(window)
        with_gaps = with_gaps.after(window).after(replace(window, measured_ms=one * np.nan))

    assert state == with_gaps


def test_senseless_settings_and_predictions_are_refused():
    one = np.ones(1)
    with pytest.raises(BadKnob, match="change must be a factor above 1"):
        Settings(change=1.0)
    with pytest.raises(BadKnob, match="settle must be 3 windows or more"):
        Settings(settle=1)
    with pytest.raises(BadInput, match="predicted latencies of a window must be above zero"):
        Drift().after(Window(("t",), one, one * np.nan, one, one))


def test_a_few_new_measurements_update_a_model():
    """Processing takes 1.5 times as long as when the model was fitted."""
    slower = Queueing(replace(MACHINE, service=tuple((nominal, 1.5 * real) for nominal, real in MACHINE.service)))
    sets = Sets.of([[0], [1, 2], [0, 1], [2]], RATE, MS)
    samples = Samples(MACHINE, sets, slower.p90_ms(sets), slower.cpu(sets))

    model = updated(Queueing(MACHINE), samples)

    assert model.p90_ms(sets) == pytest.approx(slower.p90_ms(sets), rel=0.1)
    with pytest.raises(BadInput, match="2 measured sets are too few to update a model: 3 or more"):
        updated(model, samples.take(np.arange(2)))
    with pytest.raises(BadInput, match="cannot update a model of 'memory-bound'"):
        updated(Queueing(PROFILES["memory-bound"]), samples)
    assert fitted(samples, MACHINE).hardware.name == MACHINE.name
