"""Manifests: what a good one says, and where a bad one is wrong."""

from __future__ import annotations

import re
from decimal import Decimal
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput, BadManifest
from trimtab.pipeline.manifest import App, file_format, load
from trimtab.pipeline.yaml_source import MAX_ALIASES, MAX_BYTES, MAX_ENTRIES, MAX_NODES, Place, seconds

if TYPE_CHECKING:
    from pathlib import Path

EMERGENCY = """\
app: emergency
feeds:
  reports:
    topics: [emergency.reports, emergency.tests]
    schema: {id: string, severity: int, at: timestamp}
    retention: 12h
  positions:
    topic: user.position
    schema:
      user: string
      lat: double
      lon: double
  weather:
    spark: {format: json, path: incoming/, maxFilesPerTrigger: 10, multiLine: true, sep: "\\t"}
    schema: {cell: long, day: date, storm: boolean}
datasets:
  shelters:
    file: shelters.csv
    schema: {id: string, beds: int}
  users:
    feed: positions
    key: user
  cells:
    feed: weather
    key: [cell, day]
  report_log:
    feed: reports
channels:
  reports_near_me:
    parameters: {user: string, radius_km: double}
    period: 10s
    retention: 90m
    allow_cross: true
    query: |
      SELECT r.id
      FROM reports r
  Storms-2:
    period: continuous
    query: SELECT cell FROM weather WHERE storm
"""


@pytest.fixture
def folder(tmp_path):
    """Where the manifest of a test is, with a file of data beside it."""
    (tmp_path / "shelters.csv").write_text("id,beds\n")
    return tmp_path


def read(folder: Path, text: str | bytes) -> App:
    path = folder / "app.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(path)


def refusal(folder: Path, text: str | bytes) -> str:
    """The sentence, without the folder."""
    with pytest.raises(BadManifest) as caught:
        read(folder, text)
    told = str(caught.value)
    assert told == f"{caught.value.place}: {caught.value.problem}"
    assert told.startswith(f"{folder}/app.yaml")
    assert "\n" not in told
    return told.replace(f"{folder}/", "")


def manifest(
    feed="    {topic: other, schema: {a: int}}",
    dataset="    {feed: gps}",
    channel="    {period: 1s, query: SELECT 1}",
) -> str:
    """A good manifest, but for what is given: a feed in line 5, a dataset in line 8, a channel in line 11."""
    return f"""\
app: city
feeds:
  gps: {{topic: gps, schema: {{car: string, at: timestamp}}}}
  other:
{feed}
datasets:
  data:
{dataset}
channels:
  chan:
{channel}
"""


# Good ones.


def test_a_manifest_gives_feeds(folder):
    app = read(folder, EMERGENCY)

    assert (app.name, app.path) == ("emergency", folder / "app.yaml")
    assert list(app.feeds) == ["reports", "positions", "weather"]
    assert app.feeds["reports"].topics == ("emergency.reports", "emergency.tests")
    assert app.feeds["reports"].schema == {"id": "string", "severity": "int", "at": "timestamp"}
    assert app.feeds["reports"].retention_s == 12 * 3600
    assert app.feeds["positions"].topics == ("user.position",)
    assert app.feeds["positions"].retention_s == 7 * 86400
    assert app.feeds["weather"].topics == ()
    assert app.feeds["positions"].spark == {}


def test_options_for_spark_are_text_as_it_is_written(folder):
    app = read(folder, EMERGENCY)

    assert app.feeds["weather"].spark == {
        "format": "json",
        "path": "incoming/",
        "maxFilesPerTrigger": "10",
        "multiLine": "true",
        "sep": "\t",
    }


def test_a_manifest_gives_datasets(folder):
    app = read(folder, EMERGENCY)
    found = {name: (each.kind, each.file, each.feed, each.key) for name, each in app.datasets.items()}

    assert found == {
        "shelters": ("static", folder / "shelters.csv", "", ()),
        "users": ("keyed", None, "positions", ("user",)),
        "cells": ("keyed", None, "weather", ("cell", "day")),
        "report_log": ("history", None, "reports", ()),
    }
    assert app.datasets["shelters"].schema == {"id": "string", "beds": "int"}
    assert app.datasets["users"].schema == app.feeds["positions"].schema


def test_a_manifest_gives_channels(folder):
    near, storms = read(folder, EMERGENCY).channels.values()

    assert (near.name, near.parameters) == ("reports_near_me", {"user": "string", "radius_km": "double"})
    assert (near.period_s, near.retention_s, near.allow_cross) == (10.0, 5400.0, True)
    assert near.query == "SELECT r.id\nFROM reports r\n"
    assert (storms.name, storms.parameters) == ("Storms-2", {})
    assert (storms.period_s, storms.retention_s, storms.allow_cross) == (0.0, 86400.0, False)


def test_everything_knows_its_line(folder):
    app = read(folder, EMERGENCY)
    everything = {**app.feeds, **app.datasets, **app.channels}
    lines = {name: each.place.line for name, each in everything.items()}

    assert lines == {
        name: number
        for number, line in enumerate(EMERGENCY.splitlines(), 1)
        for name in everything
        if line == f"  {name}:"
    }
    assert {each.place.file for each in everything.values()} == {str(folder / "app.yaml")}


def test_a_place_is_written_as_editors_read_it():
    assert str(Place("emergency.yaml", 12)) == "emergency.yaml:12"
    assert str(Place("emergency.yaml", 0)) == "emergency.yaml"


