"""Thrift: brokers that are not needed are emptied, stay empty, and are used again when an earlier goal needs them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control.test_promises import hosting, processed
from trimtab.control.decide import NoPlan, decide
from trimtab.control.goals.thrift import EMPTY, RESERVE, Thrift, emptied, unused, used
from trimtab.control.loop import Loop
from trimtab.control.resources import resources
from trimtab.control.settings import Settings
from trimtab.fleet.protocol.plans import Plan, Question
from trimtab.model.key import Key


def asked(**more):
    return Question(**({"number": 1, "at": 0.0, "reasons": ("surplus",), "policy": "trim", "seed": 1, "gain": 0.1,
                        "most": 1000, "thrift": True, "overload": 0.85} | more))  # fmt: skip


def test_thrift_is_off_unless_asked_for():
    view = processed([1.0, 1.0, 1.0], [0, 1, 2])

    assert list(Thrift().find(view, Settings())) == []
    assert Thrift().accept(view, view.current, asked(thrift=False)) == ""


def test_a_broker_whose_keys_fit_elsewhere_is_found_and_emptied():
    view = processed([1.0, 2.0, 3.0], [0, 1, 2])
    (finding,) = Thrift().find(view, Settings(thrift=True))
    assert finding.aim == EMPTY

    plan = decide(view, asked(aims={"thrift": EMPTY}, most=5))

    assert isinstance(plan, Plan)
    assert plan.goal == "thrift"
    then = view.placed({step.key: step.target for step in plan.steps})
    assert len(used(then)) == len(used(view.current)) - 1
    assert finding.broker not in {step.target for step in plan.steps}


def test_no_broker_is_emptied_if_a_bound_would_have_no_reserve():
    rates = [35.0] * 6  # three on one broker miss their bound
    view = processed(rates, [0, 0, 1, 1, 2, 2])

    assert emptied(view, hosting(view), resources(view, 0.85, None), 1000) is None


def test_no_broker_is_emptied_if_the_others_have_too_little_bandwidth():
    view = processed([100.0] * 6, [0, 0, 1, 1, 2, 2], ms=0.0, bandwidth=np.full(3, 70_000.0))
    roomy = processed([100.0] * 6, [0, 0, 1, 1, 2, 2], ms=0.0, bandwidth=np.full(3, 300_000.0))

    assert emptied(view, hosting(view), resources(view, 0.85, None), 1000) is None
    assert emptied(roomy, hosting(roomy), resources(roomy, 0.85, None), 1000) is not None


def test_levelling_leaves_an_emptied_broker_empty():
    view = processed([80.0, 10.0, 10.0, 10.0, 5.0, 5.0], [0, 0, 0, 1, 1, 1], ms=0.0)
    assert unused(view) == ["b2"]

    thrifty, plain = decide(view, asked()), decide(view, asked(thrift=False))

    assert isinstance(plain, Plan)
    assert "b2" in {step.target for step in plain.steps}
    assert isinstance(thrifty, (Plan, NoPlan))
    if isinstance(thrifty, Plan):
        assert "b2" not in {step.target for step in thrifty.steps}


def test_promises_use_an_emptied_broker_again():
    view = processed([35.0] * 5, [0, 0, 0, 1, 1])
    assert unused(view) == ["b2"]

    plan = decide(view, asked(aims={"promises": "latency"}))

    assert isinstance(plan, Plan)
    assert {step.target for step in plan.steps} == {"b2"}


def test_promises_prefer_a_broker_in_use():
    view = processed([35.0] * 4, [0, 0, 0, 1])

    plan = decide(view, asked(aims={"promises": "latency"}))

    assert isinstance(plan, Plan)
    assert {step.target for step in plan.steps} == {"b1"}


def test_a_surplus_that_takes_more_moves_than_allowed_moves_nothing():
    view = processed([1.0] * 9, [0, 0, 0, 1, 1, 1, 2, 2, 2])

    decision = decide(view, asked(aims={"thrift": EMPTY}, most=2, alpha=9.0))

    assert isinstance(decision, NoPlan)


@pytest.mark.slow
def test_a_day_and_a_night_use_fewer_brokers_at_night_and_miss_nothing():
    """Rates rise and fall; the loop empties brokers and uses them again, without a move in quiet times."""
    loop = Loop(Settings(thrift=True, alpha=0.3, cool_s=10.0))
    placed = {Key("topic", f"t{k}", ""): k % 3 for k in range(6)}
    brokers, moves, misses = [], [], 0
    for look in range(240):
        now = 5.0 * look
        day = 80 <= look < 160
        rates = [33.0 if day else 6.0] * 6
        view = processed(rates, list(placed.values()), at=now)
        there = hosting(view, 0.0)
        misses += len(there.missed(there.rate))
        brokers.append(len({view.broker_of(key) for key in placed}))
        plan = loop.step(now, view)
        moves.append(0)
        if isinstance(plan, Plan):
            loop.began()
            for step in plan.steps:
                if step.unit == "topic":
                    placed[step.key] = int(step.target[1:])
            moves[-1] = len(plan.steps)
            loop.moved(now, plan.steps)
            loop.ended(now, plan)

    assert min(brokers[60:80]) == max(brokers[60:80]) == 1
    assert set(brokers[100:160]) == {3}
    assert brokers[-1] == 1
    assert misses <= 12  # two measurements confirm that the day has begun
    assert sum(moves[110:160]) == 0


@settings(max_examples=40)
@given(rates=st.lists(st.floats(0.5, 30.0), min_size=2, max_size=10), seed=st.integers(0, 99))
def test_an_emptied_broker_leaves_every_bound_with_its_reserve(rates, seed):
    view = processed(rates, np.random.default_rng(seed).integers(3, size=len(rates)).tolist())
    there = hosting(view)

    found = emptied(view, there, resources(view, 0.85, None), 1000)

    if found is not None:
        broker, placement = found
        assert not (placement == broker).any()
        then = there.rates(placement)
        fuller = np.flatnonzero((then > there.rate).any(axis=1))
        assert (there.strain(then[fuller], fuller) <= RESERVE).all()
