"""How messages are written and read: what is refused, versions, errors on their way."""

from __future__ import annotations

import json
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import (
    AlreadyThere,
    BadInput,
    Kind,
    LinkRefused,
    Moving,
    NoAnswer,
    NoLeader,
    NotStartedHere,
    TooLarge,
    UnknownName,
    Unreachable,
    VersionMismatch,
    travelled,
)
from trimtab.fleet.protocol import admin_verbs, agent_verbs, coding, hub_verbs
from trimtab.fleet.protocol.admin_verbs import MoveOrder, StartMoves
from trimtab.fleet.protocol.agent_verbs import DrainLinks, ReportClient
from trimtab.fleet.protocol.hub_verbs import Register, Sync
from trimtab.fleet.protocol.request import Request
from trimtab.model.key import Key
from trimtab.observe.report import TopicReport

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def requests():
    """All types of requests; a base of several of them has no verb."""
    found = []
    for module in (admin_verbs, agent_verbs, hub_verbs):
        for each in vars(module).values():
            declared = isinstance(each, type) and issubclass(each, Request) and each.__module__ == module.__name__
            if declared and hasattr(each, "verb"):
                found.append(each)
    return found


@given(value=json_values)
def test_plain_json_comes_back(value):
    assert coding.decode(coding.encode(value), Any) == value


@pytest.mark.parametrize("size", [10, 100_000, 5_000_000])
def test_a_large_message_is_compressed_and_comes_back(size):
    sent = coding.encode({"text": "x" * size})

    assert len(sent) < 100_000
    assert coding.decode(sent, dict) == {"text": "x" * size}


def test_a_message_over_the_limit_of_servers_is_refused():
    noise = {str(number): hash(str(number)) for number in range(200_000)}

    with pytest.raises(TooLarge, match="is over the limit of 1,048,576"):
        coding.encode(noise)


def test_a_message_that_grows_without_end_when_unpacked_is_refused(monkeypatch):
    monkeypatch.setattr(coding, "MAX_UNPACKED", 10_000)

    with pytest.raises(BadInput, match="grows to more than 10,000 bytes"):
        coding.decode(zlib.compress(b'"' + b"x" * 20_000 + b'"'), str)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"nonsense", b"\x78nonsense", zlib.compress(b"[1, 2]")[:-3], b"[1,\xff]", b"[" * 100_000]
)
def test_what_is_not_json_is_refused(data):
    with pytest.raises(BadInput):
        coding.decode(data, list)
    with pytest.raises(BadInput):
        coding.decode_request(data, Sync)


@given(data=st.binary(max_size=60))
def test_any_bytes_are_a_message_or_bad_input(data):
    for kind in (Sync, StartMoves, ReportClient):
        try:
            coding.decode_request(data, kind)
        except BadInput:
            continue
        pytest.fail("random bytes were taken for a request")


def test_a_request_comes_back_as_it_was():
    report = TopicReport(in_msgs=3)
    report.latency.add(0.01)
    for request in (
        Sync("b1", 7),
        StartMoves([MoveOrder(Key("link", "cam.7", "taxi"), "b2")]),
        ReportClient("taxi", "b1", {"cam": report}, {"cam": ["pub"]}, {"cam": "b1"}),
        DrainLinks(Key("client", "", "taxi"), 5.0),
    ):
        assert coding.decode_request(coding.encode_message(request), type(request)) == request


@pytest.mark.parametrize("request_type", requests(), ids=lambda each: each.__name__)
def test_every_request_names_its_subject_and_its_reply(request_type):
    assert request_type.subject("b1").count(".") >= 1
    msgspec.json.Decoder(request_type.reply(), dec_hook=lambda kind, value: value)
    msgspec.json.Decoder(request_type, dec_hook=lambda kind, value: value)


def test_no_two_requests_have_the_same_subject():
    subjects = [each.subject("b1") for each in requests()]

    assert len(requests()) > 40
    assert len(set(subjects)) == len(subjects)


def test_fields_that_are_not_known_are_ignored():
    body = {"broker": "b1", "revision": 7, "colour": "blue"}

    assert coding.decode_request(json.dumps([1, body, None, "more"]).encode(), Sync) == Sync("b1", 7)