def test_a_manifest_named_from_its_folder_finds_its_files(folder, monkeypatch):
    read(folder, EMERGENCY)
    monkeypatch.chdir(folder)

    app = load("app.yaml")

    assert str(app.feeds["reports"].place) == "app.yaml:3"
    assert app.datasets["shelters"].file == folder / "shelters.csv"
    assert app.path == folder / "app.yaml"


@pytest.mark.parametrize(
    "text",
    [
        "app: a\nfeeds: {f: {topic: t, schema: {x: int}}}",
        "app: a\nfeeds: {f: {topic: t, schema: {x: int}}}\ndatasets:\nchannels:\n",
        "\ufeffapp: a\nfeeds: {f: {topic: t, schema: {x: int}}}",
        "%YAML 1.1\n---\napp: a\nfeeds: {f: {topic: t, schema: {x: int}}}\n...\n",
        'app: "5"\nfeeds: {f: {topic: "7", schema: {"on": int}}}',
        "app: a\r\nfeeds: {f: {topic: t, schema: {x: int}}}\r\n",
    ],
    ids=["no sections", "empty sections", "byte order mark", "directive", "quotes", "windows"],
)
def test_a_manifest_may_be_short(folder, text):
    app = read(folder, text)

    assert list(app.feeds) == ["f"]
    assert app.datasets == app.channels == {}


def test_an_alias_stands_for_what_it_names(folder):
    app = read(folder, "app: a\nfeeds:\n  f: {topic: f, schema: &s {x: int}}\n  g: {topic: g, schema: *s}\n")

    assert app.feeds["f"].schema == app.feeds["g"].schema == {"x": "int"}
    assert app.feeds["g"].place.line == 4


@pytest.mark.parametrize(
    ("period", "expected"),
    [("continuous", 0.0), ("100ms", 0.1), ("0.1", 0.1), ("5", 5.0), ('"5"', 5.0), ("1.5h", 5400.0), ("1d", 86400.0)],
)
def test_a_period_is_a_duration_or_continuous(folder, period, expected):
    app = read(folder, manifest(channel=f"    {{period: {period}, query: SELECT 1}}"))

    assert app.channels["chan"].period_s == expected


@pytest.mark.parametrize(("said", "expected"), [("true", True), ("yes", True), ("false", False), ("off", False)])
def test_allow_cross_is_any_truth_that_yaml_knows(folder, said, expected):
    app = read(folder, manifest(channel=f"    {{period: 1s, query: SELECT 1, allow_cross: {said}}}"))

    assert app.channels["chan"].allow_cross is expected


# The file itself.


def test_a_manifest_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(BadManifest) as caught:
        load(tmp_path / "app.yaml")

    assert str(caught.value) == f"{tmp_path}/app.yaml: there is no such file"


def test_a_folder_is_no_manifest(tmp_path):
    with pytest.raises(BadManifest) as caught:
        load(tmp_path)

    assert str(caught.value) == f"{tmp_path}: this is a folder; a manifest is a YAML file"


@pytest.mark.parametrize(
    ("path", "why"),
    [("a\0b.yaml", "embedded null byte"), ("x" * 300, "File name too long")],
    ids=["null", "long"],
)
def test_a_file_that_cannot_be_opened_is_refused(tmp_path, path, why):
    with pytest.raises(BadManifest, match=f"cannot be read: {why}"):
        load(tmp_path / path)


FILES = {
    "empty": ("", "app.yaml:1: the manifest is empty; it needs at least app and feeds"),
    "comments only": ("# app: a\n\n", "app.yaml:1: the manifest is empty; it needs at least app and feeds"),
    "null": ("---\n~\n", "app.yaml:2: app, the name of the application, must be text, but this came: nothing"),
    "latin 1": (
        "app: a\nfeeds: K\xe4se".encode("latin-1"),
        "app.yaml:2: a manifest is UTF-8 text, but here is the byte 0xe4",
    ),
    "utf-16": ("app: a".encode("utf-16"), "app.yaml:1: a manifest is UTF-8 text, but here is the byte 0xff"),
    "control character": ("app: a\n\nfeeds: \x07", "app.yaml:3: a manifest is text, but here is U+0007"),
    "a list": ("- app\n", "app.yaml:1: the manifest must be a mapping (name: value), but this came: a list"),
    "text": ("hello", "app.yaml:1: the manifest must be a mapping (name: value), but this came: 'hello'"),
    "too large": (b"#" * (MAX_BYTES + 1), "app.yaml: the file has more than 1,048,576 bytes, which no manifest needs"),
    "tab": (
        "app: a\nfeeds:\n\tf: 1",
        "app.yaml:3: this cannot be read as YAML: while scanning for the next token, "
        "found character '\\t' that cannot start any token",
    ),
    "open bracket": (
        "app: a\nfeeds: [1,\n",
        "app.yaml:3: this cannot be read as YAML: while parsing a flow node, "
        "expected the node content, but found '<stream end>'",
    ),
    "two documents": (
        "app: a\n---\napp: b\n",
        "app.yaml:2: this cannot be read as YAML: expected a single document in the stream, but found another document",
    ),
    "unknown alias": ("app: a\nfeeds: *f", "app.yaml:2: this cannot be read as YAML: found undefined alias 'f'"),
    "huge escape": (
        'app: "\\UFFFFFFFF"',
        "app.yaml:1: this cannot be read as YAML: a number in it is too large",
    ),
    "huge version": (
        f"%YAML 1.{'9' * 5000}\n---\napp: a",
        "app.yaml:1: this cannot be read as YAML: a number in it is too large",
    ),
    "deep": ("app: " + "[" * 100_000, "app.yaml:1: this cannot be read as YAML: found more than 16 levels of nesting"),
    "merge": (
        "app: a\nfeeds:\n  f: &f {topic: t}\n  g:\n    <<: *f\n",
        "app.yaml:5: this cannot be read as YAML: found '<<', but nothing is merged here; write the entries out",
    ),
    "laughs": (
        "a: &a [x]\n"
        + "".join(
            f"{x}: &{x} [{', '.join([f'*{y}'] * 9)}]\n" for x, y in zip("bcdefghijklm", "abcdefghijkl", strict=True)
        ),
        f"app.yaml:13: this cannot be read as YAML: found more than {MAX_ALIASES} aliases",
    ),
    "many entries": (
        "app: a\nfeeds:\n" + "".join(f"  f{n}: 1\n" for n in range(MAX_ENTRIES + 1)),
        "app.yaml:3: feeds may have 1,000 entries at most, but has 1,001",
    ),
    "many nodes": (
        "\n".join("a" * (MAX_NODES + 1)).replace("a", "- a"),
        f"app.yaml:{MAX_NODES}: this cannot be read as YAML: found more than 20,000 keys and values",
    ),
    "in itself": (
        "&a\napp: a\nfeeds: {f: *a}\n",
        "app.yaml:2: feed 'f': there is no key 'app'; known: topic, topics, spark, schema, retention",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), FILES.values(), ids=FILES.keys())
