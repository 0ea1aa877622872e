"""Nearness: keys move nearer to their clients where no earlier goal is harmed, if that is asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.test_following import AWAY, NEAR, asked, moved, moves, zones
from trimtab.control.decide import NoPlan, decide
from trimtab.control.goals.nearness import NEARER, Nearness, key_ways
from trimtab.control.loop import Loop
from trimtab.control.settings import Settings
from trimtab.control.view import View
from trimtab.fleet.protocol.plans import Plan
from trimtab.model.key import Key

ON = Settings(nearness=True)


def question(**more):
    return asked(**({"aims": {"nearness": NEARER}, "resting": (), "alpha": 0.15} | more))


def topics(homes, places):
    return zones(homes, places, bound=np.nan)


def test_it_is_off_unless_asked_for():
    assert list(Nearness().find(topics([1], [(0, 0)]), Settings())) == []


def test_ways_are_those_of_all_messages_one_way():
    """10 messages/s from a publisher and to a subscriber."""
    view = topics([1], [(0, 2)])

    ways = key_ways(view)[view.rows[Key("topic", "t0", "")]]

    far, near = 10.0 * AWAY / 2, 10.0 * NEAR / 2
    assert ways.tolist() == [near + far, far + far, near + far, far + far]


def test_topics_that_change_places_are_nearer_and_as_even():
    view = topics([1, 0, 2, 3], [(0, 0), (1, 1), (2, 2), (3, 3)])

    (finding,) = Nearness().find(view, ON)

    assert str(finding) == (
        "messages would spend 94% less time between clients and brokers if 2 keys were nearer to their clients"
    )
    assert moves(decide(view, question())) == {"t0": "b0", "t1": "b1"}


def test_evenness_comes_first():
    """All clients are in one zone: only one topic of four can be there."""
    view = topics([0, 1, 2, 3], [(0, 0)] * 4)

    assert isinstance(decide(view, question(alpha=0.01)), NoPlan)


def test_gains_that_are_not_worth_a_move_are_left():
    view = topics([1], [(0, 0)])
    rtt = view.snapshot.workload.rtt
    near = replace(view.snapshot.workload, rtt=replace(rtt, rtt_ms=np.where(rtt.rtt_ms == AWAY, NEAR + 1.0, NEAR)))

    assert list(Nearness().find(replace(view, snapshot=replace(view.snapshot, workload=near)), ON)) == []


def test_without_latencies_nothing_is_found():
    view = topics([1], [(0, 0)])
    blind = replace(view.snapshot, workload=replace(view.snapshot.workload, rtt=None))

    assert list(Nearness().find(View.of(blind, view.routing, list(view.brokers)), ON)) == []


@given(data=st.data())
def test_ways_become_shorter_and_no_bound_is_broken_and_then_it_rests(data):
    count = data.draw(st.integers(1, 8))
    zone = st.integers(0, 3)
    homes = data.draw(st.lists(zone, min_size=count, max_size=count))
    places = data.draw(st.lists(st.tuples(zone, zone), min_size=count, max_size=count))
    view = zones(homes, places, bound=data.draw(st.sampled_from([40.0, 100.0])))

    plan = decide(view, question(resting=("thrift", "evenness", "gathering")))

    if isinstance(plan, Plan) and plan.goal == "nearness":
        then = View.of(view.snapshot, moved(view, plan), list(view.brokers))
        assert way(then) < way(view)
        bound = view.snapshot.workload.topics.latency_ms
        assert (then.network.at_home_ms <= np.maximum(bound, view.network.at_home_ms)).all()


def way(view):
    return key_ways(view)[np.arange(len(view.keys)), view.current].sum()


@pytest.mark.slow
def test_the_loop_brings_keys_nearer_once_and_rests():
    loop, view = Loop(ON), topics([1, 0, 2, 3], [(0, 0), (1, 1), (2, 2), (3, 3)])
    plans = []
    for at in np.arange(0.0, 300.0, 5.0):
        view = View.of(replace(view.snapshot, at=at), view.routing, list(view.brokers))
        decision = loop.step(at, view)
        if isinstance(decision, Plan):
            plans.append(decision)
            loop.began()
            loop.moved(at, decision.steps)
            loop.ended(at, decision)
            view = View.of(view.snapshot, moved(view, decision), list(view.brokers))

    assert [plan.goal for plan in plans] == ["nearness"]
    assert list(Nearness().find(view, ON)) == []
