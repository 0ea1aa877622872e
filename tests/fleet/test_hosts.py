"""Hosts of new topics: every topic stays inside its bound by prediction, measured or expected, wherever it was put."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fleet import RunningFleet
from helpers.waiting import until
from trimtab.errors import BadInput, BadKnob, UnknownName
from trimtab.fleet.broker.capacity import Capacity
from trimtab.fleet.hub.hosts import RESERVE, SPAN_S, Choice, Hosts, Work
from trimtab.fleet.hub.settings import HubSettings
from trimtab.fleet.protocol.admin_verbs import ListTopics
from trimtab.fleet.protocol.entries import BrokerEntry, Topic
from trimtab.fleet.protocol.hosting import Expected, HostingRules
from trimtab.fleet.protocol.registry import Registry, broker_entry, topic_entry
from trimtab.fleet.sdk import arguments
from trimtab.observe.report import BrokerReport, TopicReport
from trimtab.predict.sets import Sets
from trimtab.predict.strain import model_of, strains

BURN = "trimtab.fleet.broker.processing.burn:burn"
BROKERS = ("b1", "b2", "b3")


def topic(name, broker="", bound=200.0, processor=BURN, **more):
    return Topic(name, broker, processor=processor, latency_ms=bound, **more)


def hosts_of(*topics, cores=1.0):
    registry = Registry()
    for at, name in enumerate(BROKERS, 1):
        registry.apply(broker_entry(name), BrokerEntry([], cores=cores), at)
    for at, each in enumerate(topics, 10):
        registry.apply(topic_entry(each.name), each, at)
    return Hosts(registry)


def run_for(hosts, seconds, traffic, begin=0.0):
    """``traffic``: (topic, broker) -> messages/s and CPU time of a message in ms."""
    for second in range(1, seconds + 1):
        for broker in BROKERS:
            topics = {
                name: TopicReport(processed=rate, busy_s=rate * ms / 1000.0)
                for (name, at), (rate, ms) in traffic.items()
                if at == broker
            }
            hosts.reported(begin + second, BrokerReport(broker, begin + second, 1.0, topics=topics))
    return begin + seconds


def fitting(hosts, now, work, rules=HostingRules()):  # noqa: B008  frozen
    return list(asyncio.run(hosts.fitting(now, work, BROKERS, rules)))


def test_rates_and_times_are_those_that_brokers_report():
    hosts = hosts_of(topic("cam", "b1"))
    now = run_for(hosts, 27, {("cam", "b1"): (12, 20.0)})

    [(key, work)] = hosts.work(now).items()

    assert key == ("cam", "b1")
    assert work.rate == pytest.approx(12.0, rel=0.1)
    assert work.ms == pytest.approx(20.0)
    assert hosts.work(now + 3 * SPAN_S) == {}  # nothing was processed since


def test_a_topic_measured_for_three_seconds_has_its_whole_rate():
    hosts = hosts_of(topic("cam", "b1"))
    now = run_for(hosts, 3, {("cam", "b1"): (12, 20.0)}, begin=1007.0)

    assert hosts.work(now)["cam", "b1"].rate == pytest.approx(18.0)  # the last second may not be reported yet
    assert hosts.work(now + 1.0)["cam", "b1"].rate == pytest.approx(12.0)


def test_a_topic_that_moved_counts_at_its_new_host():
    hosts = hosts_of(topic("cam", "b2"))
    now = run_for(hosts, 20, {("cam", "b1"): (12, 20.0)})

    assert list(hosts.work(now)) == [("cam", "b2")]


def test_without_an_expectation_topics_with_the_same_processor_are_the_measure():
    hosts = hosts_of(topic("cam", "b1"), topic("mic", "b2", processor="other:function"))
    now = run_for(hosts, 20, {("cam", "b1"): (10, 30.0), ("mic", "b2"): (40, 2.0)})

    same = hosts.newcomer(now, topic("new"), None)
    unknown = hosts.newcomer(now, topic("new", processor="third:function"), None)
    told = hosts.newcomer(now, topic("new"), Expected(3.0, 4.0))

    assert (same.rate, same.ms, same.bound_ms) == (pytest.approx(10.0, rel=0.11), pytest.approx(30.0), 200.0)
    assert unknown.rate == pytest.approx(25.0, rel=0.11)
    assert unknown.ms == pytest.approx((10 * 30 + 40 * 2) / 50)
    assert (told.rate, told.ms) == (3.0, 4.0)
    assert hosts_of().newcomer(0.0, topic("first"), None) is None


def test_only_brokers_that_keep_every_bound_are_left():
    hosts = hosts_of(topic("a", "b1"), topic("b", "b2"))
    now = run_for(hosts, 20, {("a", "b1"): (30, 20.0), ("b", "b2"): (30, 20.0)})

    assert fitting(hosts, now, Work(30.0, 20.0, 200.0)) == ["b3"]
    assert fitting(hosts, now, Work(1.0, 1.0, 200.0)) == list(BROKERS)
    assert fitting(hosts, now, None) == list(BROKERS)


def test_the_bound_of_a_topic_that_is_there_counts_too():
    hosts = hosts_of(topic("a", "b1"))
    now = run_for(hosts, 20, {("a", "b1"): (30, 20.0)})

    assert fitting(hosts, now, Work(30.0, 20.0)) == ["b2", "b3"]


def test_without_any_bound_nothing_is_predicted():
    hosts = hosts_of(topic("a", "b1", bound=None))
    now = run_for(hosts, 20, {("a", "b1"): (45, 20.0)})

    assert fitting(hosts, now, Work(45.0, 20.0)) == list(BROKERS)


def test_if_no_broker_keeps_all_bounds_it_is_the_least_strained():
    hosts = hosts_of(topic("a", "b1"), topic("b", "b2"), topic("c", "b3"))
    now = run_for(hosts, 20, {("a", "b1"): (30, 20.0), ("b", "b2"): (20, 20.0), ("c", "b3"): (30, 20.0)})

    assert fitting(hosts, now, Work(40.0, 20.0, 200.0)) == ["b2"]


def test_topics_created_at_once_count_before_they_are_measured():
    hosts = hosts_of()
    chosen = []
    for at in range(3):
        new = topic(f"t{at}")
        work = hosts.newcomer(0.0, new, Expected(30.0, 20.0))
        chosen.append(fitting(hosts, 0.0, work)[0])
        placed = new.placed_at(chosen[-1])
        hosts.registry.apply(topic_entry(new.name), placed, 20 + at)
        hosts.created(0.0, placed, work)

    assert sorted(chosen) == list(BROKERS)


def test_a_slow_broker_has_less_room_and_its_cpu_times_count_at_the_speed_of_the_profile():
    hosts = hosts_of(topic("a", "b1"), topic("b", "b2"))
    slow = BrokerEntry([], cores=1.0, speed=0.5)
    hosts.registry.apply(broker_entry("b1"), slow, 30)
    now = run_for(hosts, 20, {("a", "b1"): (1, 40.0), ("b", "b2"): (1, 20.0)})

    assert hosts.work(now)["a", "b1"].ms == pytest.approx(20.0)
    assert fitting(hosts, now, Work(30.0, 20.0, 200.0)) == ["b2", "b3"]
    hosts.registry.apply(broker_entry("b1"), BrokerEntry([], cores=1.0), 31)
    assert fitting(hosts, now, Work(30.0, 20.0, 200.0)) == list(BROKERS)


def test_a_thrifty_fleet_fills_the_fullest_broker_in_use():
    hosts = hosts_of(topic("a", "b1"), topic("b", "b2"))
    now = run_for(hosts, 20, {("a", "b1"): (5, 20.0), ("b", "b2"): (12, 20.0)})

    assert fitting(hosts, now, Work(2.0, 20.0, 200.0), HostingRules(thrift=True)) == ["b2"]
    assert fitting(hosts, now, Work(36.0, 20.0, 200.0), HostingRules(thrift=True)) == ["b3"]  # no room in use


@given(
    rates=st.lists(st.tuples(st.sampled_from(BROKERS), st.floats(0.5, 40.0), st.floats(1.0, 25.0)), max_size=6),
    new=st.tuples(st.floats(0.5, 30.0), st.floats(1.0, 25.0)),
    thrift=st.booleans(),
)
def test_a_broker_with_room_is_never_passed_over_for_one_without(rates, new, thrift):
    work = {name: [Work(rate, ms, 200.0) for at, rate, ms in rates if at == name] for name in BROKERS}
    choice = Choice(work, dict.fromkeys(BROKERS, 2.0), Work(*new, 200.0), frozenset(BROKERS[:2]), HostingRules())
    choice = replace(choice, rules=HostingRules(thrift=thrift))

    chosen = choice.brokers()

    then = {}
    for name in BROKERS:
        rows = [*work[name], choice.newcomer]
        columns = [np.array(column) for column in zip(*((row.rate, row.ms) for row in rows), strict=True)]
        model = model_of({})
        sets = Sets.of([range(len(rows))], *columns)
        then[name] = strains(model.on(model.hardware.scaled(cores=2.0)), sets, np.full(len(rows), 200.0), 0.1).max()
    fits = {name for name in BROKERS if then[name] <= 1.0}
    if not fits:
        assert chosen == [min(then, key=lambda name: (then[name], name))]
    elif thrift and any(then[name] <= RESERVE for name in fits):
        assert all(then[name] <= RESERVE for name in chosen)
        roomy = {name for name in choice.in_use if then[name] <= RESERVE}
        assert not roomy or set(chosen) <= roomy
    else:
        assert set(chosen) == fits


def test_expected_traffic_is_checked():
    assert arguments.expected({}) is None
    assert arguments.expected({"rate": 10, "processing_ms": 5}) == Expected(10, 5)
    with pytest.raises(BadInput, match="expected traffic is given as rate and processing_ms, but only rate came"):
        arguments.expected({"rate": 10})
    with pytest.raises(BadKnob, match="expected traffic: rate must be a number, zero or more, but is 'many'"):
        arguments.expected({"rate": "many", "processing_ms": 5})
    with pytest.raises(UnknownName, match="there is no setting of a topic 'rates'"):
        arguments.topic("cam", {"rates": 10})


@pytest.fixture(scope="module")
def slow_brokers(tmp_path_factory, nats_server):
    """Brokers of one core, to which topics would go in turn."""
    running = RunningFleet(
        tmp_path_factory.mktemp("hosts") / "home", hub_settings=HubSettings(first="round-robin"),
        capacity=Capacity(cores=1),
    )  # fmt: skip
    running.start()
    yield running
    running.stop()


def test_without_a_controller_new_topics_avoid_busy_brokers(slow_brokers):
    async def scenario():
        async with slow_brokers.client("maker") as client:
            settings = {"processor": "burn?ms=1", "latency_ms": 200}
            big = {"rate": 30.0, "processing_ms": 20.0}
            assert await client.create_topic("big.1", broker="b1", **settings, **big) == "b1"
            assert await client.create_topic("big.2", broker="b2", **settings, **big) == "b2"
            assert await client.create_topic("big.3", **settings, **big) == "b3"
            small = [await client.create_topic(f"small.{at}", **settings, rate=1.0, processing_ms=1.0) for at in (1, 2)]
            assert len(set(small)) == 2  # in turn, since all have room
            for name in ("big.1", "big.2", "big.3", "small.1", "small.2"):
                await client.delete_topic(name)

    asyncio.run(scenario())


def test_measured_traffic_decides_where_nothing_is_expected(slow_brokers):
    """A topic with real traffic is measured by its broker; topics with the same processor are expected to be alike."""

    async def scenario():
        async with slow_brokers.client("maker", "b2") as client:
            await client.create_topic("busy", broker="b1", processor="burn?ms=30", latency_ms=45)
            sending = asyncio.create_task(_send(client, "busy", per_s=22.0))

            async def measured():
                reports = (await slow_brokers.aask(ListTopics(reports=True))).reports
                return "b1" in reports and reports["b1"].topics.get("busy", TopicReport()).processed >= 10

            try:
                await until(measured, 20.0)
                await asyncio.sleep(3.0)  # three more reports
                settings = {"processor": "burn?ms=30", "latency_ms": 45}  # which no broker keeps
                assert {await client.create_topic(f"like.{at}", **settings) for at in range(2)} == {"b2", "b3"}
            finally:
                sending.cancel()
            for name in ("busy", "like.0", "like.1"):
                await client.delete_topic(name)

    asyncio.run(scenario())


async def _send(client, name, per_s):
    while True:
        await client.publish(name, b"x")
        await asyncio.sleep(1.0 / per_s)
