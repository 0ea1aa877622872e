"""Topics follow their clients: a topic whose clients are too far away moves near them, and nothing moves otherwise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.test_promises import hosting
from trimtab.control.decide import NoPlan, decide
from trimtab.control.goals.following import FAR
from trimtab.control.goals.promises import LATENCY, Promises
from trimtab.control.loop import Loop
from trimtab.control.network_latency import LATE_S, newest
from trimtab.control.plan_runner import PlanRunner
from trimtab.control.settings import Settings
from trimtab.control.view import View
from trimtab.fleet.protocol.plans import Plan, Question, Step
from trimtab.model.ids import Ids
from trimtab.model.key import Key, RoutingTable
from trimtab.model.rtts import Rtts
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.observe.best_brokers import AtBrokers
from trimtab.observe.snapshot import Snapshot, Usage, unpack

NEAR, AWAY = 2.0, 60.0  # round-trip times in ms: in a zone, and between zones
BOUND = 40.0


def zones(homes, places, *, brokers=4, bound=BOUND, ms=0.0, rate=10.0, at=0.0, cores=4.0, missed=None):
    """Topics with a publisher and a subscriber each. ``homes`` are the brokers of topics; ``places`` are the zones of
    the two clients of each topic."""
    count = len(homes)
    names = [f"b{row}" for row in range(brokers)]
    rows = np.arange(count)
    where = np.array(places).T.ravel()  # publishers, then subscribers
    times = np.where(where[:, None] == np.arange(brokers), NEAR, AWAY).reshape(2 * count, brokers)
    links = Links(
        np.concatenate([rows, rows]), np.arange(2 * count), np.repeat([PUB, SUB], count).astype(np.int8)
    )  # fmt: skip
    workload = Workload(
        Topics(Ids.numbered("t", count), np.full(count, rate), np.full(count, 100.0),
               processing_ms=np.broadcast_to(ms, count), latency_ms=np.broadcast_to(bound, count)),
        Clients(Ids.numbered("c", 2 * count)), Brokers(Ids(names), cores=np.full(brokers, cores)), links,
        Rtts.matrix(times),
    )  # fmt: skip
    keys = {Key("client", "", f"c{row}"): "b0" for row in range(2 * count)}
    keys |= {Key("topic", f"t{k}", ""): f"b{home}" for k, home in enumerate(homes)}
    usage = {name: Usage(1.0, messages=2.0 * rate * list(homes).count(row)) for row, name in enumerate(names)}
    snapshot = Snapshot(at, workload, usage, missed=missed or {})
    return View.of(snapshot, RoutingTable({f"t{k}": "topic" for k in range(count)}, keys), names)


def asked(**more):
    return Question(**({"number": 1, "at": 0.0, "reasons": ("far",), "policy": "trim", "seed": 1, "gain": 0.1,
                        "most": 1000, "aims": {"promises": FAR}, "overload": 0.85,
                        "resting": ("thrift", "evenness", "gathering")} | more))  # fmt: skip


def moves(decision):
    assert isinstance(decision, Plan), decision
    return {step.topic: step.target for step in decision.steps}


def test_latencies_of_both_legs_add_up_one_way():
    view = zones([0, 3], [(0, 1), (2, 2)])

    assert view.network.worst_ms.tolist() == [[31.0, 31.0, 60.0, 60.0], [60.0, 60.0, 2.0, 60.0]]
    assert view.network.violating.tolist() == [[0, 0, 1, 1], [1, 1, 0, 1]]
    assert view.network.at_home_ms.tolist() == [31.0, 60.0]


def test_a_topic_moves_to_its_clients_and_no_other_key_moves():
    decision = decide(zones([0, 3, 1], [(0, 1), (2, 2), (1, 1)]), asked())

    assert moves(decision) == {"t1": "b2"}


def test_the_finding_names_the_latency_and_the_best_broker():
    (finding,) = Promises().find(zones([0, 3], [(0, 1), (2, 2)]), Settings())

    assert (finding.kind, finding.aim, finding.certain) == (FAR, FAR, False)
    assert str(finding) == (
        "topic 't1' has a bound of 40 ms, but takes up to 60 ms through the network at b3; 2 ms at b2"
    )


def test_a_bound_that_no_broker_can_keep_names_the_best_possible_and_moves_nothing():
    view = zones([0], [(0, 1)], bound=20.0)
    (finding,) = Promises().find(view, Settings())

    assert finding.aim == ""
    assert str(finding) == (
        "topic 't0' has a bound of 20 ms, but takes up to 31 ms through the network at b0, and no broker is nearer "
        "to its clients"
    )
    assert list(Promises().propose(view, view.current, asked())) == ["no nearer broker has room for a topic whose "
                                                                     "clients are too far from its broker"]  # fmt: skip


def test_a_topic_out_of_bound_everywhere_goes_where_fewest_pairs_are():
    view = zones([2], [(0, 1)], bound=20.0)

    (finding,) = Promises().find(view, Settings())

    assert "31 ms at b0, the least of all brokers" in str(finding)
    assert moves(decide(view, asked())) == {"t0": "b0"}


def test_other_goals_do_not_move_a_topic_away_from_its_clients():
    view = zones([0, 3], [(0, 1), (2, 2)])
    then = view.placed({Key("topic", "t0", ""): "b2"})

    assert "t0" in Promises().accept(view, then, asked(aims={}))
    assert Promises().accept(view, view.placed({Key("topic", "t0", ""): "b1"}), asked(aims={})) == ""


def test_an_unknown_latency_makes_a_broker_no_target_and_its_topics_not_late():
    view = zones([0, 3], [(0, 1), (2, 2)], brokers=4)
    workload = view.snapshot.workload
    known = workload.rtt.broker != 2
    rtt = Rtts(workload.rtt.client[known], workload.rtt.broker[known], workload.rtt.rtt_ms[known])
    view = replace(view, snapshot=replace(view.snapshot, workload=replace(workload, rtt=rtt)))

    assert isinstance(decide(view, asked()), NoPlan)

    at_home = replace(view, current=np.where(view.current == 3, 2, view.current).astype(np.int32))
    assert at_home.network.topic.tolist() == [0]


def test_a_fleet_without_a_broker_that_is_alive_is_looked_at():
    view = zones([0, 3], [(0, 1), (2, 2)])
    dead = View.of(view.snapshot, view.routing, [])

    assert len(dead.network.topic) == 0
    assert list(Promises().find(dead, Settings())) == []


def test_a_topic_does_not_follow_to_a_broker_that_it_would_fill():
    """Also while another broker is fuller than that: 40 messages/s at b0, 100 at b3, at most 50."""
    homes, places = [1, 0, 0, *[3] * 5], [(0, 0)] * 3 + [(3, 3)] * 5

    assert isinstance(decide(zones(homes, places), asked(messages=50.0)), NoPlan)
    assert moves(decide(zones(homes, places), asked(messages=1000.0))) == {"t0": "b0"}


def test_the_relief_of_a_full_broker_keeps_topics_near_their_clients():
    """b1 is as near as b0, and the empty brokers b2 and b3 are too far."""
    view = zones([0] * 5, [(0, 1)] * 5)
    question = asked(messages=70.0, aims={"limits": "message rate"}, resting=("promises", "thrift", "evenness"))

    assert set(moves(decide(view, question)).values()) == {"b1"}


# Network and processing together.


def test_network_and_processing_add_up_to_the_promise():
    """40 ms through the network and 20 ms of processing are more than 50 ms, though each is less."""
    view = zones([0], [(1, 1)], bound=70.0, ms=20.0)
    there = hosting(view)

    (miss,) = there.missed(there.rate)

    assert miss.latency_ms > 70.0
    assert there.network[0, 0] == 60.0
    (finding,) = Promises().find(view, Settings())
    assert finding.aim == LATENCY
    assert "60 ms of it in the network" in str(finding)
    assert moves(decide(view, asked(aims={"promises": LATENCY}))) == {"t0": "b1"}


def test_a_near_broker_that_is_busy_is_passed_over_for_one_that_keeps_the_bound():
    """Of three topics at the near broker one must go; the bound allows a broker that is further away, but not busy."""
    view = zones([0, 0, 0], [(0, 0)] * 3, bound=200.0, ms=35.0, rate=10.0, brokers=2, cores=1.0)

    decision = decide(view, asked(aims={"promises": LATENCY}))

    assert set(moves(decision).values()) == {"b1"}
    then = view.placed({step.key: step.target for step in decision.steps})
    there = hosting(view)
    assert not there.missed(there.rates(then))


def test_the_networks_share_of_a_measured_latency_is_not_taken_for_a_slow_broker():
    view = zones([0, 0], [(1, 1), (0, 0)], bound=1000.0, ms=5.0)
    measured = replace(view.snapshot, p90_ms=np.array([67.0, 7.0]))
    there = hosting(View.of(measured, view.routing, list(view.brokers)))

    assert there.measured_ms.tolist() == [7.0, 5.0]
    assert there.slower.tolist() == [1.0] * 4


@given(data=st.data())
def test_every_move_keeps_a_bound_or_leaves_fewer_pairs_out_of_it(data):
    count, brokers = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    zone = st.integers(0, brokers - 1)
    homes = data.draw(st.lists(zone, min_size=count, max_size=count))
    places = data.draw(st.lists(st.tuples(zone, zone), min_size=count, max_size=count))
    view = zones(homes, places, brokers=brokers, bound=data.draw(st.sampled_from([1.0, 20.0, 40.0, 100.0])))

    decision = decide(view, asked())

    network = view.network
    for step in decision.steps if isinstance(decision, Plan) else ():
        row = int(step.topic[1:])
        source, target = int(step.source[1:]), int(step.target[1:])
        assert network.worst_ms[row, source] > view.snapshot.workload.topics.latency_ms[row]
        assert network.violating[row, target] <= network.violating[row, source]
        assert network.worst_ms[row, target] < network.worst_ms[row, source] - 2.0 or (
            network.violating[row, target] < network.violating[row, source]
        )
    if isinstance(decision, Plan):
        then = View.of(view.snapshot, moved(view, decision), list(view.brokers))
        again = decide(then, asked())
        assert isinstance(again, NoPlan)  # nothing moves twice


def moved(view, plan):
    return replace(view.routing, brokers={**view.routing.brokers, **{step.key: step.target for step in plan.steps}})


# Reports of brokers.

REPORT = AtBrokers("b0", 1, {"b0": (60.0, 1), "b1": (2.0, 0), "b2": (60.0, 1), "b3": (60.0, 1)}, at=1.0)


def test_a_report_overrides_the_positions_of_the_measurement():
    """The clients of t0 were in zone 0 when the fleet was measured; now its broker reports that they are in zone 1."""
    view = zones([0, 2], [(0, 0), (2, 2)], missed={"t0": REPORT})

    (finding,) = Promises().find(view, Settings())

    assert finding.certain
    assert moves(decide(view, asked())) == {"t0": "b1"}


def test_after_the_move_the_report_says_that_the_topic_is_well_placed():
    """The measurement does not know of the clients' move yet; it must not bring the topic back."""
    view = zones([1, 2], [(0, 0), (2, 2)], missed={"t0": REPORT})

    assert list(Promises().find(view, Settings())) == []


