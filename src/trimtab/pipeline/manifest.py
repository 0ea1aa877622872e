"""An application's manifest: its feeds, datasets and channels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from trimtab.errors import BadInput
from trimtab.fleet.protocol import names
from trimtab.fleet.protocol.types import is_text, shown
from trimtab.pipeline.yaml_source import DAY_S, LONGEST_NAME, Sheet, compose, content, kind_of, nothing, unknown

if TYPE_CHECKING:
    import yaml

    from trimtab.pipeline.yaml_source import Fields, Place

MIN_PERIOD_S: Final = 0.1
FORMATS: Final = ("csv", "parquet", "json")
_ENDINGS: Final = "files end in .csv, .parquet or .json (one object a line)"

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_TABLE = re.compile(r"[a-z][a-z0-9_]*")
_SQL: Final = """
    all and anti any as between by case cast create cross delete desc describe distinct drop else end except exists
    false fetch for from full grant group having in inner insert intersect interval into is join lateral left like
    limit minus natural not null offset on or order outer qualify right rlike select semi set table tablesample then
    true union update using values when where window with
"""
_RESERVED: Final = frozenset(_SQL.split())


@dataclass(frozen=True, slots=True)
class Feed:
    """An input: publications of topics, or a streaming source of Spark."""

    name: str
    topics: tuple[str, ...]
    spark: dict[str, str]  # the source's format and options, as written; empty if it has topics
    schema: dict[str, str]  # column -> type
    retention_s: float
    place: Place


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table: a file, the latest row per key of a feed, or all messages of a feed."""

    name: str
    kind: Literal["static", "keyed", "history"]
    file: Path | None
    feed: str
    key: tuple[str, ...]
    schema: dict[str, str]  # for a dataset of a feed, the schema of the feed
    place: Place


@dataclass(frozen=True, slots=True)
class Channel:
    """A query that subscribers give parameters to."""

    name: str
    parameters: dict[str, str]  # name -> type
    period_s: float  # 0.0 is continuous
    retention_s: float
    allow_cross: bool
    query: str
    place: Place


@dataclass(frozen=True, slots=True)
class App:
    """An application, as its manifest describes it."""

    name: str
    path: Path  # of the manifest, absolute
    feeds: dict[str, Feed]
    datasets: dict[str, Dataset]
    channels: dict[str, Channel]

    @classmethod
    def empty(cls) -> App:
        """An application without feeds and channels, for a pipeline that only measures the fleet."""
        return cls("fleet-only", Path.cwd(), {}, {}, {})

    def tables(self) -> list[Feed | Dataset]:
        """The feeds and datasets that queries may read."""
        return [*self.feeds.values(), *self.datasets.values()]


def load(path: str | Path) -> App:
    """Read and check a manifest; BadManifest names the line of the first fault."""
    path = Path(path)
    root = compose(str(path), content(path))
    sheet = Sheet(str(path))
    app = _app(sheet, path.absolute(), root)
    if sheet.faults:
        raise min(sheet.faults, key=lambda fault: fault.place.line)
    return app


def file_format(path: Path) -> str:
    """csv, parquet or json, by the file's ending, or by the ending of every file in the folder."""
    if path.is_dir():
        # Spark ignores files whose names begin with these characters, and reads all others.
        found = sorted(each.name for each in path.iterdir() if each.is_file() and not each.name.startswith((".", "_")))
        if not found:
            raise BadInput(f"folder {str(path)!r} has no files in it; {_ENDINGS}")
    elif path.is_file():
        found = [path.name]
    else:
        raise BadInput(f"there is no file or folder {str(path)!r}")
    formats = {Path(name).suffix.lower().removeprefix("."): name for name in reversed(found)}
    for ending, name in formats.items():
        if ending not in FORMATS:
            raise BadInput(f"{name!r} cannot be read; {_ENDINGS}")
    if len(formats) > 1:
        both = " and ".join(sorted(formats.values()))
        raise BadInput(f"folder {str(path)!r} holds {both}; its files must be of one format")
    return next(iter(formats))