def test_a_file_that_is_no_manifest_is_refused_with_its_line(tmp_path, text, sentence):
    assert refusal(tmp_path, text) == sentence


# The rules.

NAME = "letters, digits, '_' and '-', 64 at most"
TABLE = "lower-case letters, digits and '_', a letter first, 63 at most"
COLUMN = "letters, digits and '_', no digit first, 63 at most"
TOPIC = "a topic is called by words of letters, digits, '_' and '-' with dots between them, 200 characters at most"
FEED_KEYS = "topic, topics, spark, schema, retention"
CHANNEL_KEYS = "parameters, period, retention, allow_cross, query"
DURATION = "a duration is a number and a unit, such as 500ms, 10s, 5m, 1h or 7d, of 100 years at most"
TYPE_NAMES = "string, boolean, int, long, double, date, timestamp"
NO_FEEDS = "the app has no feeds; it needs at least one, or there is nothing to do"
GOOD_FEEDS = "feeds: {f: {topic: t, schema: {x: int}}}"

TOP = {
    "no app": (GOOD_FEEDS, "1: app, the name of the application, must be text, but this came: nothing"),
    "empty app": (f"app: ''\n{GOOD_FEEDS}", "1: app, the name of the application, must be text, but it is empty"),
    "app with a dot": (f"app: a.b\n{GOOD_FEEDS}", f"1: an app is called by {NAME}, but this came: 'a.b'"),
    "app too long": (
        f"app: {'a' * 65}\n{GOOD_FEEDS}",
        f"1: an app is called by {NAME}, but this came: '{'a' * 65}'",
    ),
    "app a number": (
        f"{GOOD_FEEDS}\napp: 5",
        "2: app, the name of the application, must be text, but this came: '5', "
        "which YAML takes for a number without quotes; put it in quotes",
    ),
    "app a truth": (
        f"app: on\n{GOOD_FEEDS}",
        "1: app, the name of the application, must be text, but this came: 'on', "
        "which YAML takes for true or false without quotes; put it in quotes",
    ),
    "app a date": (
        f"app: 2026-01-01\n{GOOD_FEEDS}",
        "1: app, the name of the application, must be text, but this came: '2026-01-01', "
        "which YAML takes for a date without quotes; put it in quotes",
    ),
    "app a list": (
        f"app: [a]\n{GOOD_FEEDS}",
        "1: app, the name of the application, must be text, but this came: a list",
    ),
    "app an object": (
        f"app: !!python/name:os.system x\n{GOOD_FEEDS}",
        "1: app, the name of the application, must be text, but this came: "
        "something tagged 'tag:yaml.org,2002:python/name:os.system'",
    ),
    "app half a character": (
        f'app: "\\ud83d"\n{GOOD_FEEDS}',
        "1: app, the name of the application, has half a character in it (a lone surrogate): '\\ud83d'",
    ),
    "unknown key": (
        f"app: a\n{GOOD_FEEDS}\nchanels: {{}}",
        "3: the manifest: there is no key 'chanels'; did you mean 'channels'? known: app, feeds, datasets, channels",
    ),
    "key twice": (f"app: a\n{GOOD_FEEDS}\napp: b", "3: 'app' is in the manifest twice; the first is in line 1"),
    "key a truth": (
        f"app: a\non: 1\n{GOOD_FEEDS}",
        "2: a name in the manifest must be text, but this came: 'on', "
        "which YAML takes for true or false without quotes; put it in quotes",
    ),
    "key a list": (
        f"app: a\n? [x]\n: 1\n{GOOD_FEEDS}",
        "2: a name in the manifest must be text, but this came: a list",
    ),
    "key nothing": (f"app: a\n~: 1\n{GOOD_FEEDS}", "2: a name in the manifest must be text, but this came: nothing"),
    "no feeds": ("# city\napp: a", f"2: {NO_FEEDS}"),
    "empty feeds": ("app: a\nfeeds:\n", f"2: {NO_FEEDS}"),
    "feeds without entries": ("app: a\nfeeds: {}\n", f"2: {NO_FEEDS}"),
    "feeds a list": (
        "app: a\nfeeds: [gps]\n",
        "2: feeds must be a mapping (name: value), but this came: a list",
    ),
    "feeds tagged": (
        "app: a\nfeeds: !mine {f: 1}\n",
        "2: feeds must be a mapping (name: value), but this came: something tagged '!mine'",
    ),
    "feeds a text tagged a mapping": (
        "app: a\nfeeds: !!map x\n",
        "2: feeds must be a mapping (name: value), but this came: something tagged 'tag:yaml.org,2002:map'",
    ),
    "datasets text": (
        f"app: a\n{GOOD_FEEDS}\ndatasets: none\n",
        "3: datasets must be a mapping (name: value), but this came: 'none'",
    ),
    "channels a list": (
        f"app: a\n{GOOD_FEEDS}\nchannels:\n- c\n",
        "4: channels must be a mapping (name: value), but this came: a list",
    ),
    "channel with a dot": (
        f"app: a\n{GOOD_FEEDS}\nchannels:\n  c.d: {{period: 1s, query: SELECT 1}}\n",
        f"4: a channel is called by {NAME}, but this came: 'c.d'",
    ),
    "channel a number": (
        f"app: a\n{GOOD_FEEDS}\nchannels:\n  7: {{period: 1s, query: SELECT 1}}\n",
        "4: a name in channels must be text, but this came: '7', "
        "which YAML takes for a number without quotes; put it in quotes",
    ),
    "channel twice": (
        f"app: a\n{GOOD_FEEDS}\nchannels:\n  c: {{period: 1s, query: SELECT 1}}\n  c: {{}}\n",
        "5: 'c' is in channels twice; the first is in line 4",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), TOP.values(), ids=TOP.keys())
