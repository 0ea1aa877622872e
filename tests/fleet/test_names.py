"""What things may be called, and the subjects made from it."""

from __future__ import annotations

import string

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trimtab.errors import BadInput
from trimtab.fleet.protocol import names

word = st.text("abcXYZ019_-", min_size=1, max_size=8)
topics = st.lists(word, min_size=1, max_size=5).map(".".join)

ALLOWED = set(string.ascii_letters + string.digits + "_-")
NOT_A_TOPIC = [
    "", ".", ".cam", "cam.", "cam..7", "cam.*", "cam.>", "*", ">", "$SYS", "cam 7", "cam\t7", "cam\n", "cam\x00",
    "cam/7", "zürich", "cam=7", "x" * 201, None, 7, b"cam",
]  # fmt: skip
NOT_A_NAME = ["", "taxi.7", "taxi 7", "taxi\n", "*", ">", "$SYS", "zürich", "taxi=7", "x" * 65, None, 7, b"taxi"]


@pytest.mark.parametrize("name", ["cam", "cam.7.frames", "A-b_9", "-", "_INBOX", "x" * 200])
def test_a_topic_is_called_by_words_with_dots_between_them(name):
    assert names.topic_name(name) is name


@pytest.mark.parametrize("name", NOT_A_TOPIC, ids=repr)
def test_what_would_be_no_topic_on_the_wire_is_refused(name):
    with pytest.raises(BadInput, match="a topic is called by words of letters, digits, '_' and '-'"):
        names.topic_name(name)


@given(name=st.text(max_size=12))
def test_a_topic_is_words_of_plain_characters_and_nothing_else(name):
    plain = all(set(word) & ALLOWED == set(word) != set() for word in name.split("."))

    if plain:
        assert names.topic_name(name) == name
    else:
        with pytest.raises(BadInput):
            names.topic_name(name)


@pytest.mark.parametrize("check", [names.client_name, names.broker_name])
@pytest.mark.parametrize("name", ["taxi-7", "b1", "x" * 64])
def test_clients_and_brokers_are_called_by_one_word(check, name):
    assert check(name) is name


@pytest.mark.parametrize(("check", "kind"), [(names.client_name, "client"), (names.broker_name, "broker")])
@pytest.mark.parametrize("name", NOT_A_NAME, ids=repr)
def test_another_name_for_a_client_or_broker_is_refused(check, kind, name):
    with pytest.raises(BadInput, match=f"a {kind} is called by letters, digits, '_' and '-', 64 at most"):
        check(name)


def test_no_broker_is_called_like_the_hub():
    with pytest.raises(BadInput, match="a broker cannot be called 'hub': that is the hub's name"):
        names.broker_name("hub")

    assert names.client_name("hub") == "hub"


def test_a_refusal_shows_what_came_but_not_all_of_a_long_name():
    with pytest.raises(BadInput) as short:
        names.topic_name("cam 7")
    with pytest.raises(BadInput) as long:
        names.topic_name("cam " * 10_000)

    assert str(short.value).endswith("200 characters at most, but this came: 'cam 7'")
    assert str(long.value).endswith("cam cam ...")
    assert len(str(long.value)) < 250


@given(topic=topics)
def test_a_stream_has_a_name_that_jetstream_takes(topic):
    assert not set(names.stream(topic)) & set(". *>/\\\t\r\n")


@given(one=topics, other=topics)
def test_two_topics_never_share_a_stream(one, other):
    assume(one != other)

    assert names.stream(one) != names.stream(other)