@pytest.mark.parametrize(
    ("kind", "body", "sentence"),
    [
        (Sync, {"broker": "b1"}, "missing required field `revision`"),
        (Sync, {"broker": 1, "revision": 7}, "Expected `str`, got `int` - at `$.broker`"),
        (Register, {"client": "taxi", "home": "b1", "position": [1]}, "at `$.position`"),
        (StartMoves, {"moves": [{"key": ["topic", "a", ""]}]}, "missing required field `to` - at `$.moves[0]`"),
        (StartMoves, {"moves": [{"key": ["house", "a", ""], "to": "b1"}]}, "at `$.moves[0].key[0]`"),
        (Sync, None, "Expected `object`, got `null`"),
    ],
)
def test_a_field_that_is_missing_or_wrong_is_refused_with_its_path(kind, body, sentence):
    with pytest.raises(BadInput) as caught:
        coding.decode_request(json.dumps([1, body]).encode(), kind)

    assert sentence in str(caught.value)


# Versions.


@pytest.mark.parametrize(("version", "older"), [(coding.VERSION - 1, "asking"), (coding.VERSION + 1, "answering")])
def test_a_request_of_another_version_is_refused_and_says_who_is_older(version, older):
    """Whatever else is in it, which may mean something else in that version."""
    with pytest.raises(VersionMismatch) as caught:
        coding.decode_request(json.dumps([version, {"nothing": "known"}]).encode(), Sync)

    assert str(caught.value) == (
        f"the request is of protocol version {version}, but this process answers in version {coding.VERSION}: "
        f"the {older} process is older and must be updated"
    )
    assert (caught.value.version, caught.value.kind) == (version, Kind.VERSION)


@pytest.mark.parametrize(("version", "older"), [(coding.VERSION - 1, "answering"), (coding.VERSION + 1, "asking")])
def test_a_reply_of_another_version_is_refused_and_says_who_is_older(version, older):
    with pytest.raises(VersionMismatch, match=f"the {older} process is older"):
        coding.decode_reply(json.dumps([version, {}]).encode(), hub_verbs.News)


def test_a_refusal_is_understood_in_whatever_version_it_comes():
    sent = json.dumps([99, None, {"kind": "version", "text": "too old", "fields": {"version": 1}}]).encode()

    with pytest.raises(VersionMismatch, match="too old"):
        coding.decode_reply(sent, hub_verbs.News)


# Errors.


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (BadInput("no"), {}),
        (UnknownName("topic", "cam", ["gps"]), {"what": "topic", "name": "cam"}),
        (TooLarge("too much"), {}),
        (Moving("it moves"), {}),
        (AlreadyThere("it is there", "b2"), {"broker": "b2"}),
        (LinkRefused("left out"), {}),
        (NotStartedHere("elsewhere"), {}),
        (VersionMismatch("older", 3), {"version": 3}),
        (Unreachable("away"), {"changed": False}),
        (Unreachable("away", changed=True), {"changed": True}),
        (NoLeader("another"), {"changed": False}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_an_error_arrives_as_what_it_was(error, fields):
    with pytest.raises(type(error)) as caught:
        coding.decode_reply(coding.encode_failure(error), hub_verbs.News)

    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert {name: getattr(caught.value, name) for name in fields} == fields


def test_every_kind_has_a_class_of_its_own():
    assert {travelled(kind, "text", {}).kind for kind in Kind} == set(Kind)


def test_an_error_of_a_kind_that_is_not_known_is_bad_input():
    error = travelled("out_of_cheese", "there is no cheese", {"cheese": 0})

    assert type(error) is BadInput
    assert str(error) == "there is no cheese"


def test_the_answer_of_somebody_else_is_missing_where_it_was_asked_for():
    """A process that asks another on somebody's behalf is itself there."""
    with pytest.raises(Unreachable) as caught:
        coding.decode_reply(coding.encode_failure(NoAnswer("b2 is away")), hub_verbs.News)

    assert type(caught.value) is Unreachable


def test_unreachable_is_not_bad_input():
    assert not issubclass(Unreachable, BadInput)
    assert issubclass(Unreachable, ConnectionError)