def test_a_fault_of_the_whole_is_told_with_its_line(tmp_path, text, sentence):
    assert refusal(tmp_path, text) == f"app.yaml:{sentence}"


@pytest.mark.parametrize(
    "name", ["Gps", "gps-2", "_gps", "2gps", "g ps", "gps.x", "gäs", "g" * 64, "g\\n"], ids=lambda name: name[:8]
)
@pytest.mark.parametrize("kind", ["a feed", "a dataset"])
def test_a_table_is_called_as_sql_likes_it(tmp_path, kind, name):
    feeds = f'  "{name}": {{topic: t, schema: {{x: int}}}}' if kind == "a feed" else "  f: {topic: t, schema: {x: int}}"
    datasets = f'  "{name}": {{feed: f}}' if kind == "a dataset" else ""

    told = refusal(tmp_path, f"app: a\nfeeds:\n{feeds}\ndatasets:\n{datasets}\n")

    shown = repr(name.replace("\\n", "\n"))
    assert told == f"app.yaml:{3 if kind == 'a feed' else 5}: {kind} is called by {TABLE}, but this came: {shown}"


@pytest.mark.parametrize("word", ["select", "order", "group", "left", "values", "table"])
def test_a_table_is_not_called_by_a_word_of_sql(tmp_path, word):
    told = refusal(tmp_path, f"app: a\nfeeds:\n  {word}: {{topic: t, schema: {{x: int}}}}\n")

    assert told == f"app.yaml:3: a feed cannot be called '{word}': that is a word of SQL; give it another name"


def test_feeds_and_datasets_share_their_names(tmp_path):
    feeds, datasets = "feeds:\n  f: {topic: t, schema: {x: int}}\n", "datasets:\n  f: {feed: f}\n"
    rule = "feeds and datasets must have different names, since queries read both as tables"

    assert refusal(tmp_path, f"app: a\n{feeds}{datasets}") == f"app.yaml:5: the name 'f' is taken in line 3; {rule}"
    assert refusal(tmp_path, f"app: a\n{datasets}{feeds}") == f"app.yaml:5: the name 'f' is taken in line 3; {rule}"


def test_a_feed_and_a_channel_may_have_one_name(tmp_path):
    app = read(tmp_path, f"app: f\n{GOOD_FEEDS}\nchannels: {{f: {{period: 1s, query: SELECT 1}}}}")

    assert list(app.feeds) == list(app.channels) == ["f"]


