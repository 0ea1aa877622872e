"""An application's manifest: its feeds, datasets and channels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from trimtab.errors import BadInput
from trimtab.fleet.protocol import names
from trimtab.fleet.protocol.types import is_text, shown
from trimtab.pipeline.yaml_source import DAY_S, LONGEST_NAME, NodeReader, compose, content, kind_of, nothing, unknown

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
    reader = NodeReader(str(path))
    app = _app(reader, path.absolute(), root)
    if reader.faults:
        raise min(reader.faults, key=lambda fault: fault.place.line)
    return app


def file_format(path: Path) -> str:
    """The format (csv, parquet or json), from the ending of the file or of all files in the folder."""
    if path.is_dir():
        # Spark ignores files whose names begin with these characters, and reads all others.
        file_names = sorted(
            path_.name for path_ in path.iterdir() if path_.is_file() and not path_.name.startswith((".", "_"))
        )
        if not file_names:
            raise BadInput(f"folder {str(path)!r} has no files in it; {_ENDINGS}")
    elif path.is_file():
        file_names = [path.name]
    else:
        raise BadInput(f"there is no file or folder {str(path)!r}")
    formats = {Path(name).suffix.lower().removeprefix("."): name for name in reversed(file_names)}
    for ending, name in formats.items():
        if ending not in FORMATS:
            raise BadInput(f"{name!r} cannot be read; {_ENDINGS}")
    if len(formats) > 1:
        both = " and ".join(sorted(formats.values()))
        raise BadInput(f"folder {str(path)!r} holds {both}; its files must be of one format")
    return next(iter(formats))


def _app(reader: NodeReader, path: Path, root: yaml.Node) -> App:
    at, fields = reader.fields(reader.place(root), root, "the manifest", ("app", "feeds", "datasets", "channels"))
    missing = nothing(at)
    app = reader.text(fields.get("app", missing), "app, the name of the application,")
    if app:
        _check_name(reader, fields["app"], app, "an app")
    feeds, datasets, channels = {}, {}, {}
    section = fields.get("feeds", missing)
    for at, name, node in reader.entries(section, "feeds"):
        _check_table(reader, at, name, "a feed")
        feeds[name] = _feed(reader, at, name, node)
    if not feeds:
        reader.fault(section, "the app has no feeds; it needs at least one, or there is nothing to do")
    for at, name, node in reader.entries(fields.get("datasets", missing), "datasets"):
        _check_table(reader, at, name, "a dataset")
        datasets[name] = _dataset(reader, at, name, node, path.parent, feeds)
        if name in feeds:
            first, second = sorted((feeds[name].place, at), key=lambda place: place.line)
            rule = "feeds and datasets must have different names, since queries read both as tables"
            reader.fault(second, f"the name '{name}' is taken in line {first.line}; {rule}")
    for at, name, node in reader.entries(fields.get("channels", missing), "channels"):
        _check_name(reader, at, name, "a channel")
        channels[name] = _channel(reader, at, name, node)
    return App(app, path, feeds, datasets, channels)


def _check_name(reader: NodeReader, where: yaml.Node | Place, name: str, kind: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > names.MAX_NAME:
        rule = f"letters, digits, '_' and '-', {names.MAX_NAME} at most"
        reader.fault(where, f"{kind} is called by {rule}, but this came: {shown(name)}")


def _check_table(reader: NodeReader, at: Place, name: str, kind: str) -> None:
    if not _TABLE.fullmatch(name) or len(name) > LONGEST_NAME:
        rule = f"lower-case letters, digits and '_', a letter first, {LONGEST_NAME} at most"
        reader.fault(at, f"{kind} is called by {rule}, but this came: {shown(name)}")
    elif name in _RESERVED:
        reader.fault(at, f"{kind} cannot be called '{name}': that is a word of SQL; give it another name")


def _feed(reader: NodeReader, at: Place, name: str, node: yaml.Node) -> Feed:
    what = f"feed {shown(name)}"
    missing_at, fields = reader.fields(at, node, what, ("topic", "topics", "spark", "schema", "retention"))
    reader.only_one(fields, ("topic", "topics", "spark"), missing_at, what)
    return Feed(
        name,
        _topics(reader, fields, what),
        _options(reader, fields["spark"], f"spark of {what}") if "spark" in fields else {},
        _schema(reader, missing_at, fields, what),
        reader.duration(fields["retention"], f"the retention of {what}") if "retention" in fields else 7 * DAY_S,
        at,
    )


def _topics(reader: NodeReader, fields: Fields, what: str) -> tuple[str, ...]:
    topics = reader.texts(fields["topics"], f"the topics of {what}") if "topics" in fields else []
    if "topic" in fields:
        topics.append((fields["topic"], reader.text(fields["topic"], f"the topic of {what}")))
    for node, topic in topics:
        try:
            names.topic_name(topic)
        except BadInput as error:
            reader.fault(node, f"{what}: {error}")
    return tuple(topic for _, topic in topics)


def _options(reader: NodeReader, node: yaml.Node, what: str) -> dict[str, str]:
    """Options of a Spark source. All are text, taken as written, with or without quotes."""
    options = {}
    for _, name, value in reader.entries(node, what):
        plain = kind_of(value) in ("str", "int", "float") or (
            kind_of(value) == "bool" and value.value in ("true", "false")
        )
        if plain and is_text(value.value) and name != "format":
            options[name] = str(value.value)
        else:
            options[name] = reader.text(value, f"{shown(name)} in {what}")
    if "format" not in options:
        reader.fault(node, f"{what} needs a format, such as json, rate or kafka")
    return options


def _schema(reader: NodeReader, missing_at: Place, fields: Fields, what: str) -> dict[str, str]:
    node = fields.get("schema", nothing(missing_at))
    columns = reader.columns(node, f"the schema of {what}")
    if not columns:
        reader.fault(node, f"{what} needs a schema with at least one column, such as {{id: string, at: timestamp}}")
    return columns


def _dataset(
    reader: NodeReader, at: Place, name: str, node: yaml.Node, folder: Path, feeds: dict[str, Feed]
) -> Dataset:
    what = f"dataset {shown(name)}"
    missing_at, fields = reader.fields(at, node, what, ("file", "schema", "feed", "key"))
    if reader.only_one(fields, ("file", "feed"), missing_at, what) == "file":
        if "key" in fields:
            reader.fault(fields["key"], f"{what}: key goes with feed; of a file, every row is kept")
        file = _file(reader, fields.get("file", nothing(missing_at)), folder, what)
        return Dataset(name, "static", file, "", (), _schema(reader, missing_at, fields, what), at)
    if "schema" in fields:
        reader.fault(fields["schema"], f"{what}: schema goes with file; the columns here are those of the feed")
    feed = reader.text(fields["feed"], f"the feed of {what}")
    if feed and feeds and feed not in feeds:  # an app without feeds is reported elsewhere
        reader.fault(fields["feed"], f"{what}: {unknown('feed', feed, feeds)}")
    schema = feeds[feed].schema if feed in feeds else {}
    key = _key(reader, fields["key"], schema, what) if "key" in fields else ()
    return Dataset(name, "keyed" if "key" in fields else "history", None, feed, key, schema, at)


def _file(reader: NodeReader, node: yaml.Node, folder: Path, what: str) -> Path:
    file = folder / reader.text(node, f"the file of {what}")
    try:
        file_format(file)
    except (OSError, ValueError) as error:
        reader.fault(node, f"{what}: {error}")
    return file


def _key(reader: NodeReader, node: yaml.Node, schema: dict[str, str], what: str) -> tuple[str, ...]:
    if kind_of(node) == "seq":
        columns = reader.texts(node, f"the key of {what}")
    else:
        columns = [(node, reader.text(node, f"the key of {what}"))]
    for at, column in columns:
        if schema and column not in schema:  # an empty schema is reported elsewhere
            reader.fault(at, f"the key of {what}: {unknown('column', column, schema)}")
    return tuple(column for _, column in columns)


def _channel(reader: NodeReader, at: Place, name: str, node: yaml.Node) -> Channel:
    what = f"channel {shown(name)}"
    missing_at, fields = reader.fields(at, node, what, ("parameters", "period", "retention", "allow_cross", "query"))
    missing = nothing(missing_at)
    return Channel(
        name,
        reader.columns(fields.get("parameters", missing), f"the parameters of {what}"),
        _period(reader, fields.get("period", missing), f"the period of {what}"),
        reader.duration(fields["retention"], f"the retention of {what}") if "retention" in fields else DAY_S,
        "allow_cross" in fields and reader.flag(fields["allow_cross"], f"allow_cross of {what}"),
        reader.text(fields.get("query", missing), f"the query of {what}"),
        at,
    )


def _period(reader: NodeReader, node: yaml.Node, what: str) -> float:
    if kind_of(node) == "str" and node.value == "continuous":
        return 0.0
    period_s = reader.duration(node, what, "continuous, or a duration such as 10s")
    if period_s < MIN_PERIOD_S:
        reader.fault(node, f"{what} must be at least 100ms, or continuous, but is {shown(node.value)}")
    return period_s
