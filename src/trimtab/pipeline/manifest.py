"""An application's manifest: its feeds, datasets and channels, read from YAML and checked line by line.

A fault is noted and something harmless put in its place, so that of several the topmost can be told.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import yaml

from trimtab.errors import BadInput, BadManifest, UnknownName
from trimtab.fleet import names
from trimtab.fleet.types import TYPES, is_text, shown

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_BYTES: Final = 1 << 20
MAX_NODES: Final = 20_000  # keys, values, lists and mappings: 400 feeds of 20 columns
MAX_ALIASES: Final = 100  # times the entries of each, what a small file can unfold to
MAX_ENTRIES: Final = 1_000  # of one mapping or list
MAX_DEPTH: Final = 16  # a manifest needs 5
MIN_PERIOD_S: Final = 0.1
FORMATS: Final = ("csv", "parquet", "json")
_ENDINGS: Final = "files end in .csv, .parquet or .json (one object a line)"

_UNITS: Final = {"ms": 1, "": 1_000, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}  # in ms
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d|)")
_LONGEST_S: Final = 36_500 * 86_400.0  # NATS counts ages in nanoseconds, and 64 bits of them are 292 years
_DAY_S: Final = 86_400.0

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_TABLE = re.compile(r"[a-z][a-z0-9_]*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_IDENTIFIER: Final = 63
_SQL: Final = """
    all and anti any as between by case cast create cross delete desc describe distinct drop else end except exists
    false fetch for from full grant group having in inner insert intersect interval into is join lateral left like
    limit minus natural not null offset on or order outer qualify right rlike select semi set table tablesample then
    true union update using values when where window with
