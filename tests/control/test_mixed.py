"""Fleets whose topics are placed as a whole, by client and by link: loads where they are, plans that mix them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.control.decide import NoPlan, decide
from trimtab.control.fleet_view import FleetState
from trimtab.control.goals.gathering import GATHER, SCATTERED, Gathering, scatter
from trimtab.control.loop import Loop
from trimtab.control.settings import Settings
from trimtab.control.view import View
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.entries import ClientEntry, LinkEntry, Topic
from trimtab.fleet.protocol.plans import Levels, Plan, Question, Routed, Step
from trimtab.lab.stability.cases import find
from trimtab.model.ids import Ids
from trimtab.model.key import Key, RoutingTable, counted
from trimtab.model.placement import UNITS
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot, Usage, unpack
from trimtab.place.registry import policies

ANY_POLICY = [
    name for name in policies("client") if name.rpartition("/")[2] not in ("nearest", "otos", "otos-centroid", "reloc")
]


def topic(name):
    return Key("topic", name, "")


def client(name):
    return Key("client", "", name)


def whole_topics(rates, brokers, at=0.0, subscribers=2, names=3, usage=None, **columns):
    """Topics placed as a whole, each with one publisher and as many subscribers; ``brokers`` says where."""
    count = len(rates)
    links = [(k, 0, PUB) for k in range(count)] + [(k, 1 + i, SUB) for k in range(count) for i in range(subscribers)]
    rows = np.array(links)
    there = [f"b{row}" for row in range(names)]
    workload = Workload(
        Topics(Ids.numbered("t", count), np.array(rates, float), np.ones(count), **columns),
        Clients(Ids.numbered("c", 1 + subscribers)), Brokers(Ids(there)), Links(rows[:, 0], rows[:, 1], rows[:, 2]),
    )  # fmt: skip
    keys = {topic(f"t{k}"): f"b{broker}" for k, broker in enumerate(brokers)}
    keys |= {client(f"c{i}"): "b0" for i in range(1 + subscribers)}
    routing = RoutingTable({f"t{k}": "topic" for k in range(count)}, keys)
    return View.of(Snapshot(at, workload, usage or {}), routing, there)


def asked(**more):
    return Question(**({"number": 1, "at": 0.0, "reasons": ("uneven",), "policy": "trim", "seed": 1, "gain": 0.1,
                        "most": 1000} | more))  # fmt: skip


def test_a_whole_topic_is_charged_to_the_broker_that_hosts_it():
    """Not to the homes of its subscribers, which are all at b0."""
    view = whole_topics([10.0, 20.0], [1, 2])

    assert view.load().per_broker.tolist() == [0.0, 30.0, 60.0]  # one copy in, two out


def test_publications_of_a_processed_topic_cross_the_server_twice():
    view = whole_topics([10.0], [1], out_rate=[4.0], out_bytes=[1.0], relayed=[1.0])

    assert view.load().per_broker.tolist() == [0.0, 10.0 + 10.0 + 4.0 + 2 * 4.0, 0.0]


def test_topics_are_levelled_like_clients():
    view = whole_topics([8, 4, 4, 2, 2, 2, 1, 1], [0] * 8)
    plan = decide(view, asked())

    assert isinstance(plan, Plan)
    assert {step.key.unit for step in plan.steps} == {"topic"}
    assert plan.predicted.spread < 0.1
    after = RoutingTable(view.routing.units, view.routing.brokers | {step.key: step.target for step in plan.steps})
    then = View.of(view.snapshot, after, list(view.brokers))
    assert Levels.of(then.load()).spread == pytest.approx(plan.predicted.spread)


def test_lost_topics_go_where_there_is_room():
    view = whole_topics([8, 4, 4], [3, 1, 2])  # there is no b3
    plan = decide(view, asked(only_lost=True))

    assert [(str(step.key), step.source, step.target) for step in plan.steps] == [("topic t0", "", "b0")]


def test_processors_move_with_their_topics():
    """A broker short of cores gives up a topic with a processor, and has the cores back."""
    usage = {"b0": Usage(1.0, cores=0.1, processing=0.9), "b1": Usage(1.0, cores=0.1), "b2": Usage(1.0, cores=0.1)}
    view = whole_topics([10.0] * 6, [0, 0, 1, 1, 2, 2], usage=usage, processing_ms=[45.0, 45.0, 0, 0, 0, 0])
    workload = view.snapshot.workload
    limited = Workload(
        workload.topics, workload.clients, Brokers(workload.brokers.ids, cores=np.ones(3)), workload.links
    )
    view = View.of(Snapshot(0.0, limited, usage), view.routing, list(view.brokers))

    assert view.processing[view.rows[topic("t0")]] == pytest.approx(0.45)
    plan = decide(view, asked(aims={"limits": "cores"}, overload=0.85))

    assert [str(step.key) for step in plan.steps] in (["topic t0"], ["topic t1"])
    assert plan.binding.predicted == pytest.approx(0.45 + 0.1, abs=0.06)


def test_plain_nats_clients_count_where_they_are():
    workload = Workload(
        Topics(Ids(["t"]), [10.0]), Clients(Ids(["ann", "stock-b1"])), Brokers(Ids(["b0", "b1"])),
        Links([0, 0, 0], [0, 0, 1], [PUB, SUB, SUB], [1.0, 1.0, 3.0]),
    )  # fmt: skip
    routing = RoutingTable({"t": "topic"}, {topic("t"): "b0", client("ann"): "b0"})
    view = View.of(Snapshot(0.0, workload), routing, ["b0", "b1"])

    assert view.load().per_broker.tolist() == [10.0 + 10.0 + 10.0, 10.0 + 30.0]
    moved = view.load(view.placed({topic("t"): "b1"})).per_broker
    assert moved.tolist() == [0.0, 10.0 + 40.0]


@st.composite
def mixed(draw):
    topics, clients, brokers = draw(st.integers(1, 6)), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    units = [draw(st.sampled_from(UNITS)) for _ in range(topics)]
    pairs = [(k, i, role) for k in range(topics) for i in range(clients) for role in (PUB, SUB)]
    links = np.array(draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1, max_size=20)), np.int32)
    rate = np.array([draw(st.floats(0.0, 100.0)) for _ in range(topics)])
    keys = {client(f"c{i}") for i in range(clients)}
    keys |= {Key.of(units[k], f"t{k}", f"c{i}") for k, i, _ in links.tolist()}
    where = {key: f"b{draw(st.integers(0, brokers))}" for key in sorted(keys)}
    workload = Workload(
        Topics(Ids.numbered("t", topics), rate), Clients(Ids.numbered("c", clients)),
        Brokers(Ids.numbered("b", brokers)), Links(links[:, 0], links[:, 1], links[:, 2]),
    )  # fmt: skip
    routing = RoutingTable({f"t{k}": unit for k, unit in enumerate(units)}, where)
    alive = draw(st.sets(st.sampled_from([f"b{row}" for row in range(brokers + 1)]), min_size=1))
    return View.of(Snapshot(0.0, workload, units=routing.units), routing, alive)


@pytest.mark.parametrize("name", ANY_POLICY)
@settings(max_examples=25, deadline=None)
@given(view=mixed(), most=st.integers(0, 12), data=st.data())
def test_a_plan_for_a_mixed_fleet_keeps_to_its_limits(name, view, most, data):
    frozen = data.draw(st.sets(st.sampled_from(view.keys)))
    unfit = data.draw(st.sets(st.sampled_from(list(view.brokers))))
    question = asked(policy=name, most=most, frozen=tuple(sorted(frozen)), unfit=tuple(sorted(unfit)), gather=0.1)
    made = decide(view, question)

    again = coding.decode(coding.encode(Routed.of(view.routing)), Routed).table()
    kept = View.of(unpack(view.snapshot.pack()), again, list(view.brokers))
    assert decide(kept, coding.decode(coding.encode(question), Question)) == made
    if isinstance(made, NoPlan):
        assert made.why
        return
    moves = [step for step in made.steps if step.source]
    assert len(moves) <= most
    assert not frozen & {step.key for step in moves}
    assert len({step.key for step in made.steps}) == len(made.steps)
    open_ = set(view.brokers) - unfit or set(view.brokers)
    assert {step.target for step in made.steps} <= open_
    assert coding.decode(coding.encode(made), Plan) == made
    then = view.load(view.placed({step.key: step.target for step in made.steps}))
    assert Levels.of(then).spread == pytest.approx(made.predicted.spread)


def played(loop, brokers, rates, until, cordoned=(), begin=0.0):
    made = []
    for now in np.arange(begin, until, 5.0).tolist():
        plan = loop.step(now, whole_topics(rates, brokers, at=now), cordoned=cordoned)
        if isinstance(plan, Plan):
            made.append(plan)
            for step in plan.steps:
                if step.key.unit == "topic":
                    brokers[int(step.key.topic[1:])] = int(step.target[1:])
            loop.moved(now, plan.steps)
            loop.ended(now, plan)
    return made


def test_a_drained_broker_stays_drained():
    """It is cordoned: nothing goes back to it, and nobody finds it idle."""
    loop, brokers = Loop(Settings(budget=1.0)), [0] * 8

    first = played(loop, brokers, [2] * 8, 300.0, cordoned=["b2"])

    assert {step.target for plan in first for step in plan.steps} == {"b1"}
    assert sorted(brokers) == [0] * 4 + [1] * 4
    assert loop.findings == []
    (second,) = played(loop, brokers, [2] * 8, 600.0, begin=300.0)  # uncordoned
    assert {step.target for step in second.steps} == {"b2"}


def uneven():
    """Thirty topics that are uneven by a little more than 0.05, and less than 0.15."""
    brokers = [0] * 11 + [1] * 10 + [2] * 9
    assert 0.05 < whole_topics([2] * 30, brokers).load().cov < 0.15
    return brokers


@pytest.mark.parametrize("name", ANY_POLICY)
def test_every_policy_acts_by_the_operators_thresholds_and_knobs(name):
    """With alpha = 0.05 it is too uneven, and the policy is told so."""
    knobs = {"scheme": "sdm", "gamma": 0.02} if name == "client/multistage" else {}
    loop = Loop(Settings(policy=name, alpha=0.05, budget=1.0, gain=0.01, knobs=knobs))
    brokers = uneven()

    made = played(loop, brokers, [2] * 30, 60.0)

    if name == "client/random":  # which has no reason to be better
        return
    assert made
    assert whole_topics([2] * 30, brokers).load().cov <= 0.05


def test_with_the_usual_threshold_the_same_fleet_is_left_alone():
    brokers = uneven()

    assert played(Loop(Settings(policy="ldm", budget=1.0)), brokers, [2] * 30, 60.0) == []


def test_requests_of_clients_move_with_them():
    """A plan for many clients with little traffic must not count their requests at the broker that they leave."""
    rows = np.arange(6)
    workload = Workload(
        Topics(Ids.numbered("t", 6), np.full(6, 5.0)), Clients(Ids.numbered("c", 6)), Brokers(Ids(["b0", "b1"])),
        Links.subscriptions(rows, rows),
    )  # fmt: skip
    usage = {"b0": Usage(0.0, own=700.0, clients=600.0), "b1": Usage(0.0, own=100.0)}
    routing = RoutingTable.of_homes({f"c{row}": "b0" for row in range(6)})
    view = View.of(Snapshot(0.0, workload, usage), routing, ["b0", "b1"])

    half = view.load(view.placed({client(f"c{row}"): "b1" for row in range(3)}))
    plan = decide(view, asked(most=6))

    assert view.load().per_broker.tolist() == [760.0, 100.0]  # what brokers report of themselves, as long as all stay
    assert half.per_broker.tolist() == [430.0, 430.0]
    assert len(plan.steps) == 3
    assert plan.predicted.spread == pytest.approx(0.0)


def test_common_subscriptions_are_gathered_when_that_saves_enough():
    case = find("communities")(0)
    view = case.view(Snapshot(0.0, case.workload(case.rate)), case.home, np.ones(case.brokers, bool))
    (found,) = Gathering().find(view, Settings())
    assert found.kind == SCATTERED

    plan = decide(view, asked(most=len(view.keys), gather=0.1))

    assert plan.policy == GATHER
    then = view.placed({step.key: step.target for step in plan.steps})
    assert view.load(then).total < 0.8 * view.load().total
    assert scatter(view, then) < scatter(view) / 2
    assert isinstance(decide(view, asked(most=len(view.keys), gather=0.4)), NoPlan)


def test_a_saving_that_does_not_show_is_not_tried_again_at_once():
    case = find("communities")(0)
    view = case.view(Snapshot(0.0, case.workload(case.rate)), case.home, np.ones(case.brokers, bool))
    loop = Loop(Settings(budget=1.0, cool_s=1.0))
    plans = []
    for now in np.arange(0.0, 230.0, 5.0).tolist():  # nothing changes, whatever is moved
        seen = View.of(Snapshot(now, view.snapshot.workload), view.routing, list(view.brokers))
        plan = loop.step(now, seen)
        if isinstance(plan, Plan):
            plans.append(now)
            loop.ended(now, plan)

    assert len(plans) == 3  # after 60 s, and after twice that
    assert plans[2] - plans[1] > 1.5 * (plans[1] - plans[0])
    assert [each.helped for each in loop.verdicts] == [False] * len(loop.verdicts)


def test_what_the_keeper_knows_becomes_keys():
    topics = [
        Topic("t1", "b1"),
        Topic("t2", "b1", "client"),
        Topic("t3", "b1", "link"),
        Topic("kept", "b2", persistent=True),
    ]
    links = {name: LinkEntry("b1") for name in ("ann.t3", "ann.t2", "ann.gone")} | {"bob.t1": LinkEntry("")}
    clients = {"ann": ClientEntry("b2")}
    state = FleetState(["b1"], {}, {each.name: each for each in topics}, clients, links, {})

    assert state.waiting() == {"kept": "b2"}
    assert set(map(str, state.movable())) == {"client ann", "topic t1", "link t3 ann"}
    assert state.routing().carrier("t2", "ann") == "b2"


def test_keys_are_counted_in_words():
    keys = [topic("a"), topic("b"), client("c"), Key("link", "a", "c")]

    assert counted(keys) == "2 topics, 1 client and 1 link"
    assert counted(keys[:1]) == "1 topic"
    assert coding.decode(coding.encode(Step.of(keys[3], "b1", "b2")), Step).key == keys[3]
