"""Every error a caller may want to catch.

    TrimtabError
    ├── BadInput (ValueError)        what came in cannot be used; the command line exits with 2
    │   ├── BadTable                 a value in a workload or placement table
    │   ├── MissingColumn            a column the question needs
    │   ├── UnknownName              a policy, world, topic, broker, ... that does not exist
    │   ├── BadKnob                  a knob outside its range
    │   ├── TooLarge                 more work than a policy should be asked for, or too large a message
    │   ├── BadManifest              a line of an application's manifest
    │   ├── Moving                   it is being moved, so it cannot be moved or deleted now
    │   ├── AlreadyThere             a move to the broker where it is
    │   ├── LinkRefused              a link that the placement carries nowhere
    │   ├── NotStartedHere           a broker that another process started
    │   └── VersionMismatch          a message of a protocol version that this process does not know
    └── Unreachable (ConnectionError)   a part of the fleet does not answer; the command line exits with 2
        ├── NoAnswer                 the process that was asked does not answer
        └── NoLeader                 this controller does not lead

Each sentence says what was asked, what came, and what would have been right. Code that reacts to an error goes by its
class or its ``kind``, never by its sentence. Errors with a ``kind`` travel between processes: see ``travelled``.
"""

from __future__ import annotations

import difflib
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trimtab.pipeline.yaml_source import Place


class Kind(StrEnum):
    """What went wrong, as it is written in a reply."""

    BAD_INPUT = "bad_input"
    UNKNOWN_NAME = "unknown_name"
    TOO_LARGE = "too_large"
    MOVING = "moving"
    ALREADY_THERE = "already_there"
    REFUSED_LINK = "refused_link"
    NOT_STARTED_HERE = "not_started_here"
    VERSION = "version"
    UNREACHABLE = "unreachable"
    NO_LEADER = "no_leader"


class TrimtabError(Exception):
    """The root of the tree. Comes through a pipe as it is, whatever its class was made from."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.args, self.__dict__)


def _again(kind: type[TrimtabError], args: tuple[Any, ...], state: dict[str, Any]) -> TrimtabError:
    made = kind.__new__(kind)
    made.args = args
    made.__dict__.update(state)
    return made


class BadInput(TrimtabError, ValueError):
    """What came in cannot be used."""

    kind: ClassVar[Kind] = Kind.BAD_INPUT
    fields: ClassVar[tuple[str, ...]] = ()  # attributes that travel with the error


class BadTable(BadInput):
    """A table holds something it must not; ``row`` counts from 0, and is None for the whole table."""

    def __init__(self, table: str, problem: str, row: int | None = None) -> None:
        self.table = table
        self.problem = problem
        self.row = row
        if row is None:
            where = table
        elif table.endswith(".csv"):
            where = f"{table}, row {row + 1} (line {_line(table, row)})"
        else:
            where = f"{table}, row {row + 1}"
        super().__init__(f"{where}: {problem}")

    def in_file(self, path: str) -> BadTable:
        """The same, naming the file the table came from."""
        return BadTable(path, self.problem, self.row)


def _line(path: str, row: int) -> int:
    """Where an editor shows a row of a CSV file: after the header, and empty lines are no rows."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            rows = -2  # the header is none
            for number, line in enumerate(file, 1):
                rows += bool(line.strip())
                if rows == row:
                    return number
    except OSError:
        pass
    return row + 2


class MissingColumn(BadInput):
    """A column that the question needs is not there."""

    def __init__(self, table: str, column: str, present: Iterable[str], why: str) -> None:
        self.table = table
        self.column = column
        super().__init__(f"{table} has no column '{column}' ({why}); it has: {', '.join(present) or 'none'}")


class UnknownName(BadInput):
    """A name that nothing is registered under. ``what`` says of which sort: a topic, a broker, ..."""

    kind = Kind.UNKNOWN_NAME
    fields = ("what", "name")
    what: str = ""
    name: str = ""

    def __init__(self, what: str, name: str, known: Iterable[str]) -> None:
        self.what = what
        self.name = name
        names = list(known)
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ";"
        super().__init__(f"there is no {what} '{name}'{hint} known: {', '.join(names) or 'none'}")


class BadKnob(BadInput):
    """A knob outside its range."""

    def __init__(self, owner: str, knob: str, value: object, rule: str) -> None:
        super().__init__(f"{owner}: {knob} must be {rule}, but is {value!r}")


class TooLarge(BadInput):
    """More work than a policy should be asked for, or a message larger than a server takes."""

    kind = Kind.TOO_LARGE


class BadManifest(BadInput):
    """An application's manifest says something it must not, at a place in its file."""

    def __init__(self, place: Place, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")


class Moving(BadInput):
    """What should be moved or deleted is in a move."""

    kind = Kind.MOVING


class AlreadyThere(BadInput):
    """What should be moved is at that broker."""

    kind = Kind.ALREADY_THERE
    fields = ("broker",)
    broker: str = ""

    def __init__(self, text: str, broker: str) -> None:
        self.broker = broker
        super().__init__(text)


class LinkRefused(BadInput):
    """Admission control: the placement carries this link nowhere."""

    kind = Kind.REFUSED_LINK


class NotStartedHere(BadInput):
    """A broker that this process did not start, so that it cannot end it."""

    kind = Kind.NOT_STARTED_HERE


class VersionMismatch(BadInput):
    """A message of a protocol version that this process does not know."""

    kind = Kind.VERSION
    fields = ("version",)
    version: int = 0  # of the message

    def __init__(self, text: str, version: int) -> None:
        self.version = version
        super().__init__(text)


class Unreachable(TrimtabError, ConnectionError):
    """A part of the fleet does not answer. ``changed``: whether what was asked for may have been done all the same."""

    kind: ClassVar[Kind] = Kind.UNREACHABLE
    fields: ClassVar[tuple[str, ...]] = ("changed",)
    changed: bool = False

    def __init__(self, text: str, *, changed: bool = False) -> None:
        self.changed = changed
        super().__init__(text)


class NoAnswer(Unreachable):
    """The process that was asked does not answer; told by the process that asked it."""


class NoLeader(Unreachable):
    """This controller does not lead, so another one must be asked."""

    kind = Kind.NO_LEADER


_BY_KIND: Final[dict[str, type[BadInput | Unreachable]]] = {
    each.kind: each
    for each in (
        BadInput, UnknownName, TooLarge, Moving, AlreadyThere, LinkRefused, NotStartedHere, VersionMismatch,
        Unreachable, NoLeader,
    )
}  # fmt: skip


def travelled(kind: str, text: str, fields: Mapping[str, Any]) -> BadInput | Unreachable:
    """The error that another process has told of; one of a kind that this process does not know is ``BadInput``."""
    cls = _BY_KIND.get(kind, BadInput)
    made = _again(cls, (text,), {name: fields[name] for name in cls.fields if name in fields})
    assert isinstance(made, BadInput | Unreachable)
    return made
