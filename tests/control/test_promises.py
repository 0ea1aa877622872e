"""Latency bounds in the loop: misses are predicted, topics move until none is left; later goals break none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.control.decide import NoPlan, decide
from trimtab.control.goals.promises import LATENCY, Promises
from trimtab.control.hosting import Hosting, latency_model
from trimtab.control.loop import Loop
from trimtab.control.settings import Settings
from trimtab.control.speeds import at_profile_speed
from trimtab.control.view import View
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.plans import Plan, Question
from trimtab.model.hardware import PAPER, PLAIN
from trimtab.model.ids import Ids
from trimtab.model.key import Key, RoutingTable
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot, Usage
from trimtab.predict.queueing import Queueing
from trimtab.predict.sets import Sets

CORES = 2.0
NONE = np.nan


def processed(rates, brokers, *, ms=20.0, bound=200.0, names=3, units="topic", at=0.0, p90_ms=None, recent=None,
              **columns):  # fmt: skip
    """Topics with a processor, each with a publisher and a subscriber of its own; ``brokers`` says where they are."""
    count = len(rates)
    there = [f"b{row}" for row in range(names)]
    rows = np.arange(count)
    links = Links(
        np.concatenate([rows, rows]), np.concatenate([rows, count + rows]), np.repeat([PUB, SUB], count).astype(np.int8)
    )
    workload = Workload(
        Topics(
            Ids.numbered("t", count), np.array(rates, float), np.full(count, 100.0),
            processing_ms=np.broadcast_to(ms, count), latency_ms=np.broadcast_to(bound, count),
        ),
        Clients(Ids.numbered("c", 2 * count)), Brokers(Ids(there), cores=np.full(names, CORES), **columns), links,
    )  # fmt: skip
    keys = {Key("client", "", f"c{row}"): f"b{brokers[row % count]}" for row in range(2 * count)}
    if units == "topic":
        keys = dict.fromkeys(keys, "b0") | {Key("topic", f"t{k}", ""): f"b{broker}" for k, broker in enumerate(brokers)}
    snapshot = Snapshot(at, workload, {name: Usage(1.0) for name in there}, p90_ms=p90_ms, recent=recent)
    return View.of(snapshot, RoutingTable({f"t{k}": units for k in range(count)}, keys), there)


def asked(**more):
    return Question(**({"number": 1, "at": 0.0, "reasons": ("late",), "policy": "trim", "seed": 1, "gain": 0.1,
                        "most": 1000, "aims": {"promises": LATENCY}, "overload": 0.85} | more))  # fmt: skip


def hosting(view, headroom=0.1):
    return Hosting.of(view, latency_model({}), headroom)


def test_a_hosting_predicts_what_the_model_predicts_for_each_broker():
    view = processed([10.0, 20.0, 5.0], [0, 0, 2], ms=[10.0, 30.0, 20.0])
    there = hosting(view)
    model = Queueing(PLAIN.scaled(cores=CORES))

    together = model.p90_ms(Sets.of([[0, 1]], np.array([10.0, 20.0]), np.array([10.0, 30.0])))
    alone = model.p90_ms(Sets.of([[0]], np.array([5.0]), np.array([20.0])))

    p90 = there.predicted(there.rate, range(3))[0]
    assert np.allclose(p90[0, :2], together)
    assert np.isclose(p90[2, 2], alone[0])
    assert np.isnan(p90[1]).all()


def test_copies_for_subscribers_count_where_most_of_them_are():
    """A topic that is placed as a whole sends all copies from its broker, others at the homes of their subscribers."""
    for units, copies in (("topic", 3000.0), ("client", 2000.0)):
        view = with_subscriptions(processed([10.0], [0], ms=10.0, units=units), 2000.0, 1000.0)
        there = Hosting.of(view, Queueing(PAPER), 0.1)
        model = Queueing(PAPER.scaled(cores=CORES))

        expected = model.p90_ms(Sets(np.array([0, 1]), [10.0], [10.0], [copies]))

        assert there.subscribers.tolist() == [copies]
        assert there.predicted(there.rate, range(3))[0][0] == pytest.approx(expected)


def with_subscriptions(view, *weights):
    """The first topic with these numbers of subscriptions, of clients at b0, b1, ..."""
    workload = view.snapshot.workload
    names = [f"s{row}" for row in range(len(weights))]
    clients = Clients(Ids([*workload.clients.ids, *names]))
    old, many = workload.links, len(weights)
    kept = np.flatnonzero((old.topic != 0) | (old.role == PUB))
    links = Links(
        np.concatenate([old.topic[kept], np.zeros(many)]),
        np.concatenate([old.client[kept], len(workload.clients) + np.arange(many)]),
        np.concatenate([old.role[kept], np.full(many, SUB)]), np.concatenate([np.ones(len(kept)), weights]),
    )  # fmt: skip
    homes = {Key("client", "", name): f"b{row}" for row, name in enumerate(names)}
    routing = replace(view.routing, brokers=dict(view.routing.brokers) | homes)
    snapshot = replace(view.snapshot, workload=replace(workload, clients=clients, links=links))
    return View.of(snapshot, routing, list(view.brokers))


def test_a_slow_broker_is_predicted_to_be_slow():
    view = processed([10.0, 10.0], [0, 1], ms=10.0, cpu_speed=np.array([0.5, 1.0, 2.0]))
    there = hosting(view)

    p90, use = there.predicted(there.rate, range(3))

    assert use[0, 0] == pytest.approx(2.0 * use[1, 1])
    assert p90[0, 0] > 1.5 * p90[1, 1]
    moved = view.placed({Key("topic", "t0", ""): "b2"})
    assert there.predicted(there.rates(moved), range(3))[1][2, 0] == pytest.approx(0.5 * use[1, 1])


def test_cpu_times_are_measured_at_the_speed_of_the_brokers_and_counted_at_that_of_the_profile():
    """A message that takes 10 ms on the profile's hardware takes 20 ms at b0, which is half as fast, and 5 ms at b2."""
    speed = np.array([0.5, 1.0, 2.0])
    for units in ("topic", "client"):
        view = processed([10.0, 10.0, 10.0], [0, 1, 2], ms=10.0 / speed, units=units)

        topics = at_profile_speed(view.snapshot.workload, view.routing, speed)

        assert topics.processing_ms == pytest.approx([10.0, 10.0, 10.0])


