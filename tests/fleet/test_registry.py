"""The registry's replica, and the route it gives."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput, BadKnob, LinkRefused, UnknownName, Unreachable
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.entries import (
    BrokerEntry,
    Change,
    ClientEntry,
    LinkEntry,
    Topic,
    read_entry,
    write_entry,
)
from trimtab.fleet.protocol.registry import Registry, check_target, entry_key, entry_name, topic_entry
from trimtab.model.key import Key


def registry(**entries):
    """A replica with these entries; ``__`` in a name stands for a dot."""
    made = Registry()
    for revision, (key, value) in enumerate(entries.items(), 1):
        name = key.replace("__", ".")
        made.apply(name, read_entry(name, coding.to_json(value)), revision)
    return made


# Topics.


def test_a_topic_has_defaults():
    topic = Topic("cam.7", "b1")

    assert (topic.unit, topic.processor, topic.spool, topic.persistent, topic.replicas) == ("topic", "", 0, False, 1)
    assert not topic.stateful


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"unit": "house"}, "topic 'cam': unit must be one of topic, client, link, but is 'house'"),
        ({"spool": -1}, "topic 'cam': spool must be from 0 to 1,000,000 messages, but is -1"),
        ({"spool": 1_000_001}, "topic 'cam': spool must be from 0 to 1,000,000 messages, but is 1000001"),
        ({"limit_ms": 0}, "topic 'cam': limit_ms must be more than 0 and at most an hour, but is 0"),
        ({"limit_ms": 3_600_001}, "topic 'cam': limit_ms must be more than 0 and at most an hour, but is 3600001"),
        ({"limit_ms": float("nan")}, "topic 'cam': limit_ms must be more than 0 and at most an hour, but is nan"),
        ({"replicas": 2}, "topic 'cam': replicas must be 1, 3 or 5, but is 2"),
        ({"replicas": None}, "topic 'cam': replicas must be 1, 3 or 5, but is None"),
    ],
)
def test_a_knob_outside_its_range_is_refused_with_the_range(settings, sentence):
    with pytest.raises(BadKnob) as caught:
        Topic("cam", "b1", **settings)

    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "settings", [{"spool": 1_000_000}, {"limit_ms": 3_600_000}, {"limit_ms": 0.1}, {"replicas": 5}]
)
def test_the_ends_of_a_range_belong_to_it(settings):
    assert Topic("cam", "b1", **settings).settings().items() >= settings.items()


@pytest.mark.parametrize("unit", ["client", "link"])
def test_a_persistent_topic_is_placed_as_a_whole(unit):
    with pytest.raises(
        BadInput, match="topic 'cam': a persistent topic is placed as a whole; its unit must be 'topic'"
    ):
        Topic("cam", "b1", unit=unit, persistent=True)


def test_a_topic_with_a_bad_name_or_processor_is_refused():
    with pytest.raises(BadInput, match="a topic is called by"):
        Topic("cam 7", "b1")
    with pytest.raises(BadInput, match="processor 'nonsense' has no colon"):
        Topic("cam", "b1", processor="nonsense")


@pytest.mark.parametrize(
    ("settings", "stateful"),
    [
        ({"processor": "shop:count"}, True),
        ({"persistent": True}, True),
        ({"unit": "client", "processor": "shop:count"}, False),
        ({"unit": "link"}, False),
    ],
)
def test_only_a_topic_that_is_placed_as_a_whole_has_something_to_hand_over(settings, stateful):
    assert Topic("cam", "b1", **settings).stateful is stateful


def test_settings_are_all_but_where_it_is_and_its_bound():
    one, other = Topic("cam", "b1", spool=5), Topic("cam", "b2", spool=5, latency_ms=200.0)

    assert one.settings() == other.settings()
    assert not {"broker", "latency_ms"} & one.settings().keys()
    assert Topic(broker="b1", **one.settings()) == one


def test_a_bound_is_kept_in_the_entry_and_an_older_entry_has_none():
    bounded = Topic("cam", "b1", latency_ms=200.0)

    assert read_entry("topic.cam", write_entry(bounded)) == bounded
    assert bounded.placed_at("b2").latency_ms == 200.0
    older = b'{"broker":"b1","unit":"topic","processor":"","spool":5,"limit_ms":1000.0,"persistent":false,"replicas":1}'
    assert read_entry("topic.cam", older).latency_ms is None


@pytest.mark.parametrize("bound", [0.0, -5, math.nan, math.inf, 3_600_001, True, "200ms"])
def test_a_bound_is_more_than_nothing_and_at_most_an_hour(bound):
    with pytest.raises(BadKnob, match="latency_ms"):
        Topic("cam", "b1", latency_ms=bound)


# Routes.


def test_a_topic_placed_as_a_whole_is_served_by_its_broker():
    found = registry(topic__cam={"broker": "b1"}, client__taxi={"home": "b2"})

    assert found.route("taxi", "cam") == "b1"


def test_a_topic_placed_by_client_is_served_by_the_clients_home():
    found = registry(topic__cam={"broker": "b1", "unit": "client"}, client__taxi={"home": "b2"})

    assert found.route("taxi", "cam") == "b2"
    assert found.route("stranger", "cam") == "b1"
    assert (found.home("taxi"), found.home("stranger")) == ("b2", None)


def test_a_topic_placed_by_link_is_served_where_the_link_is():
    found = registry(
        topic__cam__7={"broker": "b1", "unit": "link"},
        link__taxi__cam__7={"broker": "b3"},
        client__taxi={"home": "b2"},
    )

    assert found.route("taxi", "cam.7") == "b3"


@pytest.mark.parametrize(
    ("links", "why"),
    [
        ({}, "no placement has carried it yet"),
        ({"link__taxi__cam": {"broker": ""}}, "the placement leaves it out"),
        ({"link__tram__cam": {"broker": "b3"}}, "no placement has carried it yet"),
        ({"link__taxi__cam": None}, "no placement has carried it yet"),
    ],
)
def test_a_link_that_is_carried_nowhere_is_refused(links, why):
    found = registry(topic__cam={"broker": "b1", "unit": "link"}, **links)

    with pytest.raises(LinkRefused) as caught:
        found.route("taxi", "cam")

    assert str(caught.value) == (
        f"the link of client 'taxi' to topic 'cam' is refused: {why}; an operator admits it with "
        "trimtab move link taxi cam --to BROKER"
    )


def test_a_topic_that_does_not_exist_has_no_route():
    found = registry(topic__cam={"broker": "b1"}, topic__gps={"broker": "b1"}, topic__old=None)

    with pytest.raises(UnknownName, match=r"there is no topic 'cams'; did you mean 'cam'\? known: cam, gps"):
        found.route("taxi", "cams")
    with pytest.raises(UnknownName, match="there is no topic 'old'"):
        found.topic("old")


# Changes.


def test_a_change_is_taken_over_once():
    found = Registry()

    assert found.apply("topic.cam", Topic("cam", "b1"), 5)
    assert not found.apply("topic.cam", Topic("cam", "b1"), 5)
    assert (found.get("topic.cam"), found.at("topic.cam"), found.revision) == (Topic("cam", "b1"), 5, 5)


def test_an_older_change_is_ignored():
    found = Registry()
    found.apply("topic.cam", Topic("cam", "b2"), 7)

    assert not found.apply("topic.cam", Topic("cam", "b1"), 6)
    assert (found.get("topic.cam"), found.revision) == (Topic("cam", "b2"), 7)


def test_an_older_change_of_another_key_is_taken_and_the_revision_stays():
    found = Registry()
    found.apply("topic.cam", Topic("cam", "b2"), 7)

    assert found.apply("topic.gps", Topic("gps", "b1"), 3)
    assert (found.at("topic.gps"), found.revision) == (3, 7)


def test_a_newer_change_that_says_the_same_is_no_news():
    found = Registry()
    found.apply("topic.cam", Topic("cam", "b1"), 1)

    assert not found.apply("topic.cam", Topic("cam", "b1"), 2)
    assert found.at("topic.cam") == 2


def test_a_deleted_entry_is_remembered_as_deleted():
    """An agent that was away must hear of it."""
    found = registry(topic__cam={"broker": "b1"})

    assert found.apply("topic.cam", None, 2)
    assert found.get("topic.cam") is None
    assert found.topics() == {}
    assert [(each.name, each.entry(), each.revision) for each in found.since(1)] == [("topic.cam", None, 2)]
    assert not found.apply("topic.cam", Topic("cam", "b1"), 1)


def test_entries_are_found_by_kind():
    found = registry(
        topic__cam__7={"broker": "b1"}, client__taxi={"home": "b2"}, broker__b1={"urls": []}, topics__x={"broker": "b9"}
    )

    assert found.topics() == {"cam.7": Topic("cam.7", "b1")}
    assert found.clients() == {"taxi": ClientEntry("b2")}
    assert found.brokers() == {"b1": BrokerEntry([])}
    assert (found.get("topic.new"), found.at("topic.new")) == (None, 0)


def test_changes_are_given_page_by_page_oldest_first():
    found = Registry()
    for revision in (4, 2, 5, 1, 3):
        found.apply(f"topic.t{revision}", Topic(f"t{revision}", "b1"), revision)

    assert [each.revision for each in found.since(0, most=2)] == [1, 2]
    assert [each.revision for each in found.since(2, most=2)] == [3, 4]
    assert [each.revision for each in found.since(4, most=2)] == [5]
    assert found.since(5) == []


def test_an_interim_change_counts_until_the_keeper_changes_the_entry():
    found = Registry()
    found.apply("topic.cam", Topic("cam", "b1"), 5)

    assert found.apply("topic.cam", Topic("cam", "b3"), 5, term=2, in_order=False)
    assert not found.apply("topic.cam", Topic("cam", "b2"), 5, term=1, in_order=False)
    assert not found.apply("topic.cam", Topic("cam", "b1"), 5)
    assert (found.topic("cam").broker, found.version("topic.cam"), found.revision) == ("b3", (5, 2), 5)
    assert found.interim() == found.since(4) == [Change.of("topic.cam", Topic("cam", "b3"), 5, 2)]

    assert not found.apply("topic.cam", Topic("cam", "b3"), 6)
    assert (found.version("topic.cam"), found.interim()) == ((6, 0), [])


def test_interim_changes_of_the_own_broker_come_first():
    found = Registry()
    for name, broker in (("a", "b1"), ("b", "b2"), ("c", "b1"), ("d", "b2")):
        found.apply(f"topic.{name}", Topic(name, broker), 1, term=1)

    assert [change.name[-1] for change in found.interim("b2", most=3)] == ["b", "d", "a"]


versions = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.integers(0, 3), st.booleans()),
    max_size=30,
    unique_by=lambda one: one[:3],
)


@given(versions=versions, data=st.data())
def test_replicas_agree_in_whatever_order_they_hear_of_interim_changes(versions, data):
    """Also if a change comes several times. Only the keeper deletes a topic, and a page of changes is all of them."""
    told = []
    for number, (name, revision, term, deleted) in enumerate(versions):
        entry = None if deleted and not term else Topic(name, f"b{number}")
        told.append((topic_entry(name), entry, revision, term))
    here, there = Registry(), Registry()

    for name, entry, revision, term in told:
        here.apply(name, entry, revision, term=term, in_order=not term)
    for at in data.draw(st.permutations(list(range(len(told))) * 2)):
        name, entry, revision, term = told[at]
        change = coding.decode(coding.encode(Change.of(name, entry, revision, term)), Change)
        there.apply(change.name, change.entry(), change.revision, term=change.term, in_order=not change.term)

    assert (here.topics(), here.interim(), here.revision) == (there.topics(), there.interim(), there.revision)
    assert here.since(0) == there.since(0)
    assert +here.count == +there.count
    for name in {name for name, *_ in told}:
        assert here.version(name) == max((revision, term) for other, _, revision, term in told if other == name)


changes = st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 3))), max_size=30)


@given(changes=changes, data=st.data())
def test_replicas_agree_in_whatever_order_they_hear_of_changes(changes, data):
    told = [
        (f"client.{key}", None if home is None else ClientEntry(f"b{home}"), at)
        for at, (key, home) in enumerate(changes, 1)
    ]
    here, there = Registry(), Registry()

    for change in told:
        here.apply(*change)
    for change in data.draw(st.permutations(told * 2)):
        there.apply(*change)

    assert here.since(0) == there.since(0)
    assert here.revision == there.revision == len(told)


@given(changes=changes, most=st.integers(1, 4))
def test_a_replica_that_asks_page_by_page_ends_up_with_everything(changes, most):
    here, there = Registry(), Registry()
    for at, (key, home) in enumerate(changes, 1):
        here.apply(f"client.{key}", None if home is None else ClientEntry(f"b{home}"), at)

    while page := here.since(there.revision, most):
        for change in page:
            there.apply(change.name, change.entry(), change.revision)

    assert here.since(0) == there.since(0)
    assert here.revision == there.revision


# Keys.


def placed():
    return registry(
        topic__cam__7={"broker": "b1"}, topic__gps={"broker": "b1", "unit": "client"},
        topic__bus={"broker": "b1", "unit": "link"}, client__taxi={"home": "b2"}, link__taxi__bus={"broker": "b3"},
        link__tram__bus={"broker": ""}, broker__b1={"urls": []},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (Key("topic", "cam.7", ""), "topic.cam.7"),
        (Key("client", "", "taxi"), "client.taxi"),
        (Key("link", "cam.7", "taxi"), "link.taxi.cam.7"),
    ],
)
def test_a_key_has_one_entry_and_the_entry_has_that_key(key, name):
    assert entry_name(key) == name
    assert entry_key(name) == key


@pytest.mark.parametrize("name", ["broker.b1", "channel.fires", "nonsense", ""])
def test_other_entries_have_no_key(name):
    assert entry_key(name) is None


def test_a_registry_is_a_routing():
    found = placed()

    assert [found.unit_of(topic) for topic in ("cam.7", "gps", "bus")] == ["topic", "client", "link"]
    assert [found.carrier(topic, "taxi") for topic in ("cam.7", "gps", "bus")] == ["b1", "b2", "b3"]
    assert (found.carrier("gps", "stranger"), found.carrier("bus", "tram")) == ("", "")
    assert found.route("stranger", "gps") == "b1"


def test_the_table_has_every_key_with_a_broker():
    assert placed().table().brokers == {
        Key("topic", "cam.7", ""): "b1", Key("client", "", "taxi"): "b2", Key("link", "bus", "taxi"): "b3",
    }  # fmt: skip


def test_a_link_whose_topic_is_gone_or_is_placed_by_another_unit_is_no_key():
    found = placed()

    found.apply("topic.bus", None, 100)
    assert all(key.unit != "link" for key in found.table().brokers)

    found.apply("topic.bus", Topic("bus", "b1", unit="client"), 101)
    assert all(key.unit != "link" for key in found.table().brokers)


def test_links_are_found_by_topic_and_by_client():
    found = placed()

    assert found.links_of(topic="bus") == [Key("link", "bus", "taxi"), Key("link", "bus", "tram")]
    assert found.links_of(client="tram") == [Key("link", "bus", "tram")]
    assert found.links_of(topic="cam.7") == []


@pytest.mark.parametrize(
    ("broker", "cordoned", "error"),
    [("b9", (), UnknownName), ("b3", (), Unreachable), ("b1", ("b1",), BadInput)],
)
def test_a_target_must_be_known_alive_and_not_cordoned(broker, cordoned, error):
    with pytest.raises(error, match=broker):
        check_target(broker, ["b1", "b2", "b3"], ["b1", "b2"], cordoned)


def test_if_all_brokers_are_cordoned_all_are_targets():
    assert check_target("b1", ["b1", "b2"], ["b1", "b2"], ["b1", "b2"]) == "b1"


@pytest.mark.parametrize(
    ("key", "error", "sentence"),
    [
        (Key("topic", "gps", ""), BadInput, "topic 'gps' is placed by client, not by topic; move its client instead"),
        (Key("link", "cam.7", "taxi"), BadInput, "topic 'cam.7' is placed by topic, not by link; move its topic"),
        (Key("topic", "nope", ""), UnknownName, "there is no topic 'nope'"),
        (Key("client", "", "nope"), UnknownName, "there is no client 'nope'"),
        (Key("link", "bus", "tram"), LinkRefused, "the placement leaves it out"),
        (Key("link", "bus", "nope"), LinkRefused, "no placement has carried it yet"),
    ],
)
def test_what_cannot_move_is_refused(key, error, sentence):
    with pytest.raises(error, match=sentence) as caught:
        placed().check(key)

    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("key", "links"),
    [
        (Key("topic", "cam.7", ""), {("cam.7", "taxi"), ("cam.7", "tram")}),
        (Key("client", "", "taxi"), {("gps", "taxi")}),
        (Key("link", "bus", "taxi"), {("bus", "taxi")}),
    ],
)
def test_the_links_of_a_key_move_with_it(key, links):
    found = placed()
    every = [(topic, client) for topic in ("cam.7", "gps", "bus", "nope") for client in ("taxi", "tram")]

    assert {each for each in every if found.belongs(*each, key)} == links


# What is stored.


@pytest.mark.parametrize(
    ("name", "entry", "stored"),
    [
        (
            "topic.cam.7",
            Topic("cam.7", "b1", spool=5),
            b'{"broker":"b1","unit":"topic","processor":"","spool":5,"limit_ms":1000.0,"persistent":false,'
            b'"replicas":1,"latency_ms":null}',
        ),
        ("client.taxi", ClientEntry("b1", (47.0, 15.5)), b'{"home":"b1","position":[47.0,15.5],"returns":true}'),
        ("link.taxi.cam.7", LinkEntry(""), b'{"broker":""}'),
        ("client.taxi", None, b"null"),
    ],
)
def test_an_entry_is_stored_as_plain_json(name, entry, stored):
    assert write_entry(entry) == stored
    assert read_entry(name, stored) == entry


def test_an_entry_with_more_in_it_or_of_a_new_kind_is_read_for_what_is_known():
    assert read_entry("client.taxi", b'{"home": "b1", "colour": "blue"}') == ClientEntry("b1")
    assert read_entry("planet.mars", b'{"moons": 2}') is None


@pytest.mark.parametrize(
    ("name", "stored", "sentence"),
    [
        ("client.taxi", b"{}", "missing required field `home`"),
        ("client.taxi", b'{"home": 5}', "Expected `str`, got `int` - at `$.home`"),
        ("topic.cam", b'{"broker": "b1", "spool": -1}', "topic 'cam': spool must be from 0 to 1,000,000 messages"),
        ("client.taxi", b"[]", "Expected `object | null`, got `array`"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_with_the_place(name, stored, sentence):
    with pytest.raises(BadInput) as caught:
        read_entry(name, stored)

    assert sentence in str(caught.value)


@given(entry=st.builds(Topic, st.just("cam"), st.sampled_from(["", "b1"]), spool=st.integers(0, 10**6)))
def test_a_change_brings_the_entry_to_another_replica(entry):
    sent = coding.encode(Change.of("topic.cam", entry, 7))

    change = coding.decode(sent, Change)

    assert (change.name, change.entry(), change.revision) == ("topic.cam", entry, 7)
