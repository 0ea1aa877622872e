"""The types of columns and parameters, and the ids of subscriptions."""

from __future__ import annotations

import enum
import json
import math
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trimtab.errors import BadInput, UnknownName
from trimtab.fleet.protocol.types import (
    MAX_TEXT,
    TYPES,
    canonical,
    check_value,
    ddl_name,
    parse_text,
    schema_ddl,
    shown,
    subscription_id,
)


class Kind(str, enum.Enum):  # noqa: UP042 - its str() is its name, which is the point
    FIRE = "fire"


class Nowhere(tzinfo):
    """A zone that does not know its offset, which Python lets be."""

    def utcoffset(self, when):
        return None


# Names for Spark.


@pytest.mark.parametrize(
    ("kind", "ddl"),
    [
        ("string", "STRING"),
        ("boolean", "BOOLEAN"),
        ("int", "INT"),
        ("long", "BIGINT"),
        ("double", "DOUBLE"),
        ("date", "DATE"),
        ("timestamp", "TIMESTAMP"),
    ],
)
def test_every_type_has_a_name_in_spark(kind, ddl):
    assert ddl_name(kind) == ddl


def test_these_are_all_the_types():
    assert list(TYPES) == ["string", "boolean", "int", "long", "double", "date", "timestamp"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: ddl_name("integer"),
        lambda: schema_ddl({"id": "integer"}),
        lambda: check_value("integer", 1, "n"),
        lambda: parse_text("integer", "1"),
    ],
    ids=["ddl_name", "schema_ddl", "check_value", "parse_text"],
)
def test_a_type_that_does_not_exist_is_refused_with_those_that_do(ask):
    with pytest.raises(UnknownName, match=r"there is no type 'integer'; did you mean 'int'\? known: string, boolean,"):
        ask()


def test_a_schema_has_its_names_in_backticks_and_keeps_their_order():
    assert (
        schema_ddl({"on": "timestamp", "Id": "string", "a`b": "long"}) == "`on` TIMESTAMP, `Id` STRING, `a``b` BIGINT"
    )


# Values.


@pytest.mark.parametrize(
    ("kind", "value", "kept"),
    [
        ("string", "", ""),
        ("string", "Grüße, 消防 🚒", "Grüße, 消防 🚒"),
        ("string", "x" * MAX_TEXT, "x" * MAX_TEXT),
        ("string", Kind.FIRE, "fire"),
        ("boolean", True, True),
        ("boolean", False, False),
        ("int", 0, 0),
        ("int", 2**31 - 1, 2**31 - 1),
        ("int", -(2**31), -(2**31)),
        ("long", 2**63 - 1, 2**63 - 1),
        ("long", -(2**63), -(2**63)),
        ("double", 1.5, 1.5),
        ("double", 2, 2.0),
        ("double", 5e-324, 5e-324),
        ("date", "2026-02-28", "2026-02-28"),
        ("date", "2024-02-29", "2024-02-29"),
        ("date", date(987, 6, 5), "0987-06-05"),
        ("timestamp", "2026-03-31T12:00:00Z", "2026-03-31T12:00:00.000000Z"),
        ("timestamp", "2026-03-31 12:00Z", "2026-03-31T12:00:00.000000Z"),
        ("timestamp", "2026-03-31T14:00:00.25+02:00", "2026-03-31T12:00:00.250000Z"),
        ("timestamp", "2026-03-31T00:30:00-0130", "2026-03-31T02:00:00.000000Z"),
        ("timestamp", "2026-03-31T12:00:00.123456789+00", "2026-03-31T12:00:00.123456Z"),
        ("timestamp", datetime(2026, 3, 31, 12), "2026-03-31T12:00:00.000000Z"),
        ("timestamp", datetime(2026, 3, 31, 12, tzinfo=Nowhere()), "2026-03-31T12:00:00.000000Z"),
        ("timestamp", datetime(2026, 3, 31, 12, 0, 0, 7, UTC), "2026-03-31T12:00:00.000007Z"),
        ("timestamp", datetime(2026, 3, 31, 1, tzinfo=timezone(timedelta(hours=5))), "2026-03-30T20:00:00.000000Z"),
        ("timestamp", datetime(1, 1, 1), "0001-01-01T00:00:00.000000Z"),
    ],
    ids=lambda value: shown(value)[:40],
)
def test_a_value_of_the_type_is_kept_in_one_form(kind, value, kept):
    found = check_value(kind, value, "p")

    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("string", None),
        ("string", 5),
        ("string", True),
        ("string", b"x"),
        ("string", ["x"]),
        ("string", "x" * (MAX_TEXT + 1)),
        ("string", "half \ud83d"),
        ("string", "\udc00"),
        ("boolean", None),
        ("boolean", 0),
        ("boolean", 1),
        ("boolean", "true"),
        ("int", None),
        ("int", True),
        ("int", 2.0),
        ("int", "2"),
        ("int", 2**31),
        ("int", -(2**31) - 1),
        ("int", 10**5000),
        ("long", False),
        ("long", 2.0),
        ("long", 2**63),
        ("long", -(2**63) - 1),
        ("double", None),
        ("double", True),
        ("double", "1.5"),
        ("double", math.nan),
        ("double", math.inf),
        ("double", -math.inf),
        ("double", 10**400),
        ("date", None),
        ("date", 20260331),
        ("date", "20260331"),
        ("date", "2026-W14-2"),
        ("date", "2026-3-31"),
        ("date", "2026-02-29"),
        ("date", "0000-01-01"),
        ("date", "2026-03-31T00:00:00Z"),
        ("date", "２０２６-03-31"),  # noqa: RUF001 - digits, but not those of ISO 8601
        ("date", datetime(2026, 3, 31)),
        ("timestamp", None),
        ("timestamp", 1774958400),
        ("timestamp", "2026-03-31"),
        ("timestamp", "2026-03-31T12:00:00"),
        ("timestamp", "2026-03-31\ud80012:00:00Z"),
        ("timestamp", "2026-02-29T12:00:00Z"),
        ("timestamp", "2026-03-31T12:00:60Z"),
        ("timestamp", "2026-03-31T12:00:00+99:00"),
        ("timestamp", "2026-03-31T12:00:00Z\n"),
        ("timestamp", "0001-01-01T00:00:00+01:00"),
        ("timestamp", "9999-12-31T23:59:59-01:00"),
        ("timestamp", date(2026, 3, 31)),
    ],
    ids=lambda value: shown(value)[:40],
)
def test_a_value_of_another_type_is_refused(kind, value):
    with pytest.raises(BadInput, match=r"^parameter 'p' must be .+, but this came: "):
        check_value(kind, value, "parameter 'p'")


