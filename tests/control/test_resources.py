"""Brokers that have too little of something: whom they give up, to whom, and that nobody else is filled instead."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.control.decide import NoPlan, decide
from trimtab.control.goals.limits import Limits
from trimtab.control.loop import Loop
from trimtab.control.memory import Memory
from trimtab.control.resources import ROOM, forecast, relief, resources, too_full
from trimtab.control.settings import Settings
from trimtab.control.view import View
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.plans import LOAD, Plan, Question, Step
from trimtab.model.ids import Ids
from trimtab.model.key import Key, RoutingTable
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot, Usage, unpack

LIMIT = 1000.0  # messages/s that are too many
SLEEPY, CHATTY = (10.0, 200.0), (100.0, 20.0)  # messages/s and bytes each: the same in bytes
KINDS, HOMES = [CHATTY] * 6 + [SLEEPY] * 12, [0] * 6 + [1] * 6 + [2] * 6


def fleet_of(kinds, homes, brokers=3, at=0.0, use=None, **limits):
    """Everybody has a topic of his own. What brokers use is what they carry, unless it is said."""
    rows = np.arange(len(kinds), dtype=np.int32)
    rate, size = (np.array([kind[column] for kind in kinds]) for column in (0, 1))
    workload = Workload(
        Topics(Ids.numbered("t", len(kinds)), rate, size), Clients(Ids.numbered("c", len(kinds))),
        Brokers(Ids.numbered("b", brokers), **{name: np.full(brokers, each) for name, each in limits.items()}),
        Links.subscriptions(rows, rows),
    )  # fmt: skip
    carried = 2.0 * np.bincount(homes, rate, brokers)
    said = {f"b{row}": Usage(0.0, messages=float(each)) for row, each in enumerate(carried)} if use is None else use
    names = {f"c{row}": f"b{home}" for row, home in enumerate(homes)}
    return View.of(Snapshot(at, workload, said), RoutingTable.of_homes(names), [f"b{row}" for row in range(brokers)])


def chatty(**more):
    """Level in bytes, but all who send much and often are at the first broker."""
    return fleet_of(KINDS, HOMES, **more)


def asked(**more):
    return Question(**({"number": 1, "at": 0.0, "reasons": ("full",), "policy": "trim", "seed": 1, "gain": 0.1,
                        "most": 1000, "overload": 0.85} | more))  # fmt: skip


def test_a_broker_with_too_many_messages_gives_up_as_few_as_it_takes():
    view = chatty()
    assert view.load().cov == pytest.approx(0.0)

    plan = decide(view, asked(aims={"limits": "message rate"}, messages=LIMIT))

    assert isinstance(plan, Plan)
    assert (plan.policy, plan.binding.resource, plan.binding.broker) == ("relieve", "message rate", "b0")
    assert plan.binding.now == pytest.approx(1200 / LIMIT)
    assert plan.binding.predicted <= ROOM
    assert len(plan.steps) == 2  # 1200 -> 800, of at most 900
    assert {step.source for step in plan.steps} == {"b0"}
    assert coding.decode(coding.encode(plan), Plan) == plan


def test_loads_that_are_level_in_bytes_stay_so_when_nothing_is_full():
    assert isinstance(decide(chatty(), asked(messages=LIMIT)), NoPlan)


def test_what_levels_and_relieves_as_well_is_preferred():
    """All at one broker, too much there of everything: whatever makes it level is enough."""
    view = fleet_of([CHATTY] * 9, [0] * 9)

    plan = decide(view, asked(aims={"limits": "message rate"}, messages=LIMIT))

    assert (plan.policy, len(plan.steps)) == ("trim", 6)
    assert plan.binding.resource == "message rate"


def test_nobody_is_levelled_onto_a_broker_that_would_be_too_full():
    """The third broker has nothing to carry, but hardly a core left."""
    use = {"b0": Usage(0.0, cores=0.6), "b1": Usage(0.0, cores=0.1), "b2": Usage(0.0, processing=0.8)}
    view = fleet_of([SLEEPY] * 12, [0] * 10 + [1] * 2, use=use, cores=1.0)
    assert {"b2", "b1"} == {step.target for step in decide(view, asked(overload=2.0)).steps}

    plan = decide(view, asked())

    assert {step.target for step in plan.steps} == {"b1"}
    assert len(plan.steps) == 4
    assert plan.predicted.spread == pytest.approx(np.std([6, 6, 0]) / 4)  # of all three, not of two


def test_memory_counts_too():
    use = {f"b{row}": Usage(1.0, memory=each) for row, each in enumerate((9e8, 1e8, 1e8))}
    view = chatty(use=use, memory=1e9)

    (found,) = Limits().find(view, Settings())
    plan = decide(view, asked(aims={"limits": "memory"}))

    assert str(found) == "b0 above 85% of memory: 90% at most"
    assert found.aim == "memory"
    assert {step.source for step in plan.steps} == {"b0"}


def test_what_moving_cannot_mend_is_not_tried():
    (found,) = Limits().find(chatty(), Settings(messages=400.0))

    assert found.aim == ""
    assert str(found) == (
        "b0 above 100% of message rate: 300% at most; all brokers together are at 120%, so moving cannot mend it: "
        "add 1 like them"
    )


def test_processors_stay_where_they_are():
    """Whatever clients go, what a topic's processor takes remains."""
    use = {"b0": Usage(0.0, processing=0.95), "b1": Usage(0.0), "b2": Usage(0.0)}
    made = decide(chatty(use=use, cores=1.0), asked(aims={"limits": "cores"}))

    assert isinstance(made, NoPlan)
    assert made.why == "no key that could move would leave it less cores"