NEEDS_SOURCE = "feed 'other' needs one of topic, topics and spark"
NEEDS_SCHEMA = "feed 'other' needs a schema with at least one column, such as {id: string, at: timestamp}"
FEED = {
    "nothing": ("", "schema: {a: int}", f"4: {NEEDS_SOURCE}, but has none"),
    "empty": ("", "{}", f"4: {NEEDS_SOURCE}, but has none"),
    "text": ("", "gps", "5: feed 'other' must be a mapping (name: value), but this came: 'gps'"),
    "two sources": ("topic: t\ntopics: [u]", "", f"6: {NEEDS_SOURCE}, but has topic and topics"),
    "three sources": (
        "topics: [u]\nspark: {format: rate}\ntopic: t",
        "",
        f"6: {NEEDS_SOURCE}, but has topics and spark and topic",
    ),
    "unknown key": (
        "topic: t",
        "shema: {a: int}",
        f"6: feed 'other': there is no key 'shema'; did you mean 'schema'? known: {FEED_KEYS}",
    ),
    "strange key": ("topic: t\nzzz: 1", "", f"6: feed 'other': there is no key 'zzz'; known: {FEED_KEYS}"),
    "key twice": ("topic: t\ntopic: u", "", "6: 'topic' is in feed 'other' twice; the first is in line 5"),
    "wildcard": ("topic: gps.*", "", f"5: feed 'other': {TOPIC}, but this came: 'gps.*'"),
    "long topic": (f"topic: {'t' * 201}", "", f"5: feed 'other': {TOPIC}, but this came: '{'t' * 76}..."),
    "topic a list": ("topic: [t]", "", "5: the topic of feed 'other' must be text, but this came: a list"),
    "topic nothing": ("topic:", "", "5: the topic of feed 'other' must be text, but this came: nothing"),
    "topic a number": (
        "topic: 7",
        "",
        "5: the topic of feed 'other' must be text, but this came: '7', "
        "which YAML takes for a number without quotes; put it in quotes",
    ),
    "topics text": (
        "topics: t",
        "",
        "5: the topics of feed 'other' must be a list such as [one, other], but this came: 't'",
    ),
    "topics empty": ("topics: []", "", "5: the topics of feed 'other' must be a list of at least one, but it is empty"),
    "topics twice": ("topics:\n- t\n- t", "", "7: 't' is in the topics of feed 'other' twice"),
    "a topic with a blank": ("topics:\n- t\n- t u", "", f"7: feed 'other': {TOPIC}, but this came: 't u'"),
    "a topic that is a truth": (
        "topics:\n- t\n- no",
        "",
        "7: each of the topics of feed 'other' must be text, but this came: 'no', "
        "which YAML takes for true or false without quotes; put it in quotes",
    ),
    "many topics": (
        f"topics: [{', '.join(f't{n}' for n in range(1001))}]",
        "",
        "5: the topics of feed 'other' may have 1,000 entries at most, but has 1,001",
    ),
    "spark text": (
        "spark: rate",
        "",
        "5: spark of feed 'other' must be a mapping (name: value), but this came: 'rate'",
    ),
    "spark without format": (
        "spark: {path: x}",
        "",
        "5: spark of feed 'other' needs a format, such as json, rate or kafka",
    ),
    "spark with an empty format": (
        "spark: {format: ''}",
        "",
        "5: 'format' in spark of feed 'other' must be text, but it is empty",
    ),
    "spark with a list": (
        "spark: {format: json, path: [a]}",
        "",
        "5: 'path' in spark of feed 'other' must be text, but this came: a list",
    ),
    "spark with nothing": (
        "spark: {format: json, path: }",
        "",
        "5: 'path' in spark of feed 'other' must be text, but this came: nothing",
    ),
    "spark with yes": (
        "spark: {format: json, multiLine: yes}",
        "",
        "5: 'multiLine' in spark of feed 'other' must be text, but this came: 'yes', "
        "which YAML takes for true or false without quotes; put it in quotes",
    ),
    "no schema": ("topic: t", "retention: 1d", f"4: {NEEDS_SCHEMA}"),
    "empty schema": ("topic: t", "schema:", f"6: {NEEDS_SCHEMA}"),
    "schema without columns": ("topic: t", "schema: {}", f"6: {NEEDS_SCHEMA}"),
    "schema a list": (
        "topic: t",
        "schema: [a]",
        "6: the schema of feed 'other' must be a mapping (name: value), but this came: a list",
    ),
    "unknown type": (
        "topic: t",
        "schema:\n  a: int\n  b: strng",
        f"8: 'b' in the schema of feed 'other': there is no type 'strng'; did you mean 'string'? known: {TYPE_NAMES}",
    ),
    "no type": (
        "topic: t",
        "schema: {a}",
        "6: the type of 'a' in the schema of feed 'other' must be text, but this came: nothing",
    ),
    "type a mapping": (
        "topic: t",
        "schema: {a: {b: int}}",
        "6: the type of 'a' in the schema of feed 'other' must be text, but this came: a mapping",
    ),
    "column twice": (
        "topic: t",
        "schema:\n  a: int\n  a: int",
        "8: 'a' is in the schema of feed 'other' twice; the first is in line 7",
    ),
    "columns that differ by case": (
        "topic: t",
        "schema:\n  id: int\n  ID: int",
        "8: the schema of feed 'other' has 'id' and 'ID', which are one name to SQL; rename one",
    ),
    "column a truth": (
        "topic: t",
        "schema:\n  a: int\n  on: timestamp",
        "8: a name in the schema of feed 'other' must be text, but this came: 'on', "
        "which YAML takes for true or false without quotes; put it in quotes",
    ),
    "column with a blank": (
        "topic: t",
        "schema: {a b: int}",
        f"6: a name in the schema of feed 'other' is made of {COLUMN}, but this came: 'a b'",
    ),
    "column with a digit": (
        "topic: t",
        "schema: {2a: int}",
        f"6: a name in the schema of feed 'other' is made of {COLUMN}, but this came: '2a'",
    ),
    "column too long": (
        "topic: t",
        f"schema: {{{'a' * 64}: int}}",
        f"6: a name in the schema of feed 'other' is made of {COLUMN}, but this came: '{'a' * 64}'",
    ),
    "retention zero": (
        "topic: t\nretention: 0",
        "",
        "6: the retention of feed 'other' must be more than 0, but is '0'",
    ),
    "retention negative": (
        "topic: t\nretention: -1d",
        "",
        f"6: the retention of feed 'other': {DURATION}, but this came: '-1d'",
    ),
    "retention of base 60": (
        "topic: t\nretention: 1:30",
        "",
        f"6: the retention of feed 'other': {DURATION}, but this came: '1:30'",
    ),
    "retention without an end": (
        "topic: t\nretention: .inf",
        "",
        f"6: the retention of feed 'other': {DURATION}, but this came: '.inf'",
    ),
    "retention nothing": (
        "topic: t\nretention:",
        "",
        "6: the retention of feed 'other' must be a duration such as 10s, but this came: nothing",
    ),
}