def test_a_topic_that_brokers_of_unequal_speed_process_has_the_mean_time_of_its_messages():
    speed, workload = np.array([0.5, 1.0, 2.0]), processed([9.0], [0], ms=1.0, units="client").snapshot.workload
    clients, links = Clients(Ids(["c0", "c1", "c2"])), Links([0, 0, 0], [0, 1, 2], [PUB] * 3, [0.5, 0.25, 0.25])
    homes = RoutingTable({}, {Key("client", "", f"c{row}"): f"b{row}" for row in range(3)})
    measured = 0.5 * 2.0 + 0.25 * 1.0 + 0.25 * 0.5  # ms

    topics = replace(workload.topics, processing_ms=[measured])

    mixed = replace(workload, topics=topics, clients=clients, links=links)
    assert at_profile_speed(mixed, homes, speed).processing_ms == pytest.approx([1.0])
    unplaced = at_profile_speed(mixed, RoutingTable({}, {}), speed)
    assert unplaced.processing_ms == pytest.approx([measured])


def test_a_key_takes_its_processing_along():
    view = processed([10.0, 20.0], [0, 1])
    there = hosting(view)

    assert there.rates(view.current).tolist() == there.rate.tolist()
    moved = there.rates(view.placed({Key("topic", "t1", ""): "b2"}))
    assert moved.tolist() == [[10.0, 0.0], [0.0, 0.0], [0.0, 20.0]]


def test_publishers_of_a_topic_placed_by_client_split_its_processing():
    view = processed([10.0, 20.0], [0, 1], units="client")
    there = hosting(view)

    assert there.rate.tolist() == [[10.0, 0.0], [0.0, 20.0], [0.0, 0.0]]
    moved = there.rates(view.placed({Key("client", "", "c0"): "b2"}))
    assert moved.tolist() == [[0.0, 0.0], [0.0, 20.0], [10.0, 0.0]]