@pytest.mark.parametrize(
    ("kind", "value", "sentence"),
    [
        (
            "int",
            2.0,
            "p must be a whole number, without a decimal point, from -2,147,483,648 to 2,147,483,647, "
            "but this came: 2.0",
        ),
        ("boolean", None, "p must be true or false, but this came: None"),
        ("double", math.nan, "p must be a finite number, but this came: nan"),
        ("double", 10**5000, "p must be a finite number, but this came: a whole number of 16,610 bits"),
        ("date", {"y": 1}, "p must be a date such as 2026-03-31, but this came: a dict"),
        (
            "timestamp",
            "noon",
            "p must be a time with its zone, such as 2026-03-31T12:00:00Z or 2026-03-31T14:00:00+02:00, "
            "but this came: 'noon'",
        ),
        (
            "string",
            "x" * 1001,
            "p must be text of 1,000 characters at most, without lone surrogates, "
            f"but this came: '{'x' * 77}'... (1,001 characters)",
        ),
    ],
    ids=["int", "boolean", "nan", "huge", "date", "timestamp", "string"],
)
def test_a_refusal_says_what_came_and_what_would_be_right(kind, value, sentence):
    with pytest.raises(BadInput) as caught:
        check_value(kind, value, "p")

    assert str(caught.value) == sentence


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(exclude_categories=[])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    kind=st.sampled_from(list(TYPES)), value=anything | st.dates() | st.datetimes(timezones=st.none() | st.timezones())
)
def test_whatever_comes_is_kept_or_refused(kind, value):
    try:
        kept = check_value(kind, value, "p")
    except BadInput:
        return

    assert check_value(kind, kept, "p") == kept
    assert json.loads(json.dumps(kept)) == kept
    assert str(kept).encode()


@given(first=st.datetimes(timezones=st.timezones()), second=st.datetimes(timezones=st.timezones()))
def test_times_in_their_kept_form_sort_as_times(first, second):
    assume(all(1 < each.year < 9999 for each in (first, second)))

    kept = [check_value("timestamp", each, "p") for each in (first, second)]

    moments = [each.astimezone(UTC) for each in (first, second)]
    assert (kept[0] < kept[1]) == (moments[0] < moments[1])
    assert [datetime.fromisoformat(each) for each in kept] == moments