def test_a_snapshot_keeps_what_a_decision_depends_on():
    view = chatty(memory=1e9, cores=2.0)
    again = View.of(unpack(view.snapshot.pack()), view.routing, list(view.brokers))
    question = asked(aims={"limits": "message rate"}, messages=LIMIT)

    assert decide(again, coding.decode(coding.encode(question), Question)) == decide(view, question)


def played(loop, kinds, homes, until, **more):
    """Plans by when they were made; homes follow them at once."""
    made = {}
    for now in np.arange(0.0, until, 5.0).tolist():
        plan = loop.step(now, fleet_of(kinds, homes, at=now, **more))
        if isinstance(plan, Plan):
            made[now] = plan
            for step in plan.steps:
                homes[int(step.key.client[1:])] = int(step.target[1:])
            loop.moved(now, plan.steps)
            loop.ended(now, plan)
    return made


def test_a_broker_is_relieved_then_levelled_with_others_and_that_is_all():
    """To level bytes with the same clients would undo it."""
    loop, homes = Loop(Settings(messages=LIMIT, budget=1.0)), HOMES.copy()

    made = played(loop, KINDS, homes, 600.0)

    first, second = made.values()
    assert list(made) == [5.0, 15.0]
    assert (first.policy, second.policy) == ("relieve", "trim")
    moved = [step.key for plan in (first, second) for step in plan.steps]
    assert len(set(moved)) == len(moved)
    assert all(verdict.helped for verdict in loop.verdicts)
    assert loop.verdicts[0].binding == pytest.approx(first.binding.predicted)
    view = fleet_of(KINDS, homes)
    assert view.load().cov < 0.15
    assert view.messages().per_broker.max() <= LIMIT
    assert loop.findings == []


def test_what_did_not_relieve_is_not_tried_again():
    """The broker says the same whoever has left: to drain it would not help either."""
    use = {f"b{row}": Usage(0.0, cores=each) for row, each in enumerate((0.95, 0.1, 0.1))}
    loop = Loop(Settings(budget=1.0, cool_s=1.0))

    made = played(loop, KINDS, HOMES.copy(), 600.0, use=use, cores=1.0)

    assert [plan.policy for plan in made.values()] == ["relieve"]
    assert [verdict.helped for verdict in loop.verdicts] == [False]
    again = Loop(Settings())
    again.remember(coding.decode(coding.encode(loop.memory(600.0)), Memory))
    assert again.memory(600.0) == loop.memory(600.0)