@pytest.mark.parametrize(("source", "schema", "sentence"), FEED.values(), ids=FEED.keys())
def test_a_fault_of_a_feed_is_told_with_its_line(tmp_path, source, schema, sentence):
    lines = [line for part in (source, schema or "schema: {a: int}") for line in part.splitlines()]

    told = refusal(tmp_path, manifest(feed="\n".join(f"    {line}" for line in lines)))

    assert told == f"app.yaml:{sentence}"


NEEDS_KIND = "dataset 'data' needs one of file and feed"
DATASET = {
    "empty": ("{}", f"7: {NEEDS_KIND}, but has none"),
    "both": ("feed: gps\nfile: shelters.csv", f"9: {NEEDS_KIND}, but has feed and file"),
    "unknown key": (
        "feed: gps\nkeys: car",
        "9: dataset 'data': there is no key 'keys'; did you mean 'key'? known: file, schema, feed, key",
    ),
    "unknown feed": ("feed: gsp", "8: dataset 'data': there is no feed 'gsp'; did you mean 'gps'? known: gps, other"),
    "feed a list": ("feed: [gps]", "8: the feed of dataset 'data' must be text, but this came: a list"),
    "schema of a feed": (
        "feed: gps\nschema: {car: string}",
        "9: dataset 'data': schema goes with file; the columns here are those of the feed",
    ),
    "unknown column": (
        "feed: gps\nkey: cars",
        "9: the key of dataset 'data': there is no column 'cars'; did you mean 'car'? known: car, at",
    ),
    "column of another case": (
        "feed: gps\nkey: [at, Car]",
        "9: the key of dataset 'data': there is no column 'Car'; did you mean 'car'? known: car, at",
    ),
    "column twice": ("feed: gps\nkey:\n- car\n- car", "11: 'car' is in the key of dataset 'data' twice"),
    "empty key": ("feed: gps\nkey: []", "9: the key of dataset 'data' must be a list of at least one, but it is empty"),
    "key nothing": ("feed: gps\nkey:", "9: the key of dataset 'data' must be text, but this came: nothing"),
    "key a mapping": (
        "feed: gps\nkey: {car: 1}",
        "9: the key of dataset 'data' must be text, but this came: a mapping",
    ),
    "key of a file": (
        "file: shelters.csv\nschema: {id: string}\nkey: id",
        "10: dataset 'data': key goes with feed; of a file, every row is kept",
    ),
    "file without schema": (
        "file: shelters.csv",
        "7: dataset 'data' needs a schema with at least one column, such as {id: string, at: timestamp}",
    ),
    "file of a bad type": (
        "file: shelters.csv\nschema: {id: text}",
        f"9: 'id' in the schema of dataset 'data': there is no type 'text'; known: {TYPE_NAMES}",
    ),
    "no such file": (
        "file: shelter.csv\nschema: {id: string}",
        "8: dataset 'data': there is no file or folder 'shelter.csv'",
    ),
    "file of another kind": (
        "file: app.yaml\nschema: {id: string}",
        "8: dataset 'data': 'app.yaml' cannot be read; files end in .csv, .parquet or .json (one object a line)",
    ),
    "file empty": ("file: ''\nschema: {id: string}", "8: the file of dataset 'data' must be text, but it is empty"),
    "file a number": (
        "file: 5\nschema: {id: string}",
        "8: the file of dataset 'data' must be text, but this came: '5', "
        "which YAML takes for a number without quotes; put it in quotes",
    ),
    "file with a null": (
        'file: "a\\0b.csv"\nschema: {id: string}',
        "8: dataset 'data': there is no file or folder 'a\\x00b.csv'",
    ),
    "file too long": (
        f"file: {'a' * 300}.csv\nschema: {{id: string}}",
        f"8: dataset 'data': [Errno 36] File name too long: '{'a' * 300}.csv'",
    ),
}


@pytest.mark.parametrize(("lines", "sentence"), DATASET.values(), ids=DATASET.keys())
def test_a_fault_of_a_dataset_is_told_with_its_line(folder, lines, sentence):
    told = refusal(folder, manifest(dataset="\n".join(f"    {line}" for line in lines.splitlines())))

    assert told == f"app.yaml:{sentence}"


