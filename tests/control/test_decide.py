"""Decisions: worth it or not made, within their budget, the same again when asked again; for every client policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.strategies import workloads
from trimtab.control.decide import NoPlan, decide, warm_up
from trimtab.control.fleet_view import FleetState, informed
from trimtab.control.goals.limits import Limits
from trimtab.control.goals.served import settled
from trimtab.control.move_order import in_order
from trimtab.control.settings import Settings
from trimtab.control.verdict import worth_it
from trimtab.control.view import View
from trimtab.errors import BadInput, MissingColumn, UnknownName
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.entries import BrokerEntry, ClientEntry, Topic
from trimtab.fleet.protocol.plans import Levels, Plan, Question, Routed
from trimtab.model.ids import Ids
from trimtab.model.key import RoutingTable
from trimtab.model.network import Network
from trimtab.model.placement import UNPLACED
from trimtab.model.rtts import Rtts
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.observe.coordinates.coordinate import Coordinate
from trimtab.observe.snapshot import Snapshot, Usage, unpack
from trimtab.place.registry import policies

PLACES = ("client/nearest", "client/otos", "client/otos-centroid", "client/reloc")  # they need to know where people are
ANY_POLICY = [name for name in policies("client") if name not in PLACES]


def fleet(rates, brokers=3, bandwidth=None):
    """Everybody has a topic of his own."""
    rows = np.arange(len(rates), dtype=np.int32)
    return Workload(
        Topics(Ids.numbered("t", len(rates)), np.array(rates, float)), Clients(Ids.numbered("c", len(rates))),
        Brokers(Ids.numbered("b", brokers), bandwidth=bandwidth), Links.subscriptions(rows, rows),
    )  # fmt: skip


def view_of(rates, homes, brokers=3, alive=None, **more):
    snapshot = Snapshot(100.0, fleet(rates, brokers, **more))
    there = [f"b{at}" for at in (range(brokers) if alive is None else alive)]
    homes = {f"c{at}": f"b{home}" for at, home in enumerate(homes)}
    return View.of(snapshot, RoutingTable.of_homes(homes), there)


def asked(**more):
    return Question(**({"number": 1, "at": 100.0, "reasons": ("uneven",), "policy": "trim", "seed": 1, "gain": 0.1,
                        "most": 1000} | more))  # fmt: skip


@st.composite
def views(draw):
    load = draw(workloads(topics=8, clients=10, brokers=4))
    brokers = max(1, len(load.brokers))
    homes = {f"c{at}": f"b{draw(st.integers(0, brokers))}" for at in range(len(load.clients))}
    homes |= {f"new{at}": "b0" for at in range(draw(st.integers(0, 2)))}
    alive = draw(st.sets(st.sampled_from([f"b{at}" for at in range(brokers + 1)])))
    return View.of(Snapshot(0.0, load), RoutingTable.of_homes(homes), alive)


@pytest.mark.parametrize("name", ANY_POLICY)
@settings(max_examples=25, deadline=None)
@given(view=views(), most=st.integers(0, 12), data=st.data())
def test_a_plan_is_worth_it_and_keeps_to_its_limits(name, view, most, data):
    frozen = data.draw(st.sets(st.sampled_from(view.keys))) if view.keys else set()
    made = decide(view, asked(policy=name, most=most, frozen=tuple(sorted(frozen))))

    if not len(view.brokers):
        assert isinstance(made, NoPlan)
        return
    if isinstance(made, NoPlan):
        assert made.why
        return
    broker = dict(view.routing.brokers)
    moves = [each for each in made.steps if each.source]
    lost = [each for each in made.steps if not each.source]
    assert len(moves) <= most
    assert not frozen & {each.key for each in moves}
    assert len({each.key for each in made.steps}) == len(made.steps)
    assert all(broker[each.key] == each.source != each.target for each in moves)
    assert {each.key for each in lost} == {view.keys[row] for row in np.flatnonzero(view.current == UNPLACED).tolist()}
    base = Levels.of(view.load(settled(view)))
    if moves:
        assert worth_it(base, made.predicted, 0.1, 0.15)
    # What was predicted is what the judge says of the homes after it.
    after = RoutingTable(view.routing.units, broker | {each.key: each.target for each in made.steps})
    then = View.of(view.snapshot, after, list(view.brokers))
    assert then.load().levels == pytest.approx(view.load(then.current).levels)
    assert Levels.of(then.load()).spread == pytest.approx(made.predicted.spread)


@settings(max_examples=20, deadline=None)
@given(view=views())
def test_a_decision_can_be_replayed_from_what_was_kept_of_it(view):
    question = asked(most=5)
    kept = unpack(view.snapshot.pack()), coding.decode(coding.encode(question), Question)
    routing = coding.decode(coding.encode(Routed.of(view.routing)), Routed).table()
    again = View.of(kept[0], routing, list(view.brokers))

    assert decide(again, kept[1]) == decide(view, question)


def test_the_fewest_moves_off_the_fullest_come_first():
    view = view_of([8, 4, 2, 2, 1, 1], [0, 0, 0, 0, 0, 0])
    plan = decide(view, asked(most=1))

    assert isinstance(plan, Plan)
    assert len(plan.steps) == 1
    assert plan.left > 0
    assert plan.steps[0].source == "b0"


def test_nothing_is_planned_for_what_cannot_be_bettered():
    made = decide(view_of([100, 1, 1], [0, 1, 2]), asked())

    assert isinstance(made, NoPlan)
    assert made.why


def test_clients_of_a_dead_broker_go_where_there_is_room():
    made = decide(view_of([4, 4, 1, 1], [0, 0, 1, 1], alive=[1, 2]), asked(only_lost=True))

    assert isinstance(made, Plan)
    assert {(each.key.client, each.source) for each in made.steps} == {("c0", ""), ("c1", "")}
    assert made.predicted.max_load == 12.0  # one of them, and the two small ones; a copy in, a copy out of each
    assert not any(each.source for each in made.steps)


def test_nobody_is_sent_to_a_broker_that_is_unfit_and_nobody_leaves_it():
    view = view_of([4, 4, 4, 4, 1], [0, 0, 0, 0, 2])
    made = decide(view, asked(unfit=("b2",)))

    assert isinstance(made, Plan)
    assert {each.target for each in made.steps} == {"b1"}


def test_others_go_in_the_place_of_those_who_must_stay():
    """The policy does not know who has moved not long ago; without them, its answer is hardly half of one."""
    view = view_of([5, 4, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1], [0] * 15)
    first = decide(view, asked())
    held = tuple(step.key for step in first.steps)[: len(first.steps) // 2]

    made = decide(view, asked(frozen=held))

    assert isinstance(made, Plan)
    assert not {step.key for step in made.steps} & set(held)
    assert made.predicted.spread < 0.1


def test_a_policy_of_another_family_is_refused():
    with pytest.raises(BadInput, match="policies of client/, but 'link/gs' is one of link/"):
        decide(view_of([1], [0]), asked(policy="link/gs"))
    with pytest.raises(UnknownName, match="nope"):
        decide(view_of([1], [0]), asked(policy="nope"))


def test_a_broker_that_was_never_measured_counts_as_one_like_the_others():
    view = View.of(
        Snapshot(0.0, fleet([1, 1, 1, 1], 2, bandwidth=[10.0, 30.0])), 
        RoutingTable.of_homes({f"c{at}": "b0" for at in range(4)}), ["b0", "b1", "new"],
    )  # fmt: skip

    assert list(view.brokers) == ["b0", "b1", "new"]
    assert view.problem.bandwidth.tolist() == [10.0, 30.0, 20.0]


def test_what_brokers_say_is_used_only_when_all_of_them_do():
    snapshot = Snapshot(0.0, fleet([1, 1], 2), {"b0": Usage(5.0)})
    homes = RoutingTable.of_homes({"c0": "b0", "c1": "b1"})

    assert View.of(snapshot, homes, ["b0", "b1"]).measured() is None
    both = replace(snapshot, usage={"b0": Usage(5.0), "b1": Usage(1.0)})
    assert View.of(both, homes, ["b0", "b1"]).measured().per_broker.tolist() == [5.0, 1.0]


@settings(max_examples=30, deadline=None)
@given(view=views(), most=st.integers(0, 20), seed=st.integers(0, 9))
def test_the_order_has_every_mover_once(view, most, seed):
    if not len(view.brokers):
        return
    target = np.random.default_rng(seed).integers(len(view.brokers), size=len(view.keys)).astype(np.int32)
    chosen = in_order(view, target, most)
    movers = np.flatnonzero((view.current != target) & (view.current != UNPLACED))

    assert len(set(chosen.tolist())) == len(chosen) == min(most, len(movers))
    assert set(chosen.tolist()) <= set(movers.tolist())


def test_too_much_is_said_of_each_broker_and_of_all_of_them_together():
    """One of four is strong and the others are full: together they are not."""
    strong = view_of([60, 0.49, 0.49, 0.49], [0, 1, 2, 3], 4, bandwidth=[200.0, 1.0, 1.0, 1.0])
    full = view_of([9, 9, 9], [0, 1, 2], bandwidth=[20.0, 20.0, 20.0])

    (one,) = Limits().find(strong, Settings())
    (all_,) = Limits().find(full, Settings())

    assert str(one) == "b1, b2, b3 above 85% of bandwidth: 98% at most"
    assert str(all_).endswith("all brokers together are at 90%, so moving cannot mend it: add 1 like them")


def test_what_the_registry_knows_of_brokers_and_clients_is_in_the_question():
    snapshot = Snapshot(0.0, fleet([1, 1], 2))
    brokers = {
        name: BrokerEntry([], bandwidth=each, cores=2.0, position=(1.0, 2.0))
        for name, each in (("b0", 9.0), ("b1", None))
    }
    clients = {"c0": ClientEntry("b0", (3.0, 4.0)), "c1": ClientEntry("b0")}

    some = informed(snapshot, FleetState([], brokers, {}, clients, {}, {})).workload
    clients["c1"] = clients["c0"]
    every = informed(snapshot, FleetState([], brokers, {}, clients, {}, {})).workload

    assert (some.brokers.bandwidth, some.clients.lat) == (None, None)
    assert some.brokers.cores.tolist() == [2.0, 2.0]
    assert some.brokers.lon.tolist() == [2.0, 2.0]
    assert every.clients.lat.tolist() == [3.0, 3.0]


def test_brokers_that_declare_a_speed_have_it_in_the_question():
    brokers = {"b0": BrokerEntry([], cores=2.0, speed=0.5), "b1": BrokerEntry([], cores=2.0)}
    like_the_profile = {name: BrokerEntry([], cores=2.0) for name in brokers}
    snapshot = Snapshot(0.0, fleet([1, 1], 2))

    states = (FleetState([], each, {}, {}, {}, {}) for each in (brokers, like_the_profile))
    unequal, equal = (informed(snapshot, state).workload.brokers for state in states)

    assert unequal.cpu_speed.tolist() == [0.5, 1.0]
    assert equal.cpu_speed is None


def test_clients_are_in_the_network_where_their_gateway_is():
    measured = Snapshot(0.0, fleet([1, 1, 1], 3), gateway=np.array([1, -1, 2]), access_ms=np.array([4.0, np.nan, 1.0]))
    coordinates = {"b0": Coordinate((0.0, 0.0), 1.0), "b1": Coordinate((3.0, 4.0), 2.0), "b2": Coordinate((1.0,), 2.0)}
    state = FleetState([], {}, {}, {}, {}, {}, coordinates)

    known = informed(measured, state).workload
    rtt = Rtts([0], [0], [99.0])
    network = Network.of(replace(known, rtt=rtt))

    times = network.rtt_ms(np.arange(3), np.arange(3))
    assert times[0].tolist()[:2] == [99.0, 2.0 + 4.0 + 2.0]
    assert np.isnan(times[1:]).all()  # no gateway, and one of another dimension
    assert np.isnan(times[:, 2]).all()


@pytest.mark.parametrize("alive", [["b0", "b1", "b2"], ["b1"], ["b2", "b1", "new"]])
def test_a_view_keeps_what_is_known_of_the_network_of_the_brokers_that_are_alive(alive):
    names = {f"b{n}": Coordinate((10.0 * n,), 1.0) for n in range(3)}
    load = replace(fleet([1, 1, 1], 3), rtt=Rtts([0, 2], [0, 1], [7.0, 8.0]))
    snapshot = Snapshot(0.0, load, gateway=np.array([0, 1, 2]), access_ms=np.zeros(3))
    measured = informed(snapshot, FleetState([], {}, {}, {}, {}, {}, names))
    stored = unpack(measured.pack()).workload

    view = View.of(measured, RoutingTable.of_homes({f"c{n}": "b1" for n in range(3)}), alive)

    every = np.arange(3)
    before = Network.of(measured.workload).rtt_ms(every, every)
    assert np.array_equal(Network.of(stored).rtt_ms(every, every), before)
    for workload in (view.workload, view.problem.workload):
        rows = np.arange(len(view.brokers))
        times = Network.of(workload).rtt_ms(every, rows)
        for row, name in enumerate(view.brokers):
            expected = before[:, int(name[1:])] if name in names else np.full(3, np.nan)
            assert np.array_equal(times[:, row], expected, equal_nan=True)


def test_bounds_of_the_registry_are_in_the_question_and_private_topics_have_none():
    topics = {"t0": Topic("t0", "b0", latency_ms=200.0), "t1": Topic("t1", "b1")}
    state = FleetState(["b0", "b1"], {}, topics, {}, {}, {})
    measured = informed(Snapshot(0.0, fleet([1, 1], 2)), state)
    view = View.of(measured, state.routing(), state.alive)

    assert np.array_equal(view.workload.topics.latency_ms, [200.0, np.nan], equal_nan=True)
    assert np.isnan(view.problem.workload.topics.latency_ms[2:]).all()


@pytest.mark.parametrize("name", policies("client"))
def test_any_policy_can_be_compiled_before_it_is_needed(name):
    warm_up(name)


def test_a_policy_that_needs_places_says_what_is_missing():
    with pytest.raises(MissingColumn, match="lat"):
        decide(view_of([1, 2, 3], [0, 0, 0]), asked(policy="client/nearest"))


def test_a_broken_snapshot_is_refused():
    with pytest.raises(BadInput, match="not a snapshot"):
        unpack(b"PK nonsense")