"""
_RESERVED: Final = frozenset(_SQL.split())

_YAML: Final = "tag:yaml.org,2002:"
_TAKEN_FOR: Final = {"bool": "true or false", "int": "a number", "float": "a number", "timestamp": "a date"}


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; line 0 is the file as a whole."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Feed:
    """What comes in: publications of topics, or a streaming source of Spark's."""

    name: str
    topics: tuple[str, ...]
    spark: dict[str, str]  # the source's format and options, as written; empty if it has topics
    schema: dict[str, str]  # column -> type
    retention_s: float
    place: Place


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table: a file, the latest row per key of a feed, or all that has come by a feed."""

    name: str
    kind: Literal["static", "keyed", "history"]
    file: Path | None
    feed: str
    key: tuple[str, ...]
    schema: dict[str, str]  # of a feed's dataset the feed's
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

    def tables(self) -> list[Feed | Dataset]:
        """What queries may read."""
        return [*self.feeds.values(), *self.datasets.values()]


def load(path: str | Path) -> App:
    """The application that the manifest describes; BadManifest says at which line it does not."""
    path = Path(path)
    root = _compose(str(path), _content(path))
    sheet = _Sheet(str(path))
    app = _app(sheet, path.absolute(), root)
    if sheet.faults:
        raise min(sheet.faults, key=lambda fault: fault.place.line)
    return app


def seconds(text: str) -> float:
    """How long ``500ms``, ``10s``, ``5m``, ``1h`` or ``7d`` is; a plain number is seconds."""
    found = _DURATION.fullmatch(text)
    length = float(Decimal(found[1]) * _UNITS[found[2]] / 1_000) if found else None
    if length is None or length > _LONGEST_S:
        raise BadInput(
            "a duration is a number and a unit, such as 500ms, 10s, 5m, 1h or 7d, of 100 years at most, "
            f"but this came: {shown(text)}"
        )
    return length


def file_format(path: Path) -> str:
    """csv, parquet or json: how the file ends, or every file of the folder."""
    if path.is_dir():
        # Spark reads no files that begin so, and all others, whatever they are.
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


# From bytes to nodes.


def _content(path: Path) -> str:
    whole = Place(str(path), 0)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise BadManifest(whole, "there is no such file") from None
    except IsADirectoryError:
        raise BadManifest(whole, "this is a folder; a manifest is a YAML file") from None
    except (OSError, ValueError) as error:
        raise BadManifest(whole, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise BadManifest(whole, f"the file has more than {MAX_BYTES:,} bytes, which no manifest needs")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = Place(whole.file, error.object.count(b"\n", 0, error.start) + 1)
        raise BadManifest(at, f"a manifest is UTF-8 text, but here is the byte 0x{data[error.start]:02x}") from None


class _Composer(yaml.SafeLoader):
    """Makes nodes and no objects, and stops where a file would unfold to more than it should."""

    nodes = 0
    aliases = 0
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.nodes += 1
        self.aliases += self.check_event(yaml.AliasEvent)
        self.depth += 1
        for most, has, what in (
            (MAX_NODES, self.nodes, "keys and values"),
            (MAX_ALIASES, self.aliases, "aliases"),
            (MAX_DEPTH, self.depth, "levels of nesting"),
        ):
            if has > most:
                raise yaml.composer.ComposerError(
                    None, None, f"found more than {most:,} {what}", self.current_event.start_mark
                )
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is not None and node.tag == f"{_YAML}merge":
            problem = "found '<<', but nothing is merged here; write the entries out"
            raise yaml.composer.ComposerError(None, None, problem, node.start_mark)
        return node


def _compose(file: str, text: str) -> yaml.Node:
    loader = None
    try:
        loader = _Composer(text)
        root = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"a manifest is text, but here is U+{ord(text[error.position]):04X}"
        raise BadManifest(Place(file, line), problem) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        told = ", ".join(part for part in (error.context, error.problem) if part)
        raise BadManifest(Place(file, mark.line + 1 if mark else 1), f"this cannot be read as YAML: {told}") from None
    except (ValueError, OverflowError):  # numbers in escapes and directives that PyYAML does not bound
        at = Place(file, loader.line + 1 if loader else 1)
        raise BadManifest(at, "this cannot be read as YAML: a number in it is too large") from None
    if root is None:
        raise BadManifest(Place(file, 1), "the manifest is empty; it needs at least app and feeds")
    return root


# From nodes to values. What is missing is a null node at the line of what it is missing from.

_Fields = dict[str, yaml.Node]


def _kind(node: yaml.Node) -> str:
    """map, seq, str, int, ...; the whole tag if somebody has put one where it does not belong."""
    kind = str(node.tag).removeprefix(_YAML)
    fits = {"map": yaml.MappingNode, "seq": yaml.SequenceNode}.get(kind, yaml.ScalarNode)
    return kind if isinstance(node, fits) else str(node.tag)


def _nothing(at: Place) -> yaml.Node:
    return yaml.ScalarNode(f"{_YAML}null", "", yaml.Mark(at.file, 0, at.line - 1, 0, None, 0))


def _told(node: yaml.Node) -> str:
    """What came, in a sentence."""
    kind = _kind(node)
    if kind in ("map", "seq", "null"):
        return {"map": "a mapping", "seq": "a list", "null": "nothing"}[kind]
    if kind == "str":
        return shown(node.value)
    if kind in _TAKEN_FOR:
        return f"{shown(node.value)}, which YAML takes for {_TAKEN_FOR[kind]} without quotes"
    return f"something tagged {shown(node.tag)}"


def _not_text(node: yaml.Node) -> str:
    """The same where text should have come, with the way out."""
    return f"{_told(node)}; put it in quotes" if _kind(node) in _TAKEN_FOR else _told(node)


@dataclass(slots=True)
class _Sheet:
    """The faults of one file, and what its nodes say."""

    file: str
    faults: list[BadManifest] = field(default_factory=list)

    def place(self, node: yaml.Node) -> Place:
        return Place(self.file, node.start_mark.line + 1)

    def fault(self, where: yaml.Node | Place, problem: str) -> None:
        self.faults.append(BadManifest(where if isinstance(where, Place) else self.place(where), problem))

    def entries(self, node: yaml.Node, what: str) -> list[tuple[Place, str, yaml.Node]]:
        """Place, name and value of each entry; none if there is nothing."""
        kind = _kind(node)
        if kind != "map":
            if kind != "null":
                self.fault(node, f"{what} must be a mapping (name: value), but this came: {_told(node)}")
            return []
        if self._too_many(node, what):
            return []
        found: dict[str, tuple[Place, str, yaml.Node]] = {}
        for key, value in node.value:
            if _kind(key) != "str" or not is_text(key.value):
                self.fault(key, f"a name in {what} must be text, but this came: {_not_text(key)}")
            elif key.value in found:
                first = found[key.value][0].line
                self.fault(key, f"{shown(key.value)} is in {what} twice; the first is in line {first}")
            else:
                found[key.value] = (self.place(key), key.value, value)
        return list(found.values())

    def fields(self, at: Place, node: yaml.Node, what: str, known: tuple[str, ...]) -> tuple[Place, _Fields]:
        """The values of a mapping whose keys are fixed, and the place to tell what it lacks at.

        That is ``at``, unless there is a key it should not have: one that is misspelt is not lacking too.
        """
        found = {}
        before = len(self.faults)
        for place, key, value in self.entries(node, what):
            if key in known:
                found[key] = value
            else:
                self.fault(place, f"{what}: {_unknown('key', key, known)}")
        return self.faults[before].place if len(self.faults) > before else at, found

    def only_one(self, fields: _Fields, choices: tuple[str, ...], at: Place, what: str) -> str:
        """Which of the keys is there; the first if that is not clear."""
        given = [key for key in fields if key in choices]
        needs = f"{what} needs one of {', '.join(choices[:-1])} and {choices[-1]}"
        if not given:
            self.fault(at, f"{needs}, but has none")
        elif len(given) > 1:
            self.fault(fields[given[1]], f"{needs}, but has {' and '.join(given)}")
        return given[0] if given else choices[0]

    def text(self, node: yaml.Node, what: str) -> str:
        """Text with something in it; "" if it is none."""
        if _kind(node) != "str":
            self.fault(node, f"{what} must be text, but this came: {_not_text(node)}")
        elif not node.value.strip():
            self.fault(node, f"{what} must be text, but it is empty")
        elif not is_text(node.value):
            self.fault(node, f"{what} has half a character in it (a lone surrogate): {_told(node)}")
        else:
            return str(node.value)
        return ""

    def texts(self, node: yaml.Node, what: str) -> list[tuple[yaml.Node, str]]:
        """A list of different texts, at least one."""
        if _kind(node) != "seq":
            self.fault(node, f"{what} must be a list such as [one, other], but this came: {_told(node)}")
            return []
        if self._too_many(node, what):
            return []
        if not node.value:
            self.fault(node, f"{what} must be a list of at least one, but it is empty")
        found: dict[str, yaml.Node] = {}
        for each in node.value:
            text = self.text(each, f"each of {what}")
            if text and text in found:
                self.fault(each, f"{shown(text)} is in {what} twice")
            elif text:
                found[text] = each
        return [(each, text) for text, each in found.items()]

    def flag(self, node: yaml.Node, what: str) -> bool:
        value = yaml.SafeLoader.bool_values.get(node.value.lower()) if _kind(node) == "bool" else None
        if value is None:
            self.fault(node, f"{what} must be true or false, without quotes, but this came: {_told(node)}")
        return bool(value)

    def duration(self, node: yaml.Node, what: str, rule: str = "a duration such as 10s") -> float:
        """More than 0 s. Numbers count as they are written: YAML would read 1:30 as 90 and 010 as 8."""
        if _kind(node) not in ("str", "int", "float"):
            self.fault(node, f"{what} must be {rule}, but this came: {_told(node)}")
            return _DAY_S
        try:
            length = seconds(node.value)
        except BadInput as error:
            self.fault(node, f"{what}: {error}")
            return _DAY_S
        if not length:
            self.fault(node, f"{what} must be more than 0, but is {shown(node.value)}")
        return length

    def columns(self, node: yaml.Node, what: str) -> dict[str, str]:
        """Name -> type."""
        found: dict[str, str] = {}
        spelled: dict[str, str] = {}
        for at, name, value in self.entries(node, what):
            if not _IDENTIFIER.fullmatch(name) or len(name) > _LONGEST_IDENTIFIER:
                rule = f"letters, digits and '_', no digit first, {_LONGEST_IDENTIFIER} at most"
                self.fault(at, f"a name in {what} is made of {rule}, but this came: {shown(name)}")
            other = spelled.setdefault(name.lower(), name)
            if other != name:
                self.fault(at, f"{what} has {shown(other)} and {shown(name)}, which are one name to SQL; rename one")
            found[name] = self.text(value, f"the type of {shown(name)} in {what}")
            if found[name] and found[name] not in TYPES:
                self.fault(value, f"{shown(name)} in {what}: {_unknown('type', found[name], TYPES)}")
        return found

    def _too_many(self, node: yaml.Node, what: str) -> bool:
        if len(node.value) > MAX_ENTRIES:
            self.fault(node, f"{what} may have {MAX_ENTRIES:,} entries at most, but has {len(node.value):,}")
        return len(node.value) > MAX_ENTRIES


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    return str(UnknownName(kind, repr(name[:80])[1:-1], known))


# From values to the application.


def _app(sheet: _Sheet, path: Path, root: yaml.Node) -> App:
    at, fields = sheet.fields(sheet.place(root), root, "the manifest", ("app", "feeds", "datasets", "channels"))
    nothing = _nothing(at)
    app = sheet.text(fields.get("app", nothing), "app, the name of the application,")
    if app:
        _check_name(sheet, fields["app"], app, "an app")
    feeds, datasets, channels = {}, {}, {}
    section = fields.get("feeds", nothing)
    for at, name, node in sheet.entries(section, "feeds"):
        _check_table(sheet, at, name, "a feed")
        feeds[name] = _feed(sheet, at, name, node)
    if not feeds:
        sheet.fault(section, "the app has no feeds; it needs at least one, or there is nothing to do")
    for at, name, node in sheet.entries(fields.get("datasets", nothing), "datasets"):
        _check_table(sheet, at, name, "a dataset")
        datasets[name] = _dataset(sheet, at, name, node, path.parent, feeds)
        if name in feeds:
            first, second = sorted((feeds[name].place, at), key=lambda place: place.line)
            rule = "feeds and datasets share their names, for queries see both as tables"
            sheet.fault(second, f"the name '{name}' is taken in line {first.line}; {rule}")
    for at, name, node in sheet.entries(fields.get("channels", nothing), "channels"):
        _check_name(sheet, at, name, "a channel")
        channels[name] = _channel(sheet, at, name, node)
    return App(app, path, feeds, datasets, channels)


def _check_name(sheet: _Sheet, where: yaml.Node | Place, name: str, kind: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > names.MAX_NAME:
        rule = f"letters, digits, '_' and '-', {names.MAX_NAME} at most"
        sheet.fault(where, f"{kind} is called by {rule}, but this came: {shown(name)}")


def _check_table(sheet: _Sheet, at: Place, name: str, kind: str) -> None:
    if not _TABLE.fullmatch(name) or len(name) > _LONGEST_IDENTIFIER:
        rule = f"lower-case letters, digits and '_', a letter first, {_LONGEST_IDENTIFIER} at most"
        sheet.fault(at, f"{kind} is called by {rule}, but this came: {shown(name)}")
    elif name in _RESERVED:
        sheet.fault(at, f"{kind} cannot be called '{name}': that is a word of SQL; give it another name")


def _feed(sheet: _Sheet, at: Place, name: str, node: yaml.Node) -> Feed:
    what = f"feed {shown(name)}"
    lacks, fields = sheet.fields(at, node, what, ("topic", "topics", "spark", "schema", "retention"))
    sheet.only_one(fields, ("topic", "topics", "spark"), lacks, what)
    return Feed(
        name,
        _topics(sheet, fields, what),
        _options(sheet, fields["spark"], f"spark of {what}") if "spark" in fields else {},
        _schema(sheet, lacks, fields, what),
        sheet.duration(fields["retention"], f"the retention of {what}") if "retention" in fields else 7 * _DAY_S,
        at,
    )


def _topics(sheet: _Sheet, fields: _Fields, what: str) -> tuple[str, ...]:
    found = sheet.texts(fields["topics"], f"the topics of {what}") if "topics" in fields else []
    if "topic" in fields:
        found.append((fields["topic"], sheet.text(fields["topic"], f"the topic of {what}")))
    for node, topic in found:
        try:
            names.topic_name(topic)
        except BadInput as error:
            sheet.fault(node, f"{what}: {error}")
    return tuple(topic for _, topic in found)


def _options(sheet: _Sheet, node: yaml.Node, what: str) -> dict[str, str]:
    """Options of Spark's are all text, so what is written counts, with or without quotes."""
    found = {}
    for _, name, value in sheet.entries(node, what):
        plain = _kind(value) in ("str", "int", "float") or (_kind(value) == "bool" and value.value in ("true", "false"))
        if plain and is_text(value.value) and name != "format":
            found[name] = str(value.value)
        else:
            found[name] = sheet.text(value, f"{shown(name)} in {what}")
    if "format" not in found:
        sheet.fault(node, f"{what} needs a format, such as json, rate or kafka")
    return found