CHANNEL = {
    "empty": (
        "{}",
        "10: the period of channel 'chan' must be continuous, or a duration such as 10s, but this came: nothing",
    ),
    "no query": ("period: 1s", "10: the query of channel 'chan' must be text, but this came: nothing"),
    "empty query": ("period: 1s\nquery: ''", "12: the query of channel 'chan' must be text, but it is empty"),
    "blank query": ("period: 1s\nquery: |\n\n\n", "12: the query of channel 'chan' must be text, but it is empty"),
    "query a list": ("period: 1s\nquery: [a]", "12: the query of channel 'chan' must be text, but this came: a list"),
    "unknown key": (
        "perod: 1s\nquery: SELECT 1",
        f"11: channel 'chan': there is no key 'perod'; did you mean 'period'? known: {CHANNEL_KEYS}",
    ),
    "period zero": (
        "period: 0s\nquery: SELECT 1",
        "11: the period of channel 'chan' must be more than 0, but is '0s'",
    ),
    "period too short": (
        "period: 99ms\nquery: SELECT 1",
        "11: the period of channel 'chan' must be at least 100ms, or continuous, but is '99ms'",
    ),
    "period of a strange unit": (
        "period: 1 week\nquery: SELECT 1",
        f"11: the period of channel 'chan': {DURATION}, but this came: '1 week'",
    ),
    "period a truth": (
        "period: on\nquery: SELECT 1",
        "11: the period of channel 'chan' must be continuous, or a duration such as 10s, but this came: 'on', "
        "which YAML takes for true or false without quotes",
    ),
    "retention zero": (
        "period: 1s\nretention: 0.0\nquery: SELECT 1",
        "12: the retention of channel 'chan' must be more than 0, but is '0.0'",
    ),
    "allow_cross text": (
        "period: 1s\nallow_cross: 'false'\nquery: SELECT 1",
        "12: allow_cross of channel 'chan' must be true or false, without quotes, but this came: 'false'",
    ),
    "allow_cross nothing": (
        "period: 1s\nallow_cross:\nquery: SELECT 1",
        "12: allow_cross of channel 'chan' must be true or false, without quotes, but this came: nothing",
    ),
    "allow_cross tagged": (
        "period: 1s\nallow_cross: !!bool maybe\nquery: SELECT 1",
        "12: allow_cross of channel 'chan' must be true or false, without quotes, but this came: 'maybe', "
        "which YAML takes for true or false without quotes",
    ),
    "parameters a list": (
        "period: 1s\nparameters: [user]\nquery: SELECT 1",
        "12: the parameters of channel 'chan' must be a mapping (name: value), but this came: a list",
    ),
    "parameter of an unknown type": (
        "period: 1s\nparameters: {user: strings}\nquery: SELECT 1",
        "12: 'user' in the parameters of channel 'chan': there is no type 'strings'; "
        f"did you mean 'string'? known: {TYPE_NAMES}",
    ),
    "parameter with a dash": (
        "period: 1s\nparameters:\n  a: int\n  radius-km: int\nquery: SELECT 1",
        f"14: a name in the parameters of channel 'chan' is made of {COLUMN}, but this came: 'radius-km'",
    ),
    "parameter twice": (
        "period: 1s\nparameters:\n  a: int\n  a: int\nquery: SELECT 1",
        "14: 'a' is in the parameters of channel 'chan' twice; the first is in line 13",
    ),
}


@pytest.mark.parametrize(("lines", "sentence"), CHANNEL.values(), ids=CHANNEL.keys())
def test_a_fault_of_a_channel_is_told_with_its_line(tmp_path, lines, sentence):
    told = refusal(tmp_path, manifest(channel="\n".join(f"    {line}" for line in lines.splitlines())))

    assert told == f"app.yaml:{sentence}"


# Several faults.


def test_of_several_faults_the_first_by_line_is_told(tmp_path):
    """Whatever the order in which they are found: datasets are read after the feeds, and stand before them here."""
    text = """\
        app: a
        channels:
          c: {period: 1s, query: SELECT 1, retention: never}
        datasets:
          d: {feed: f, key: nothing}
        feeds:
          f: {topic: "*", schema: {x: int}}
          f: {}
        """
    lines = dedent(text).splitlines()
    told = []
    for number in (3, 5, 7, 8):
        told.append(refusal(tmp_path, "\n".join(lines)))
        lines[number - 1] = {
            3: "  c: {period: 1s, query: SELECT 1}",
            5: "  d: {feed: f, key: x}",
            7: "  f: {topic: t, schema: {x: int}}",
            8: "",
        }[number]

    assert [int(re.match(r"app.yaml:(\d+):", each)[1]) for each in told] == [3, 5, 7, 8]
    assert list(read(tmp_path, "\n".join(lines)).feeds) == ["f"]


def test_one_fault_does_not_look_like_another_further_up(tmp_path):
    """A dataset above its feed is not blamed for what is wrong with the feed."""
    datasets = "app: a\ndatasets:\n  d: {feed: f, key: x}\nfeeds:\n"

    assert refusal(tmp_path, f"{datasets}  f: {{topic: t, schema: 7}}").startswith("app.yaml:5: the schema of feed 'f'")
    assert refusal(tmp_path, f"{datasets}  f: {{topic: t, schema: {{x: 7}}}}").startswith("app.yaml:5: the type of 'x'")
    assert refusal(
        tmp_path, f"{datasets}  7"
    ) == "app.yaml:5: feeds must be a mapping (name: value), but this came: " + (
        "'7', which YAML takes for a number without quotes"
    )


# Files of data.


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["a.csv"], "csv"),
        (["a.CSV", "b.csv"], "csv"),
        (["part-0.snappy.parquet", "_SUCCESS", ".part-0.crc"], "parquet"),
        (["a.json", "year=2026/notes.txt"], "json"),
    ],
    ids=["one", "two", "written by spark", "folder in it"],
)
def test_a_folder_has_the_format_of_its_files(tmp_path, files, expected):
    for name in files:
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).touch()

    assert file_format(tmp_path / "data") == expected
    assert file_format(tmp_path / "data" / files[0]) == expected


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ([], "folder '{}' has no files in it; files end in .csv, .parquet or .json (one object a line)"),
        (["_a.csv"], "folder '{}' has no files in it; files end in .csv, .parquet or .json (one object a line)"),
        (["a.csv", "b.json"], "folder '{}' holds a.csv and b.json; its files must be of one format"),
        (["a.csv", "b.txt"], "'b.txt' cannot be read; files end in .csv, .parquet or .json (one object a line)"),
        (["README"], "'README' cannot be read; files end in .csv, .parquet or .json (one object a line)"),
    ],
    ids=["empty", "hidden", "two formats", "another format", "no ending"],
)
def test_a_folder_that_is_no_table_is_refused(tmp_path, files, sentence):
    for name in files:
        (tmp_path / name).touch()

    with pytest.raises(BadInput) as caught:
        file_format(tmp_path)

    assert str(caught.value) == sentence.format(tmp_path)