def _app(sheet: Sheet, path: Path, root: yaml.Node) -> App:
    at, fields = sheet.fields(sheet.place(root), root, "the manifest", ("app", "feeds", "datasets", "channels"))
    absent = nothing(at)
    app = sheet.text(fields.get("app", absent), "app, the name of the application,")
    if app:
        _check_name(sheet, fields["app"], app, "an app")
    feeds, datasets, channels = {}, {}, {}
    section = fields.get("feeds", absent)
    for at, name, node in sheet.entries(section, "feeds"):
        _check_table(sheet, at, name, "a feed")
        feeds[name] = _feed(sheet, at, name, node)
    if not feeds:
        sheet.fault(section, "the app has no feeds; it needs at least one, or there is nothing to do")
    for at, name, node in sheet.entries(fields.get("datasets", absent), "datasets"):
        _check_table(sheet, at, name, "a dataset")
        datasets[name] = _dataset(sheet, at, name, node, path.parent, feeds)
        if name in feeds:
            first, second = sorted((feeds[name].place, at), key=lambda place: place.line)
            rule = "feeds and datasets share their names, for queries see both as tables"
            sheet.fault(second, f"the name '{name}' is taken in line {first.line}; {rule}")
    for at, name, node in sheet.entries(fields.get("channels", absent), "channels"):
        _check_name(sheet, at, name, "a channel")
        channels[name] = _channel(sheet, at, name, node)
    return App(app, path, feeds, datasets, channels)


