"""Reads YAML with line numbers, and collects all faults in it.

Every fault is recorded and the faulty value replaced by a harmless one. Reading goes on, and the topmost fault can be
reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import yaml

from trimtab.errors import BadInput, BadManifest, UnknownName
from trimtab.fleet.protocol.types import TYPES, is_text, shown

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAX_BYTES: Final = 1 << 20
MAX_NODES: Final = 20_000  # keys, values, lists and mappings: 400 feeds of 20 columns
MAX_ALIASES: Final = 100  # with MAX_ENTRIES, limits the size that a small file can expand to
MAX_ENTRIES: Final = 1_000  # entries of one mapping or list
MAX_DEPTH: Final = 16  # a manifest needs 5

_UNITS: Final = {"ms": 1, "": 1_000, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}  # in ms
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d|)")
_LONGEST_S: Final = 36_500 * 86_400.0  # well below 292 years, the limit of NATS: 64 bits of nanoseconds
DAY_S: Final = 86_400.0

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_NAME: Final = 63

_YAML: Final = "tag:yaml.org,2002:"
_TAKEN_FOR: Final = {"bool": "true or false", "int": "a number", "float": "a number", "timestamp": "a date"}


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file; line 0 is the file as a whole."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def seconds(text: str) -> float:
    """The seconds of a duration such as ``500ms``, ``10s``, ``5m``, ``1h`` or ``7d``; a plain number is seconds."""
    match = _DURATION.fullmatch(text)
    length = float(Decimal(match[1]) * _UNITS[match[2]] / 1_000) if match else None
    if length is None or length > _LONGEST_S:
        raise BadInput(
            "a duration is a number and a unit, such as 500ms, 10s, 5m, 1h or 7d, of 100 years at most, "
            f"but this came: {shown(text)}"
        )
    return length


# From bytes to nodes.


def content(path: Path) -> str:
    file_place = Place(str(path), 0)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise BadManifest(file_place, "there is no such file") from None
    except IsADirectoryError:
        raise BadManifest(file_place, "this is a folder; a manifest is a YAML file") from None
    except (OSError, ValueError) as error:
        raise BadManifest(file_place, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > MAX_BYTES:
        raise BadManifest(file_place, f"the file has more than {MAX_BYTES:,} bytes, which no manifest needs")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        at = Place(file_place.file, error.object.count(b"\n", 0, error.start) + 1)
        raise BadManifest(at, f"a manifest is UTF-8 text, but here is the byte 0x{data[error.start]:02x}") from None


class _Composer(yaml.SafeLoader):
    """Composes nodes without constructing objects. Refuses files with too many nodes, aliases or levels."""

    nodes = 0
    aliases = 0
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self.nodes += 1
        self.aliases += self.check_event(yaml.AliasEvent)
        self.depth += 1
        for most, count, noun in (
            (MAX_NODES, self.nodes, "keys and values"),
            (MAX_ALIASES, self.aliases, "aliases"),
            (MAX_DEPTH, self.depth, "levels of nesting"),
        ):
            if count > most:
                raise yaml.composer.ComposerError(
                    None, None, f"found more than {most:,} {noun}", self.current_event.start_mark
                )
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is not None and node.tag == f"{_YAML}merge":
            problem = "found '<<', but nothing is merged here; write the entries out"
            raise yaml.composer.ComposerError(None, None, problem, node.start_mark)
        return node


def compose(file: str, text: str) -> yaml.Node:
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
        problem = ", ".join(part for part in (error.context, error.problem) if part)
        raise BadManifest(
            Place(file, mark.line + 1 if mark else 1), f"this cannot be read as YAML: {problem}"
        ) from None
    except (ValueError, OverflowError):  # numbers in escapes and directives that PyYAML does not bound
        at = Place(file, loader.line + 1 if loader else 1)
        raise BadManifest(at, "this cannot be read as YAML: a number in it is too large") from None
    if root is None:
        raise BadManifest(Place(file, 1), "the manifest is empty; it needs at least app and feeds")
    return root


# From nodes to values. A missing value is represented by a null node at the line of the mapping that lacks it.

Fields = dict[str, yaml.Node]


def kind_of(node: yaml.Node) -> str:
    """map, seq, str, int, ...; the whole tag if it is a custom one or does not fit the node."""
    kind = str(node.tag).removeprefix(_YAML)
    fits = {"map": yaml.MappingNode, "seq": yaml.SequenceNode}.get(kind, yaml.ScalarNode)
    return kind if isinstance(node, fits) else str(node.tag)


def nothing(at: Place) -> yaml.Node:
    return yaml.ScalarNode(f"{_YAML}null", "", yaml.Mark(at.file, 0, at.line - 1, 0, None, 0))


def _description(node: yaml.Node) -> str:
    """A phrase for error messages that describes the node found."""
    kind = kind_of(node)
    if kind in ("map", "seq", "null"):
        return {"map": "a mapping", "seq": "a list", "null": "nothing"}[kind]
    if kind == "str":
        return shown(node.value)
    if kind in _TAKEN_FOR:
        return f"{shown(node.value)}, which YAML takes for {_TAKEN_FOR[kind]} without quotes"
    return f"something tagged {shown(node.tag)}"


def _not_text(node: yaml.Node) -> str:
    """The phrase for a node where text is expected, with a hint to quote it."""
    return f"{_description(node)}; put it in quotes" if kind_of(node) in _TAKEN_FOR else _description(node)


@dataclass(slots=True)
class NodeReader:
    """Reads values from the nodes of one file, and collects its faults."""

    file: str
    faults: list[BadManifest] = field(default_factory=list)

    def place(self, node: yaml.Node) -> Place:
        return Place(self.file, node.start_mark.line + 1)

    def fault(self, where: yaml.Node | Place, problem: str) -> None:
        self.faults.append(BadManifest(where if isinstance(where, Place) else self.place(where), problem))

    def entries(self, node: yaml.Node, what: str) -> list[tuple[Place, str, yaml.Node]]:
        """Place, name and value of each entry; empty for a null node."""
        kind = kind_of(node)
        if kind != "map":
            if kind != "null":
                self.fault(node, f"{what} must be a mapping (name: value), but this came: {_description(node)}")
            return []
        if self._too_many(node, what):
            return []
        entries: dict[str, tuple[Place, str, yaml.Node]] = {}
        for key, value in node.value:
            if kind_of(key) != "str" or not is_text(key.value):
                self.fault(key, f"a name in {what} must be text, but this came: {_not_text(key)}")
            elif key.value in entries:
                first = entries[key.value][0].line
                self.fault(key, f"{shown(key.value)} is in {what} twice; the first is in line {first}")
            else:
                entries[key.value] = (self.place(key), key.value, value)
        return list(entries.values())

    def fields(self, at: Place, node: yaml.Node, what: str, known: tuple[str, ...]) -> tuple[Place, Fields]:
        """The values of a mapping with fixed keys, and the place at which to report missing keys.

        That place is ``at``, unless the mapping has an unknown key: a misspelt key is not reported as missing, too.
        """
        fields = {}
        before = len(self.faults)
        for place, key, value in self.entries(node, what):
            if key in known:
                fields[key] = value
            else:
                self.fault(place, f"{what}: {unknown('key', key, known)}")
        return self.faults[before].place if len(self.faults) > before else at, fields

    def only_one(self, fields: Fields, choices: tuple[str, ...], at: Place, what: str) -> str:
        """The one key of ``choices`` that is present; the first if there is not exactly one."""
        present = [key for key in fields if key in choices]
        needs = f"{what} needs one of {', '.join(choices[:-1])} and {choices[-1]}"
        if not present:
            self.fault(at, f"{needs}, but has none")
        elif len(present) > 1:
            self.fault(fields[present[1]], f"{needs}, but has {' and '.join(present)}")
        return present[0] if present else choices[0]

    def text(self, node: yaml.Node, what: str) -> str:
        """A non-empty text; otherwise "", and a fault is recorded."""
        if kind_of(node) != "str":
            self.fault(node, f"{what} must be text, but this came: {_not_text(node)}")
        elif not node.value.strip():
            self.fault(node, f"{what} must be text, but it is empty")
        elif not is_text(node.value):
            self.fault(node, f"{what} has half a character in it (a lone surrogate): {_description(node)}")
        else:
            return str(node.value)
        return ""

    def texts(self, node: yaml.Node, what: str) -> list[tuple[yaml.Node, str]]:
        """A non-empty list of distinct texts."""
        if kind_of(node) != "seq":
            self.fault(node, f"{what} must be a list such as [one, other], but this came: {_description(node)}")
            return []
        if self._too_many(node, what):
            return []
        if not node.value:
            self.fault(node, f"{what} must be a list of at least one, but it is empty")
        texts: dict[str, yaml.Node] = {}
        for item in node.value:
            text = self.text(item, f"each of {what}")
            if text and text in texts:
                self.fault(item, f"{shown(text)} is in {what} twice")
            elif text:
                texts[text] = item
        return [(item, text) for text, item in texts.items()]

    def flag(self, node: yaml.Node, what: str) -> bool:
        value = yaml.SafeLoader.bool_values.get(node.value.lower()) if kind_of(node) == "bool" else None
        if value is None:
            self.fault(node, f"{what} must be true or false, without quotes, but this came: {_description(node)}")
        return bool(value)

    def duration(self, node: yaml.Node, what: str, rule: str = "a duration such as 10s") -> float:
        """A duration of more than 0 s. Numbers are taken as written: YAML would read 1:30 as 90 and 010 as 8."""
        if kind_of(node) not in ("str", "int", "float"):
            self.fault(node, f"{what} must be {rule}, but this came: {_description(node)}")
            return DAY_S
        try:
            length = seconds(node.value)
        except BadInput as error:
            self.fault(node, f"{what}: {error}")
            return DAY_S
        if not length:
            self.fault(node, f"{what} must be more than 0, but is {shown(node.value)}")
        return length

    def columns(self, node: yaml.Node, what: str) -> dict[str, str]:
        """Name -> type."""
        columns: dict[str, str] = {}
        spelled: dict[str, str] = {}
        for at, name, value in self.entries(node, what):
            if not _IDENTIFIER.fullmatch(name) or len(name) > LONGEST_NAME:
                rule = f"letters, digits and '_', no digit first, {LONGEST_NAME} at most"
                self.fault(at, f"a name in {what} is made of {rule}, but this came: {shown(name)}")
            other = spelled.setdefault(name.lower(), name)
            if other != name:
                self.fault(at, f"{what} has {shown(other)} and {shown(name)}, which are one name to SQL; rename one")
            columns[name] = self.text(value, f"the type of {shown(name)} in {what}")
            if columns[name] and columns[name] not in TYPES:
                self.fault(value, f"{shown(name)} in {what}: {unknown('type', columns[name], TYPES)}")
        return columns

    def _too_many(self, node: yaml.Node, what: str) -> bool:
        if len(node.value) > MAX_ENTRIES:
            self.fault(node, f"{what} may have {MAX_ENTRIES:,} entries at most, but has {len(node.value):,}")
        return len(node.value) > MAX_ENTRIES


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    return str(UnknownName(kind, repr(name[:80])[1:-1], known))