def test_a_report_that_a_bound_is_kept_again_ends_the_matter():
    """The clients have come back, but the measurement still has them in the other zone."""
    kept = AtBrokers("b0", 0, {"b0": (2.0, 0), "b1": (60.0, 1)}, at=2.0)
    view = zones([0, 2], [(1, 1), (2, 2)], missed={"t0": kept})

    assert list(Promises().find(view, Settings())) == []


def test_a_report_is_used_until_measurements_contain_what_it_says():
    reports = {"t0": REPORT}

    assert newest(reports, REPORT.at + LATE_S - 0.1) == reports
    assert newest(reports, REPORT.at + LATE_S) == {}


def test_reports_are_kept_in_the_record_of_a_decision():
    snapshot = zones([0], [(0, 0)], missed={"t0": REPORT}).snapshot

    assert unpack(snapshot.pack()).missed == {"t0": REPORT}


# In the loop.


def far_away(at=1.0, home=0):
    return zones([home, 2], [(0, 0), (2, 2)], at=at, missed={"t0": REPORT})


def test_a_reported_topic_moves_at_once_and_beside_a_plan_under_way():
    loop = Loop(Settings())

    decision = loop.step(1.0, far_away(), busy=True)

    assert moves(decision) == {"t0": "b1"}
    assert decision.aside
    assert decision.goal == "promises"
    assert decide(far_away(), loop.question) == decision  # it can be replayed


