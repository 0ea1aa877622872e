"""A bound about to be missed is found before it is; steady and noisy rates are not taken for growth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.test_promises import hosting, processed
from trimtab.control.decide import decide
from trimtab.control.goals.promises import Promises
from trimtab.control.goals.thrift import emptied
from trimtab.control.loop import Loop
from trimtab.control.resources import resources
from trimtab.control.settings import Settings
from trimtab.control.trends import Trends
from trimtab.fleet.protocol.plans import Plan
from trimtab.lab.experiments.stability import figures
from trimtab.lab.stability.cases import find
from trimtab.lab.stability.fleet import run as play
from trimtab.lab.stability.ours import Ours
from trimtab.observe.average import Averages
from trimtab.observe.snapshot import unpack
from trimtab.predict.forecast import NOW, growing, growing_together

TICK = 5.0


def ramp(look, begin=10.0, step=0.8):
    return begin + step * look


def seen(rates, trends=None, brokers=(0, 0, 1), **more):
    """The view after measurements with these rates, the same for all topics."""
    trends = trends or Trends(Settings())
    for look, rate in enumerate(rates):
        view = trends.look(processed([rate] * len(brokers), list(brokers), at=TICK * look, **more))
    return view


@given(
    st.lists(st.lists(st.floats(0.0, 1e6), min_size=7, max_size=12), min_size=1, max_size=4).filter(
        lambda rows: len({len(row) for row in rows}) == 1
    ),
    st.integers(1, 6),
)
def test_growth_is_never_below_one_nor_above_two(rows, horizon):
    growth = growing(np.array(rows), horizon)

    assert ((growth >= 1.0) & (growth <= 2.0)).all()


@given(st.floats(1.0, 100.0), st.floats(0.1, 5.0), st.integers(1, 8))
def test_a_straight_line_goes_on(begin, slope, horizon):
    rates = begin + slope * np.arange(horizon + NOW)

    growth = growing(rates[None, :], horizon)[0]

    now = rates[-NOW:].mean()
    assert growth == pytest.approx(min(2.0, (now + slope * horizon) / now))


def test_noise_is_no_growth():
    rng = np.random.default_rng(3)
    rates = 20.0 * (1.0 + 0.1 * rng.standard_normal((2000, 12)))

    growth = growing(rates, 5)

    assert (growth > 1.0).mean() < 0.02


def test_a_rise_that_all_share_shows_through_the_noise_of_each():
    rng = np.random.default_rng(5)
    noisy = rng.poisson(4.0 * np.linspace(1.0, 1.8, 9), (24, 9)).astype(float)
    alone = noisy.copy()
    alone[1:] = rng.poisson(4.0, (23, 9))

    assert growing_together(noisy, 6) > 1.2
    assert growing_together(alone, 6) == 1.0  # one topic rises, most do not
    assert growing_together(noisy[:3], 6) == 1.0


def test_too_short_a_history_is_no_growth():
    assert growing(np.array([[1.0, 2.0, 4.0]]), 4).tolist() == [1.0]
    assert growing(np.zeros((0, 9)), 4).tolist() == []


def test_the_same_measurement_counts_once():
    trends = Trends(Settings())
    for look in range(12):
        view = processed([ramp(look)] * 3, [0, 0, 1], at=TICK * look)
        first, again = trends.look(view), trends.look(view)
        assert first.snapshot.growth.tolist() == again.snapshot.growth.tolist()
        assert trends.look(first) is first
    horizon = trends.horizon()
    assert horizon * TICK == pytest.approx(trends.horizon_s(TICK))
    now = ramp(10)  # the mean of the last three
    assert first.snapshot.growth == pytest.approx((now + 0.8 * horizon) / now)


def averaged(rates, every=TICK):
    """Averages, and those of the last seconds, of rates that are measured as on a live fleet."""
    averages = Averages(20.0, rows=1)
    for rate in rates:
        for _ in range(2):
            averages.add(np.array([[rate * every / 2]]), every / 2)
        yield float(averages.mean[0, 0]), float(averages.recent[0])


def test_growth_counts_from_what_was_measured_in_the_last_seconds():
    """An average over twenty seconds is far behind in a rush; its growth is that from the average to what comes."""
    rates = [10.0] * 12 + [10.0 + 2.0 * look for look in range(1, 9)]
    trends = Trends(Settings())
    for look, (rate, recent) in enumerate(averaged(rates)):
        view = trends.look(processed([rate] * 3, [0, 0, 1], at=TICK * look, recent=np.full(3, recent)))

    coming = rate * view.snapshot.growth[0]

    seconds = trends.horizon_s(TICK)
    assert rates[-1] < coming < rates[-1] + 2.0 * seconds / TICK
    assert seconds < 30.0
    assert rate < 0.8 * rates[-1]


def test_steady_traffic_does_not_grow_whatever_the_last_seconds_were():
    rng = np.random.default_rng(4)
    trends, grown = Trends(Settings()), []
    for look in range(200):
        recent = rng.poisson(40.0, 12) / 4.0
        view = trends.look(processed([10.0] * 12, [0] * 12, at=TICK * look, recent=recent))
        grown.append((view.snapshot.growth > 1.25).mean())

    assert np.mean(grown) < 0.02


def test_a_rush_does_not_wait_for_the_outcome_of_the_last_plan():
    """Rates have grown again in the first measurement after a plan, before its outcome can be judged."""
    loop, placed = Loop(Settings(alpha=9.0, idle=0.0, patience=1, thrift=True)), [0] * 6
    plans = []
    for look, rate in enumerate([18.0, 30.0]):
        plan = loop.step(TICK * look, processed([rate] * 6, placed, at=TICK * look))
        assert isinstance(plan, Plan)
        assert any(reason.startswith("promise: ") for reason in plan.reasons)
        loop.began()
        for step in plan.steps:
            placed[int(step.topic[1:])] = int(step.target[1:])
        loop.moved(TICK * look, plan.steps)
        loop.ended(TICK * look + 0.5, plan)
        plans.append(plan)

    first, second = loop.verdicts[0], plans[1]
    assert first.plan == plans[0]
    assert first.unmeasured == "the next plan began before the measurement"
    assert {step.key for step in plans[0].steps}.isdisjoint(step.key for step in second.steps)


def test_topics_without_a_bound_are_not_watched():
    assert seen([ramp(look) for look in range(12)], bound=np.nan).snapshot.growth is None


def test_growth_travels_with_the_measurement_so_that_a_decision_can_be_replayed():
    view = seen([ramp(look) for look in range(12)])

    again = unpack(view.snapshot.pack())

    assert again.growth.tolist() == view.snapshot.growth.tolist()
    assert unpack(processed([1.0], [0]).snapshot.pack()).growth is None


def test_a_bound_about_to_be_missed_is_found_and_the_finding_says_so():
    rates = [ramp(look, 21.0) for look in range(12)]
    view = seen(rates, brokers=(0, 0, 0, 1))
    there = hosting(view)
    assert there.missed(there.present) == []

    (finding,) = Promises().find(view, Settings())

    assert "is about to miss its bound of 200 ms at b0, where traffic grows from" in finding.text
    assert list(Promises().find(seen([rates[-1]] * 12, brokers=(0, 0, 0, 1)), Settings())) == []


def test_a_bound_that_is_missed_now_is_said_to_be():
    (finding,) = Promises().find(seen([ramp(look, 30.0) for look in range(12)], brokers=(0, 0, 0, 1)), Settings())

    assert "is expected to miss" in finding.text
    assert "about to" not in finding.text


def test_thrift_does_not_fill_a_broker_that_is_about_to_be_full():
    steady = seen([26.0] * 12, brokers=(0, 0, 1))
    rising = seen([26.0 * (0.55 + 0.45 * look / 11) for look in range(12)], brokers=(0, 0, 1))

    assert emptied(steady, hosting(steady), resources(steady, 0.85, None), 100) is not None
    assert emptied(rising, hosting(rising), resources(rising, 0.85, None), 100) is None


def run(trends_are_known, looks=60):
    """A slow rise to the rate at which three topics need a second broker. Returns the looks with a miss."""
    loop = Loop(Settings(alpha=9.0, idle=0.0))
    if not trends_are_known:
        loop.trends = type("Blind", (), {"look": staticmethod(lambda view: view)})()
    placed, misses, decided = [0, 0, 0], 0, []
    for look in range(looks):
        now = TICK * look
        rate = 10.0 + 25.0 * min(1.0, look / 40)
        view = processed([rate] * 3, placed, at=now)
        there = hosting(view, 0.0)
        misses += bool(there.missed(there.rate))
        plan = loop.step(now, view)
        if isinstance(plan, Plan):
            decided.append((loop.view, loop.question, plan))
            loop.began()
            for step in plan.steps:
                placed[int(step.topic[1:])] = int(step.target[1:])
            loop.moved(now, plan.steps)
            loop.ended(now, plan)
    return misses, decided


def test_with_trends_a_promise_is_mended_before_it_is_broken():
    blind, _ = run(False)
    ahead, decided = run(True)

    assert ahead == 0
    assert blind > 0
    view, question, plan = decided[0]
    assert any("is about to miss its bound" in reason for reason in question.reasons)
    assert decide(view, question) == plan


def replayed(name, seed):
    case = find(name)(seed)
    balancer = Ours(case)
    trace = play(case, balancer, seed)
    return trace, figures(case, balancer, trace)


@pytest.mark.slow
def test_slow_growth_breaks_no_promise_and_the_fleet_comes_to_rest():
    trace, measured = replayed("growing", 1)

    assert sum(trace.missed) == 0
    assert trace.used[0] == 1 < trace.used[-1]
    assert (measured["restless"], measured["returned"]) == (0, 0)


@pytest.mark.slow
def test_a_fleet_is_consolidated_at_night_out_in_the_rush_and_at_rest_in_between():
    trace, measured = replayed("nights", 1)

    assert trace.used[290] == trace.used[-1] == 1
    assert trace.used[700] >= 3
    assert sum(trace.missed) <= 0.01 * 24 * len(trace.missed)
    assert measured["restless"] == 0
    assert sum(trace.moves[240:300]) == sum(trace.moves[600:720]) == 0
