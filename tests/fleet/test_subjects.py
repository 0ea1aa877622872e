"""Subjects: each use has its own, and what was built can be parsed."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import trimtab
from trimtab.fleet.protocol import subjects

SOURCE = Path(trimtab.__file__).parent
words = st.text("abcXYZ019_-", min_size=1, max_size=8)
topics = st.lists(words, min_size=1, max_size=4).map(".".join)
anything = st.text("abct.*>-_ \x00ésubrewlymcinodka0123456789", max_size=30)


def test_every_use_of_a_topic_has_its_own_subject():
    assert subjects.deliver("cam.7") == "t.cam.7"
    assert subjects.door("cam.7") == "in.cam.7"
    assert subjects.raw("b1", "cam.7") == "raw.b1.cam.7"
    assert subjects.work("cam.7") == "work.cam.7"
    assert subjects.home("b1", "cam.7") == "home.b1.cam.7"
    assert subjects.spool("cam.7") == "spool.cam.7"
    assert subjects.keep("b1", "cam.7") == "keep.b1.cam.7"
    assert subjects.retired("b1", "cam.7") == "retired.b1.cam.7"
    assert subjects.dead("cam.7") == "dead.cam.7"


def test_requests_to_jetstream_name_the_domain_of_the_server_that_stores():
    assert subjects.jetstream_api(None) == "$JS.API"
    assert subjects.direct_get("hub", "results") == "$JS.hub.API.DIRECT.GET.results"
    assert subjects.consumer_info("b1", "t_x", "me") == "$JS.b1.API.CONSUMER.INFO.t_x.me"
    assert subjects.next_message("b1", "t_x", "me") == "$JS.b1.API.CONSUMER.MSG.NEXT.t_x.me"


@given(topic=topics, broker=words)
def test_the_topic_is_found_again(topic, broker):
    assert subjects.delivered_topic(subjects.deliver(topic)) == topic
    assert subjects.raw_topic(subjects.raw(broker, topic)) == topic
    assert subjects.telemetry_broker(subjects.telemetry(broker)) == broker


@given(channel=words, identity=words, client=words, number=st.integers(0, 10**12))
def test_channels_and_decisions_are_found_again(channel, identity, client, number):
    assert subjects.parse_subscriber(subjects.subscriber(channel, identity, client)) == (channel, identity, client)
    assert subjects.result_subscription(subjects.result(channel, identity)) == (channel, identity)
    assert subjects.backend_subscription(subjects.backend(channel, identity)) == (channel, identity)
    assert subjects.decision_number(subjects.decision_made(number)) == number


def test_results_are_heard_under_the_subject_they_are_republished_to():
    stored, heard = subjects.STORED_RESULTS.removesuffix(">"), subjects.HEARD_RESULTS.removesuffix(">")

    assert subjects.result("fires", "ab").replace(stored, heard, 1) == subjects.channel("fires", "ab")


@given(subject=anything)
def test_a_subject_of_another_form_is_not_parsed(subject):
    for prefix in ("", "t.", "raw.", "raw.b1.", "telemetry.", "sub.a.b.", "res.", "decision.", "decision.x"):
        whole = prefix + subject
        for parse in (
            subjects.delivered_topic, subjects.raw_topic, subjects.telemetry_broker, subjects.parse_subscriber,
            subjects.result_subscription, subjects.decision_number,
        ):  # fmt: skip
            parse(whole)


@pytest.mark.parametrize(
    ("parse", "subject"),
    [
        (subjects.delivered_topic, "t."),
        (subjects.delivered_topic, "tea.cam"),
        (subjects.raw_topic, "raw.b1."),
        (subjects.raw_topic, "raw.b1"),
        (subjects.telemetry_broker, "telemetry.b1.more"),
        (subjects.parse_subscriber, "sub.a.b"),
        (subjects.parse_subscriber, "sub.a.b.c.d"),
        (subjects.result_subscription, "res.a.b\nres.c.d"),
        (subjects.decision_number, "decision.\u0663.made"),
        (subjects.decision_number, f"decision.{'9' * 5_000}.made"),
        (subjects.decision_number, "decision.7.outcome"),
    ],
)
def test_hostile_subjects_are_of_another_form(parse, subject):
    assert parse(subject) is None


ROOTS = "ask admin route telemetry t raw c res be sub snapshot decision work keep dead in home spool retired feed"
BUILT = re.compile(rf"^({ROOTS.replace(' ', '|')}|ledger)\.")
OF_THE_SERVER = re.compile(r"^((\$JS|\$KV|\$MQTT|\$SYS|_INBOX)\.|KV_)")


def test_subjects_are_built_in_one_place_only():
    """Their form will change; nobody else may know it."""
    known = {"snapshot.json", "spool.png"}  # names of files
    for path in SOURCE.rglob("*.py"):
        if path.name == "subjects.py":
            continue
        # A client of NATS without a fleet builds subjects that nats-server defines.
        patterns = [BUILT] if path.parent.name == "nats" else [BUILT, OF_THE_SERVER]
        tree = ast.parse(path.read_text())
        docs = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                text = node.value
                built = any(pattern.match(text) for pattern in patterns)
                assert text in known or " " in text or not built, f"{path}:{node.lineno} builds '{text}'"