def test_topics_without_a_bound_are_no_promise():
    view = processed([45.0] * 6, [0] * 6, bound=NONE)

    assert list(Promises().find(view, Settings())) == []
    assert Promises().accept(view, view.current, asked()) == ""


def test_an_expected_miss_names_the_topic_the_bound_and_the_broker():
    (finding,) = Promises().find(processed([30.0] * 5, [0] * 5), Settings())

    assert "topic 't0' is expected to miss its bound of 200 ms at b0" in finding.text
    assert finding.aim == LATENCY
    assert finding.broker == "b0"


def test_a_topic_too_much_for_any_broker_says_what_would_help_and_moves_nothing():
    view = processed([60.0, 1.0], [0, 0])
    (finding,) = Promises().find(view, Settings())

    assert finding.aim == ""
    assert "split the topic" in finding.text
    assert isinstance(decide(view, asked(aims={}, alpha=9.0, gain=9.0)), NoPlan)


def test_a_bound_below_what_an_empty_broker_takes_is_said():
    (finding,) = Promises().find(processed([1.0, 1.0], [0, 1], bound=np.array([10.0, 200.0])), Settings())

    assert finding.aim == ""
    assert "topic 't0' is expected to miss its bound of 10 ms at b0" in finding.text
    assert "even an empty broker takes 26 ms: raise the bound" in finding.text


def test_topics_that_strain_a_broker_go_where_there_is_room():
    view = processed([30.0] * 5, [0] * 5)
    plan = decide(view, asked(gain=9.0))  # nothing is worth it for evenness

    assert isinstance(plan, Plan)
    assert plan.goal == "promises"
    assert plan.binding.resource == LATENCY
    assert plan.binding.now > 1.0 >= plan.binding.predicted
    then = view.placed({step.key: step.target for step in plan.steps})
    there = hosting(view)
    assert there.missed(there.rates(then)) == []
    assert len(plan.steps) < 5  # not everything moves


def test_without_room_anywhere_nothing_moves_and_the_reason_says_so():
    view = processed([30.0] * 9, [0, 0, 0, 1, 1, 1, 2, 2, 2], ms=29.0, bound=60.0)
    assert hosting(view).missed(hosting(view).rate)

    decision = decide(view, asked(alpha=9.0, gain=9.0))

    assert isinstance(decision, NoPlan)
    assert "add a broker" in decision.why


def test_evenness_may_not_break_a_bound():
    """Many bytes at b1 would go to b0, whose processors are busy."""
    view = processed([30.0, 30.0, 28.0, 500.0, 500.0], [0, 0, 0, 1, 1], ms=[20.0, 20.0, 20.0, 0.0, 0.0], names=2)
    crowded = view.placed({Key("topic", "t3", ""): "b0"})
    busy = processed([30.0, 30.0, 28.0, 28.0, 28.0], [0, 0, 0, 1, 1], names=2)

    assert Promises().accept(view, crowded, asked()) == ""  # t3 has no processor
    refused = Promises().accept(busy, busy.placed({Key("topic", "t3", ""): "b0"}), asked())
    assert "is expected to miss its bound" in refused


def test_a_miss_that_is_there_already_vetoes_nothing_else():
    view = processed([60.0, 30.0, 30.0], [0, 0, 1])

    assert Promises().accept(view, view.placed({Key("topic", "t1", ""): "b2"}), asked()) == ""
    assert Promises().accept(view, view.placed({Key("topic", "t2", ""): "b0"}), asked())  # but it may not get worse


def test_a_broker_slower_than_predicted_counts_as_slow():
    """Other work on its machine: measured latencies are five times the predicted ones."""
    view = processed([10.0, 10.0, 10.0], [0, 0, 1])
    predicted = hosting(view).predicted(hosting(view).rate, range(3))[0]
    measured = np.array([10 * predicted[0, 0], 10 * predicted[0, 1], predicted[1, 2]])
    slow = processed([10.0, 10.0, 10.0], [0, 0, 1], p90_ms=measured)

    assert hosting(slow).slower.tolist() == pytest.approx([10.0, 1.0, 1.0])
    assert hosting(view).missed(hosting(view).rate) == []
    plan = decide(slow, asked())
    assert isinstance(plan, Plan)
    assert {step.source for step in plan.steps} == {"b0"}