def _check_name(sheet: Sheet, where: yaml.Node | Place, name: str, kind: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > names.MAX_NAME:
        rule = f"letters, digits, '_' and '-', {names.MAX_NAME} at most"
        sheet.fault(where, f"{kind} is called by {rule}, but this came: {shown(name)}")


def _check_table(sheet: Sheet, at: Place, name: str, kind: str) -> None:
    if not _TABLE.fullmatch(name) or len(name) > LONGEST_NAME:
        rule = f"lower-case letters, digits and '_', a letter first, {LONGEST_NAME} at most"
        sheet.fault(at, f"{kind} is called by {rule}, but this came: {shown(name)}")
    elif name in _RESERVED:
        sheet.fault(at, f"{kind} cannot be called '{name}': that is a word of SQL; give it another name")


def _feed(sheet: Sheet, at: Place, name: str, node: yaml.Node) -> Feed:
    what = f"feed {shown(name)}"
    lacks, fields = sheet.fields(at, node, what, ("topic", "topics", "spark", "schema", "retention"))
    sheet.only_one(fields, ("topic", "topics", "spark"), lacks, what)
    return Feed(
        name,
        _topics(sheet, fields, what),
        _options(sheet, fields["spark"], f"spark of {what}") if "spark" in fields else {},
        _schema(sheet, lacks, fields, what),
        sheet.duration(fields["retention"], f"the retention of {what}") if "retention" in fields else 7 * DAY_S,
        at,
    )


def _topics(sheet: Sheet, fields: Fields, what: str) -> tuple[str, ...]:
    found = sheet.texts(fields["topics"], f"the topics of {what}") if "topics" in fields else []
    if "topic" in fields:
        found.append((fields["topic"], sheet.text(fields["topic"], f"the topic of {what}")))
    for node, topic in found:
        try:
            names.topic_name(topic)
        except BadInput as error:
            sheet.fault(node, f"{what}: {error}")
    return tuple(topic for _, topic in found)


def _options(sheet: Sheet, node: yaml.Node, what: str) -> dict[str, str]:
    """Options of a Spark source. All are text, taken as written, with or without quotes."""
    found = {}
    for _, name, value in sheet.entries(node, what):
        plain = kind_of(value) in ("str", "int", "float") or (
            kind_of(value) == "bool" and value.value in ("true", "false")
        )
        if plain and is_text(value.value) and name != "format":
            found[name] = str(value.value)
        else:
            found[name] = sheet.text(value, f"{shown(name)} in {what}")
    if "format" not in found:
        sheet.fault(node, f"{what} needs a format, such as json, rate or kafka")
    return found


def _schema(sheet: Sheet, lacks: Place, fields: Fields, what: str) -> dict[str, str]:
    node = fields.get("schema", nothing(lacks))
    found = sheet.columns(node, f"the schema of {what}")
    if not found:
        sheet.fault(node, f"{what} needs a schema with at least one column, such as {{id: string, at: timestamp}}")
    return found


def _dataset(sheet: Sheet, at: Place, name: str, node: yaml.Node, folder: Path, feeds: dict[str, Feed]) -> Dataset:
    what = f"dataset {shown(name)}"
    lacks, fields = sheet.fields(at, node, what, ("file", "schema", "feed", "key"))
    if sheet.only_one(fields, ("file", "feed"), lacks, what) == "file":
        if "key" in fields:
            sheet.fault(fields["key"], f"{what}: key goes with feed; of a file, every row is kept")
        file = _file(sheet, fields.get("file", nothing(lacks)), folder, what)
        return Dataset(name, "static", file, "", (), _schema(sheet, lacks, fields, what), at)
    if "schema" in fields:
        sheet.fault(fields["schema"], f"{what}: schema goes with file; the columns here are those of the feed")
    feed = sheet.text(fields["feed"], f"the feed of {what}")
    if feed and feeds and feed not in feeds:  # an app without feeds is reported elsewhere
        sheet.fault(fields["feed"], f"{what}: {unknown('feed', feed, feeds)}")
    schema = feeds[feed].schema if feed in feeds else {}
    key = _key(sheet, fields["key"], schema, what) if "key" in fields else ()
    return Dataset(name, "keyed" if "key" in fields else "history", None, feed, key, schema, at)


def _file(sheet: Sheet, node: yaml.Node, folder: Path, what: str) -> Path:
    file = folder / sheet.text(node, f"the file of {what}")
    try:
        file_format(file)
    except (OSError, ValueError) as error:
        sheet.fault(node, f"{what}: {error}")
    return file


def _key(sheet: Sheet, node: yaml.Node, schema: dict[str, str], what: str) -> tuple[str, ...]:
    if kind_of(node) == "seq":
        found = sheet.texts(node, f"the key of {what}")
    else:
        found = [(node, sheet.text(node, f"the key of {what}"))]
    for at, column in found:
        if schema and column not in schema:  # an empty schema is reported elsewhere
            sheet.fault(at, f"the key of {what}: {unknown('column', column, schema)}")
    return tuple(column for _, column in found)


def _channel(sheet: Sheet, at: Place, name: str, node: yaml.Node) -> Channel:
    what = f"channel {shown(name)}"
    lacks, fields = sheet.fields(at, node, what, ("parameters", "period", "retention", "allow_cross", "query"))
    absent = nothing(lacks)
    return Channel(
        name,
        sheet.columns(fields.get("parameters", absent), f"the parameters of {what}"),
        _period(sheet, fields.get("period", absent), f"the period of {what}"),
        sheet.duration(fields["retention"], f"the retention of {what}") if "retention" in fields else DAY_S,
        "allow_cross" in fields and sheet.flag(fields["allow_cross"], f"allow_cross of {what}"),
        sheet.text(fields.get("query", absent), f"the query of {what}"),
        at,
    )


def _period(sheet: Sheet, node: yaml.Node, what: str) -> float:
    if kind_of(node) == "str" and node.value == "continuous":
        return 0.0
    length = sheet.duration(node, what, "continuous, or a duration such as 10s")
    if length < MIN_PERIOD_S:
        sheet.fault(node, f"{what} must be at least 100ms, or continuous, but is {shown(node.value)}")
    return length
