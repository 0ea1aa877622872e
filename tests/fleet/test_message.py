"""Stamps: who sent a message, and its number, there and back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.fleet.protocol import message as message_module
from trimtab.fleet.protocol.message import (
    MESSAGE_ID,
    Message,
    Stamper,
    as_reply,
    copied,
    copy_reply,
    identified,
    places,
    stamped,
)

names = st.text("abcXYZ019_-", min_size=1, max_size=12)
numbers = st.integers(1, 10**15 - 1)
micros = st.integers(0, 4_000_000_000_000_000)  # until the year 2096


def is_anonymous(message):
    return (message.publisher, message.seq, message.source, message.number) == ("", -1, "", -1)


@given(publisher=names, run=names, seq=numbers, at=micros)
def test_a_stamp_tells_publisher_run_number_and_time(publisher, run, seq, at):
    message = stamped("cam", b"x", f"{publisher}.{run}.{seq}.{at}")

    assert (message.topic, message.data) == ("cam", b"x")
    assert (message.publisher, message.seq) == (publisher, seq)
    assert message.sent_at == pytest.approx(at / 1e6, abs=1e-6)
    assert (message.source, message.number) == (f"{publisher}.{run}", seq)
    assert message.origin == message.source


@given(publisher=names, run=names, seq=numbers, at=micros, processor=names, count=numbers)
def test_a_result_is_ordered_by_its_processor_and_still_tells_who_sent_it(publisher, run, seq, at, processor, count):
    message = stamped("cam", b"x", f"{publisher}.{run}.{seq}.{at}.{processor}.{count}")

    assert (message.publisher, message.seq) == (publisher, seq)
    assert message.sent_at == pytest.approx(at / 1e6, abs=1e-6)
    assert (message.source, message.number) == (processor, count)
    assert message.origin == f"{publisher}.{run}"


@given(publisher=names, run=names, seq=numbers, at=micros)
def test_a_stamp_brings_the_same_identity_back(publisher, run, seq, at):
    stamp = f"{publisher}.{run}.{seq}.{at}"

    message = stamped("cam", b"x", stamp)

    assert message.stamp == stamp
    assert stamped("cam", b"x", message.stamp) == message


@given(publisher=names, run=names, seq=numbers, at=micros)
def test_the_stamp_of_a_result_is_that_of_what_it_was_made_from(publisher, run, seq, at):
    stamp = f"{publisher}.{run}.{seq}.{at}"

    assert stamped("cam", b"x", f"{stamp}.processor.7").stamp == stamp


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "_INBOX.4sZKqYq6vGZ0pKLk0m8Jkp",
        "_INBOX.4sZKqYq6vGZ0pKLk0m8Jkp.17",
        "_INBOX.4sZKqYq6vGZ0pKLk0m8Jkp.17.a",
        "$JS.ACK.cam.reader.1.17.17.1700000000000000000.0",
        "$JS.ACK.b1.hash.cam.reader.1.17.17.1700000000000000000.0.token",
        "$MQTT.sub.Xn4x",
        "orders.reply",
    ],
)
def test_a_message_with_a_foreign_reply_subject_is_anonymous(reply):
    message = stamped("cam", b"x", reply)

    assert is_anonymous(message)
    assert math.isnan(message.sent_at)
    assert message.data == b"x"


@pytest.mark.parametrize(
    "stamp",
    [
        "taxi.r1.one.5", "taxi.r1.1.five", "taxi.r1..5", "taxi.r1.1.", "taxi.r1.1e3.5", "taxi.r1.1.5.0x10", "....",
        "taxi.r1.1.5.", "taxi.r1.1.5.p.", "taxi.r1.1.5.p.x", "taxi.r1.nan.5", "taxi.r1.1.inf", "taxi.r1.1.5.p.1.2",
        "taxi.r1." + "9" * 5_000 + ".5",
    ],
    ids=lambda stamp: stamp[:24],
)  # fmt: skip
def test_a_broken_stamp_makes_a_message_anonymous(stamp):
    assert is_anonymous(stamped("cam", b"x", stamp))


@given(stamp=st.text(".0123456789abc-_$>* \x00é", max_size=40))
def test_whatever_a_stamp_says_the_message_is_delivered(stamp):
    message = stamped("cam", b"x", stamp)

    assert (message.topic, message.data) == ("cam", b"x")
    assert is_anonymous(message) or isinstance(message.number, int)


def test_text_and_json_are_read_from_the_data():
    message = Message("cam", '{"wörter": [1, 2.5, null]}'.encode())

    assert message.text == '{"wörter": [1, 2.5, null]}'
    assert message.json() == {"wörter": [1, 2.5, None]}


def test_data_that_is_not_json_is_the_readers_to_handle():
    with pytest.raises(ValueError, match="Expecting value"):
        Message("cam", b"not json").json()
    with pytest.raises(UnicodeDecodeError):
        _ = Message("cam", b"\xff").text


def test_a_stamper_counts_from_one_for_each_topic():
    stamper = Stamper("taxi")

    numbers = [
        stamped(topic, b"", stamper.next(topic)).number for topic in ("gps", "gps", "cam", "gps", "cam.7", "cam")
    ]

    assert numbers == [1, 2, 1, 3, 1, 2]


def test_the_number_of_a_message_that_was_not_sent_is_used_again():
    """A number that never comes would hold up every subscriber."""
    stamper = Stamper("taxi")
    stamper.next("gps")
    stamper.next("cam")
    stamper.next("gps")

    stamper.undo("gps")

    assert stamped("gps", b"", stamper.next("gps")).number == 2
    assert stamped("cam", b"", stamper.next("cam")).number == 2


def test_a_stampers_stamp_says_who_and_when(monkeypatch):
    monkeypatch.setattr(message_module.time, "time_ns", lambda: 1_700_000_000_123_456_789)
    stamper = Stamper("taxi-7")

    message = stamped("gps", b"", stamper.next("gps"))

    assert message.publisher == "taxi-7"
    assert message.source == stamper.source
    assert message.sent_at == pytest.approx(1_700_000_000.123456, abs=1e-6)


def test_the_runs_of_a_client_are_different_sources_in_the_order_they_began(monkeypatch):
    began, sources = [1, 36, 1_700_000_000_000_000, 1_700_000_000_000_001, 1_900_000_000_000_000], []
    for at in began:
        monkeypatch.setattr(message_module.time, "time_ns", lambda at=at: at * 1000)
        sources.append(Stamper("taxi").source)

    assert [int(source.removeprefix("taxi."), 36) for source in sources] == began
    assert sources[2:] == sorted(sources[2:])


def test_a_stamp_is_one_subject_that_a_plain_subscriber_can_be_replied_to():
    subject = as_reply(Stamper("taxi-7").next("gps"))

    tokens = subject.split(".")
    assert len(tokens) == 5
    assert all(tokens)
    assert not set(subject) & set("*> \t\r\n")


# A message as it came.


STAMP = "taxi-7.r1.17.1700000000000001"


@pytest.mark.parametrize(
    ("reply", "headers"),
    [
        (f"_t.{STAMP}", None),
        (f"_t.{STAMP}", {MESSAGE_ID: "other.r2.1.5"}),
        ("", {MESSAGE_ID: STAMP}),
        ("_INBOX.abc.0-17", {MESSAGE_ID: STAMP}),
        ("$JS.ACK.cam.reader.1.17.17.1700000000000000000.0", {MESSAGE_ID: STAMP}),
    ],
)
def test_the_identity_is_in_the_reply_subject_or_in_the_message_id(reply, headers):
    message = identified("gps", b"x", reply, headers)

    assert (message.publisher, message.number, message.source) == ("taxi-7", 17, "taxi-7.r1")
    assert message.stamp == STAMP


def test_a_result_is_identified_by_its_processor():
    original = stamped("gps", b"x", STAMP)

    result = identified("gps", b"y", as_reply(original.result_stamp("f00", 3)), None)

    assert (result.source, result.number, result.origin, result.seq) == ("f00", 3, "taxi-7.r1", 17)
    assert Message("gps", b"x").result_stamp("f00", 3) == as_reply("") == ""


@given(reply=st.text("_t.0123456789abc-$>* \x00\u0663+", max_size=40), header=st.none() | st.text(max_size=20))
def test_whatever_came_it_is_delivered_with_an_identity_or_without(reply, header):
    for each in (reply, f"_t.{reply}", f"_t.a.b.{reply}.5", f"_t.a.b.5.{reply}"):
        message = identified("gps", b"x", each, None if header is None else {MESSAGE_ID: header})

        assert (message.topic, message.data) == ("gps", b"x")
        assert is_anonymous(message) or message.number >= 0


def test_a_number_too_long_to_be_one_makes_a_message_anonymous():
    assert is_anonymous(identified("gps", b"x", f"_t.taxi.r1.5.{'9' * 5_000}", None))
    assert is_anonymous(identified("gps", b"x", f"_t.taxi.r1.{'9' * 16}.5", None))


def test_a_copy_names_the_broker_that_it_comes_from():
    message = stamped("gps", b"x", STAMP)

    broker, copy = copied("gps", b"x", copy_reply("b2", message))

    assert (broker, copy) == ("b2", message)


def test_a_stored_message_tells_its_place_and_that_of_the_one_before():
    assert places({"Nats-Sequence": "12", "Nats-Last-Sequence": "9"}) == (12, 9)
    assert places(None) == (0, 0)