def test_measurements_close_to_the_prediction_change_nothing():
    view = processed([10.0, 10.0], [0, 1])
    predicted = np.nanmax(hosting(view).predicted(hosting(view).rate, range(3))[0], axis=0)

    assert hosting(processed([10.0, 10.0], [0, 1], p90_ms=1.5 * predicted)).slower.tolist() == [1.0, 1.0, 1.0]
    assert hosting(processed([10.0, 10.0], [0, 1], p90_ms=np.full(2, np.nan))).slower.tolist() == [1.0, 1.0, 1.0]


@settings(max_examples=40)
@given(
    rates=st.lists(st.floats(0.5, 40.0), min_size=1, max_size=10),
    seed=st.integers(0, 99),
    units=st.sampled_from(["topic", "client"]),
    ms=st.floats(1.0, 25.0),
)
def test_a_plan_for_promises_never_breaks_another_bound(rates, seed, units, ms):
    brokers = np.random.default_rng(seed).integers(3, size=len(rates)).tolist()
    view = processed(rates, brokers, ms=ms, units=units)
    there = hosting(view)
    plan = decide(view, asked(alpha=9.0, gain=9.0))

    if isinstance(plan, NoPlan):
        return
    then = view.placed({step.key: step.target for step in plan.steps})
    before = {(miss.broker, miss.topic) for miss in there.missed(there.rate)}
    after = {(miss.broker, miss.topic) for miss in there.missed(there.rates(then))}
    assert after <= before
    assert len(after) < len(before)


def test_the_same_question_gives_the_same_plan_after_a_round_trip():
    view = processed([30.0] * 5, [0] * 5)
    question = asked(model=Queueing(PLAIN).as_json())

    again = coding.decode(coding.encode(question), Question)

    assert decide(view, again) == decide(view, question)


def test_the_loop_mends_a_miss_once_two_measurements_show_it_and_the_plan_counts_as_helpful():
    loop = Loop(Settings(alpha=9.0))
    placed = [0] * 5

    def look(now):
        return loop.step(now, processed([30.0] * 5, placed, at=now))

    assert look(0.0) is None
    plan = look(5.0)
    assert isinstance(plan, Plan)
    loop.began()
    for step in plan.steps:
        placed[int(step.topic[1:])] = int(step.target[1:])
    loop.moved(6.0, plan.steps)
    loop.ended(6.0, plan)

    assert look(10.0) is None
    assert look(20.0) is None
    assert [verdict.helped for verdict in loop.verdicts] == [True]
    assert loop.findings == []


def test_a_measured_miss_of_a_topic_without_a_processor_is_found_and_nothing_is_moved_for_it():
    late = processed([10.0, 10.0, 10.0], [0, 1, 2], ms=0.0, p90_ms=np.array([150.0, 260.0, np.nan]))
    kept = processed([10.0, 10.0, 10.0], [0, 1, 2], ms=0.0, p90_ms=np.array([150.0, 160.0, np.nan]))

    found = list(Promises().find(late, Settings()))

    assert [finding.text for finding in found] == [
        "topic 't1' has a measured p90 of 260 ms, above its bound of 200 ms; it has no processor, so no move is "
        "planned for it"
    ]
    assert found[0].aim == ""
    assert list(Promises().find(kept, Settings())) == []
    assert not list(Promises().propose(late, late.current, asked(aims={"promises": ""})))


def test_both_kinds_of_misses_are_found():
    view = processed([60.0, 10.0], [0, 1], ms=[20.0, 0.0], p90_ms=np.array([np.nan, 900.0]))

    texts = [finding.text for finding in Promises().find(view, Settings())]

    assert len(texts) == 2
    assert "topic 't1' has a measured p90 of 900 ms" in texts[0]
    assert "topic 't0' is expected to miss its bound" in texts[1]