def _schema(sheet: _Sheet, lacks: Place, fields: _Fields, what: str) -> dict[str, str]:
    node = fields.get("schema", _nothing(lacks))
    found = sheet.columns(node, f"the schema of {what}")
    if not found:
        sheet.fault(node, f"{what} needs a schema with at least one column, such as {{id: string, at: timestamp}}")
    return found


def _dataset(sheet: _Sheet, at: Place, name: str, node: yaml.Node, folder: Path, feeds: dict[str, Feed]) -> Dataset:
    what = f"dataset {shown(name)}"
    lacks, fields = sheet.fields(at, node, what, ("file", "schema", "feed", "key"))
    if sheet.only_one(fields, ("file", "feed"), lacks, what) == "file":
        if "key" in fields:
            sheet.fault(fields["key"], f"{what}: key goes with feed; of a file, every row is kept")
        file = _file(sheet, fields.get("file", _nothing(lacks)), folder, what)
        return Dataset(name, "static", file, "", (), _schema(sheet, lacks, fields, what), at)
    if "schema" in fields:
        sheet.fault(fields["schema"], f"{what}: schema goes with file; the columns here are those of the feed")
    feed = sheet.text(fields["feed"], f"the feed of {what}")
    if feed and feeds and feed not in feeds:  # that there are none is a fault of its own
        sheet.fault(fields["feed"], f"{what}: {_unknown('feed', feed, feeds)}")
    schema = feeds[feed].schema if feed in feeds else {}
    key = _key(sheet, fields["key"], schema, what) if "key" in fields else ()
    return Dataset(name, "keyed" if "key" in fields else "history", None, feed, key, schema, at)