# Text from a command line.


@pytest.mark.parametrize(
    ("kind", "text", "kept"),
    [
        ("string", "true", "true"),
        ("string", "", ""),
        ("boolean", "true", True),
        ("boolean", "false", False),
        ("int", "-7", -7),
        ("int", "+7", 7),
        ("long", "9223372036854775807", 2**63 - 1),
        ("double", "2", 2.0),
        ("double", "-1.5e-3", -0.0015),
        ("double", ".5", 0.5),
        ("double", "2.", 2.0),
        ("date", "2026-03-31", "2026-03-31"),
        ("timestamp", "2026-03-31T14:00:00+02:00", "2026-03-31T12:00:00.000000Z"),
    ],
)
def test_text_is_read_as_the_type_asks(kind, text, kept):
    found = parse_text(kind, text)

    assert found == kept
    assert type(found) is type(kept)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("string", "\udce4"),  # a byte of the command line that was not UTF-8
        ("boolean", "True"),
        ("boolean", "1"),
        ("boolean", "yes"),
        ("int", ""),
        ("int", "2.0"),
        ("int", "1_000"),
        ("int", " 7"),
        ("int", "٧"),  # noqa: RUF001
        ("int", "2147483648"),
        ("int", "9" * 5000),
        ("long", "9223372036854775808"),
        ("double", "nan"),
        ("double", "inf"),
        ("double", "1e999"),
        ("double", "0x10"),
        ("double", "1,5"),
        ("date", "31.3.2026"),
        ("timestamp", "2026-03-31T12:00:00"),
    ],
    ids=lambda text: repr(text[:20]),
)
def test_text_of_another_type_is_refused(kind, text):
    with pytest.raises(BadInput, match=r"^--param p must be .+, but this came: '"):
        parse_text(kind, text, "--param p")


@given(
    kind=st.sampled_from(list(TYPES)), text=st.text(st.characters(exclude_categories=[])) | st.from_regex("[-+.0-9eE]+")
)
def test_whatever_is_typed_is_kept_or_refused(kind, text):
    try:
        kept = parse_text(kind, text)
    except BadInput:
        return

    assert check_value(kind, kept, "p") == kept


# Ids.

values = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
doubles = st.floats(allow_nan=False, allow_infinity=False)
params = st.dictionaries(st.sampled_from("abcd"), values | doubles, max_size=4)


def test_canonical_json_is_sorted_and_tight_and_plain():
    assert canonical({"b": 1.5, "a": "ü", "c": True}) == '{"a":"ü","b":1.5,"c":true}'
    assert canonical({}) == "{}"


def test_an_id_stays_what_it_is():
    """Results are stored under it, so it must be the same in every release."""
    assert subscription_id("near-me", {"user": "ü", "radius_km": 2.5}) == "b5a721788f4e0a01c3bae898d2df619c"
    assert subscription_id("near-me", {}) == "aae3da8ebdb27912b4c6ba5e947aee5a"


@given(given=params, data=st.data())
def test_the_order_of_parameters_does_not_matter(given, data):
    shuffled = dict(data.draw(st.permutations(list(given.items()))))

    assert canonical(shuffled) == canonical(given)
    assert subscription_id("c", shuffled) == subscription_id("c", given)
    assert len(bytes.fromhex(subscription_id("c", given))) == 16


@given(number=st.integers(-(2**53), 2**53))
def test_a_number_counts_by_its_value(number):
    assert subscription_id("c", {"x": number}) == subscription_id("c", {"x": float(number)})
    assert subscription_id("c", {"x": number}) == subscription_id("c", {"x": check_value("double", number, "x")})


def test_there_is_one_zero():
    assert math.copysign(1, check_value("double", -0.0, "x")) == 1
    assert math.copysign(1, parse_text("double", "-0")) == 1
    assert subscription_id("c", {"x": -0.0}) == subscription_id("c", {"x": 0.0}) == subscription_id("c", {"x": 0})


@given(first=params, second=params)
def test_different_parameters_have_different_ids(first, second):
    def told_apart(given):  # True == 1 in Python, and not in JSON
        return {name: (isinstance(value, bool), value) for name, value in given.items()}

    assume(told_apart(first) != told_apart(second))

    assert subscription_id("c", first) != subscription_id("c", second)


@given(given=params)
def test_different_channels_have_different_ids(given):
    assert subscription_id("c", given) != subscription_id("d", given)