def test_the_rest_of_a_relief_goes_on_until_the_broker_has_room():
    loop = Loop(Settings(messages=LIMIT))
    plan = decide(chatty(), asked(aims={"limits": "message rate"}, messages=LIMIT))

    assert loop.still_helps(chatty(), plan, plan.steps)
    assert not loop.still_helps(fleet_of(KINDS, [1, 1, 0, 0, 0, 0, *HOMES[6:]]), plan, plan.steps[1:])


def test_what_was_binding_is_said_of_plans_that_level():
    plan = decide(fleet_of([SLEEPY] * 6, [0] * 6), asked())

    assert (plan.binding.resource, plan.binding.broker) == (LOAD, "b0")
    assert plan.binding.now == pytest.approx(3.0)
    assert plan.binding.predicted == pytest.approx(1.0)


@st.composite
def fleets(draw):
    brokers = draw(st.integers(1, 4))
    clients = draw(st.integers(1, 12))
    kinds = [
        (draw(st.floats(0.0, 100.0)), draw(st.floats(1.0, 1000.0))) for _ in range(clients)
    ]  # fmt: skip
    homes = [draw(st.integers(0, brokers - 1)) for _ in range(clients)]
    use = {
        f"b{row}": Usage(
            0.0, messages=draw(st.floats(0.0, 500.0)), cores=draw(st.floats(0.0, 1.0)),
            processing=draw(st.floats(0.0, 1.0)), memory=draw(st.floats(0.0, 1e9)),
        )
        for row in range(brokers)
    }  # fmt: skip
    return fleet_of(kinds, homes, brokers, use=use, cores=1.0, memory=1e9, bandwidth=draw(st.floats(1.0, 1e6)))


@settings(max_examples=60, deadline=None)
@given(view=fleets(), seed=st.integers(0, 9), most=st.integers(0, 12))
def test_reliefs_keep_what_they_promise(view, seed, most):
    limits = resources(view, 0.85, 300.0)
    assert [each.name for each in limits] == ["bandwidth", "cores", "memory", "message rate"]
    held = [key for row, key in enumerate(view.keys) if (row + seed) % 3 == 0]
    for resource in limits:
        assert forecast(view, resource, view.current) == pytest.approx(resource.use)
        full = {row for row, share in enumerate(resource.share()) if share > resource.allowed}
        home, movers = relief(view, limits, resource.name, held, most)
        assert len(set(movers.tolist())) == len(movers) <= most
        assert set(np.flatnonzero(home != view.current).tolist()) == set(movers.tolist())
        for row in movers.tolist():
            assert view.keys[row] not in held
            assert int(view.current[row]) in full
            assert int(home[row]) not in full


@settings(max_examples=60, deadline=None)
@given(view=fleets(), relieve=st.sampled_from(["", "bandwidth", "cores", "memory", "message rate"]))
def test_no_plan_fills_a_broker_too_much_that_was_not_so(view, relieve):
    question = asked(aims={"limits": relieve} if relieve else {}, messages=300.0)
    made = decide(view, question)
    assert decide(view, question) == made
    if not isinstance(made, Plan):
        return
    then = view.placed({step.key: step.target for step in made.steps})
    assert too_full(view, resources(view, 0.85, 300.0), then) == []


def test_the_rest_of_a_plan_that_levels_is_not_dropped_when_nobody_is_full_any_more():
    view = fleet_of([CHATTY] * 9, [0] * 9)
    plan = decide(view, asked(aims={"limits": "message rate"}, messages=LIMIT))
    half = fleet_of([CHATTY] * 9, [0] * 5 + [1] * 2 + [2] * 2)

    assert (plan.policy, plan.binding.resource) == ("trim", "message rate")
    assert Loop(Settings(messages=2 * LIMIT)).still_helps(half, plan, [Step.of(Key("client", "", "c0"), "b0", "b1")])