def test_a_topic_whose_move_is_under_way_is_not_moved_again():
    loop = Loop(Settings())

    assert loop.step(1.0, far_away(), moving=[Key("topic", "t0", "")]) is None


def test_a_move_under_way_and_one_without_a_remedy_do_not_delay_other_topics():
    full = AtBrokers("b2", 1, {"b2": (60.0, 1), "b3": (2.0, 0)}, at=1.0)
    loop = Loop(Settings())
    loop.step(1.0, zones([0, 2], [(0, 0), (2, 2)], at=1.0, missed={"t0": REPORT}), moving=[Key("topic", "t0", "")])

    both = zones([0, 2], [(0, 0), (2, 2)], at=1.0, missed={"t0": REPORT, "t1": full})

    assert moves(loop.step(1.3, both, moving=[Key("topic", "t0", "")])) == {"t1": "b3"}


def test_latencies_of_before_a_move_say_nothing_about_the_brokers_it_has_changed():
    runner, view = PlanRunner(Settings()), zones([0, 1], [(0, 0), (1, 1)], ms=5.0, at=1.0)
    measured = replace(view, snapshot=replace(view.snapshot, p90_ms=np.array([900.0, 7.0])))
    runner.loop.followed(0.5, Step.of(Key("topic", "t0", ""), "b3", "b0"))

    runner.look(1.0, measured)

    assert runner.loop.view.snapshot.p90_ms.tolist() == [pytest.approx(np.nan, nan_ok=True), 7.0]