def test_a_dataset_may_be_a_folder_or_an_absolute_path(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.json").touch()

    for file in ("data", "data/", f"{tmp_path}/data", "../" + tmp_path.name + "/data"):
        app = read(tmp_path, manifest(dataset=f"    {{file: {file}, schema: {{a: int}}}}"))

        assert app.datasets["data"].file.samefile(tmp_path / "data")
        assert app.datasets["data"].file.is_absolute()


# Durations.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("500ms", 0.5),
        ("0.5ms", 0.0005),
        ("10s", 10.0),
        ("10 s", 10.0),
        ("10", 10.0),
        ("0", 0.0),
        ("2.5", 2.5),
        ("5m", 300.0),
        ("1h", 3600.0),
        ("7d", 604800.0),
        ("36500d", 3153600000.0),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s",
        "ten",
        "-1s",
        "+1s",
        "1e3",
        "1w",
        "1S",
        "1h30m",
        "1.s",
        ".5s",
        "1  s",
        " 1s",
        "1s\n",
        "٣s",
        "inf",
        "nan",
        "36501d",
        "9" * 13,
        "9" * 5000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_anything_else_is_no_duration(text):
    with pytest.raises(BadInput, match="a duration is a number and a unit, such as 500ms, 10s, 5m, 1h or 7d"):
        seconds(text)


LENGTHS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}


@given(number=st.decimals(0, 36_500, places=3), unit=st.sampled_from(list(LENGTHS)))
def test_a_duration_is_read_as_it_was_written(number, unit):
    assert seconds(f"{number}{unit}") == float(number * LENGTHS[unit])


@given(length=st.floats(0.001, 1e9).map(lambda length: round(length, 9)))
def test_a_length_written_in_seconds_comes_back(length):
    assert seconds(f"{length:.9f}s") == pytest.approx(length, rel=1e-12, abs=1e-9)


@given(text=st.text() | st.from_regex(r"[0-9.]+(ms|s|m|h|d)?"))
def test_whatever_is_said_is_a_duration_or_refused(text):
    try:
        length = seconds(text)
    except BadInput:
        return

    assert 0 <= length <= 3153600000


# Anything at all.


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One folder for all examples of a property."""
    folder = tmp_path_factory.mktemp("manifests")
    (folder / "shelters.csv").touch()
    return folder


def is_read_or_refused(folder: Path, content: bytes) -> None:
    path = folder / "app.yaml"
    path.write_bytes(content)
    told = ""
    try:
        load(path)
    except BadManifest as error:
        told = str(error)

    assert not told or re.match(rf"{path}(:[1-9]\d*)?: ", told)
    assert "\n" not in told
    assert told.isprintable()


@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(shared, content):
    is_read_or_refused(shared, content)


@given(
    text=st.text(
        st.characters(exclude_categories=["Cs"]) | st.sampled_from("\n\n  ::--[]{}&*!|>'\"%@`#?,~<=\\"), max_size=60
    )
)
def test_any_text_is_read_or_refused(shared, text):
    is_read_or_refused(shared, text.encode())


SCRAPS = (
    "&a ",
    "*a",
    "!!int ",
    "!x ",
    "|",
    ">",
    '"',
    "'",
    "- ",
    "? ",
    ": ",
    "{",
    "}",
    "[",
    "]",
    "---\n",
    "\n",
    "  ",
    "\t",
    "# ",
    "<<: ",
    "~",
    "yes",
    "1:30",
    "\\U99999999",
    "%TAG ! x\n",
    "2026-01-01",
    "\u2028",
    "\0",
    "app",
    "feeds: ",
    "\r",
)


@given(
    cuts=st.lists(
        st.tuples(st.integers(0, len(EMERGENCY)), st.sampled_from([0, 0, 1, 6, 30]), st.sampled_from(SCRAPS)),
        max_size=4,
    )
)
def test_a_manifest_with_scraps_in_it_is_read_or_refused(shared, cuts):
    text = EMERGENCY
    for start, length, scrap in cuts:
        text = text[:start] + scrap + text[start + length :]

    is_read_or_refused(shared, text.encode())


leaves = st.sampled_from(
    ["gps", "int", "1s", "7", "on", "~", "''", "2026-01-01", "x y", "!!bool z", "shelters.csv", "1.5"]
)
keys = st.sampled_from(
    [
        "app",
        "feeds",
        "datasets",
        "channels",
        "topic",
        "topics",
        "spark",
        "schema",
        "retention",
        "file",
        "feed",
        "key",
        "parameters",
        "period",
        "allow_cross",
        "query",
        "format",
        "f",
        "g",
        "on",
        "7",
        "[x]",
    ]
)
nodes = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(keys, inner), max_size=4).map(
            lambda items: "{" + ", ".join(f"{k}: {v}" for k, v in items) + "}"
        )
    ),
    max_leaves=25,
)


@given(sections=st.lists(st.tuples(st.sampled_from(["app", "feeds", "datasets", "channels"]), nodes), max_size=5))
def test_any_tree_is_read_or_refused(shared, sections):
    is_read_or_refused(shared, "".join(f"{name}: {node}\n" for name, node in sections).encode())