def _file(sheet: _Sheet, node: yaml.Node, folder: Path, what: str) -> Path:
    file = folder / sheet.text(node, f"the file of {what}")
    try:
        file_format(file)
    except (OSError, ValueError) as error:
        sheet.fault(node, f"{what}: {error}")
    return file


def _key(sheet: _Sheet, node: yaml.Node, schema: dict[str, str], what: str) -> tuple[str, ...]:
    if _kind(node) == "seq":
        found = sheet.texts(node, f"the key of {what}")
    else:
        found = [(node, sheet.text(node, f"the key of {what}"))]
    for at, column in found:
        if schema and column not in schema:  # one without columns has a fault of its own
            sheet.fault(at, f"the key of {what}: {_unknown('column', column, schema)}")
    return tuple(column for _, column in found)


def _channel(sheet: _Sheet, at: Place, name: str, node: yaml.Node) -> Channel:
    what = f"channel {shown(name)}"
    lacks, fields = sheet.fields(at, node, what, ("parameters", "period", "retention", "allow_cross", "query"))
    nothing = _nothing(lacks)
    return Channel(
        name,
        sheet.columns(fields.get("parameters", nothing), f"the parameters of {what}"),
        _period(sheet, fields.get("period", nothing), f"the period of {what}"),
        sheet.duration(fields["retention"], f"the retention of {what}") if "retention" in fields else _DAY_S,
        "allow_cross" in fields and sheet.flag(fields["allow_cross"], f"allow_cross of {what}"),
        sheet.text(fields.get("query", nothing), f"the query of {what}"),
        at,
    )


def _period(sheet: _Sheet, node: yaml.Node, what: str) -> float:
    if _kind(node) == "str" and node.value == "continuous":
        return 0.0
    length = sheet.duration(node, what, "continuous, or a duration such as 10s")
    if length < MIN_PERIOD_S:
        sheet.fault(node, f"{what} must be at least 100ms, or continuous, but is {shown(node.value)}")
    return length