def test_while_paused_no_topic_follows():
    assert Loop(Settings()).step(1.0, far_away(), paused=True) is None


def test_a_topic_that_moved_seconds_ago_follows_its_clients_again():
    loop = Loop(Settings())
    first = loop.step(1.0, far_away())
    loop.followed(1.5, first.steps[0])
    back = AtBrokers("b1", 1, {"b0": (2.0, 0), "b1": (60.0, 1)}, at=6.0)

    view = zones([1, 2], [(0, 0), (2, 2)], at=5.0, missed={"t0": back})

    assert moves(loop.step(6.0, view)) == {"t0": "b0"}


def test_without_a_report_the_measurements_must_agree_first():
    loop = Loop(Settings())

    assert loop.step(1.0, zones([3], [(0, 0)], at=1.0)) is None
    assert moves(loop.step(6.0, zones([3], [(0, 0)], at=6.0))) == {"t0": "b0"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_nothing_moves_while_nobody_moves_though_latencies_jitter(seed):
    """5 % of jitter in every measurement, for ten minutes."""
    random = np.random.default_rng(seed)
    homes = np.arange(16) % 4
    loop, first = Loop(Settings(alpha=10.0)), zones(homes, [(zone, (zone + 1) % 4) for zone in homes])
    times = first.snapshot.workload.rtt
    for at in np.arange(0.0, 600.0, 5.0):
        noisy = Rtts(times.client, times.broker, times.rtt_ms * random.uniform(0.95, 1.05, len(times)))
        workload = replace(first.snapshot.workload, rtt=noisy)
        view = View.of(replace(first.snapshot, at=at, workload=workload), first.routing, list(first.brokers))

        assert not isinstance(loop.step(at, view), Plan)
