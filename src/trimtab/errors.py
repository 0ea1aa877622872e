"""All errors that a caller may want to catch.

    TrimtabError
    ├── BadInput (ValueError)        an input cannot be used; the command line exits with 2
    │   ├── BadTable                 a bad value in a workload or placement table
    │   ├── MissingColumn            a column that the problem needs is absent
    │   ├── UnknownName              a policy, world, topic, broker, ... that does not exist
    │   ├── BadKnob                  a knob outside its range
    │   ├── TooLarge                 a problem too large for a policy, or a message too large for a server
    │   ├── BadManifest              a bad line of an application's manifest
    │   ├── Moving                   a key in a move, which cannot be moved again or deleted now
    │   ├── AlreadyThere             a move to the key's present broker
    │   ├── LinkRefused              a link that the placement assigns no broker
    │   ├── NotStartedHere           a broker that another process started
    │   └── VersionMismatch          a message of a protocol version that this process does not know
    └── Unreachable (ConnectionError)   a part of the fleet does not answer; the command line exits with 2
        ├── NoAnswer                 the process that got the request does not answer
        └── NoLeader                 this controller does not lead

Each sentence contains the request, the value that was found, and the rule. Code that reacts to an error checks its
class or its ``kind``, never its sentence. Errors with a ``kind`` are passed between processes: see ``travelled``.
"""

from __future__ import annotations

import difflib
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trimtab.pipeline.yaml_source import Place


class Kind(StrEnum):
    """The kind of an error, as it is written in a reply."""

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
    """The root of the tree. It can be pickled, whatever arguments its class takes."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.args, self.__dict__)


def _restored(kind: type[TrimtabError], args: tuple[Any, ...], state: dict[str, Any]) -> TrimtabError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


class BadInput(TrimtabError, ValueError):
    """An input that cannot be used."""

    kind: ClassVar[Kind] = Kind.BAD_INPUT
    fields: ClassVar[tuple[str, ...]] = ()  # attributes that travel with the error


class BadTable(BadInput):
    """A bad value in a table. ``row`` counts from 0, and is None if the whole table is meant."""

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
        """The same error with the name of the table's file."""
        return BadTable(path, self.problem, self.row)


def _line(path: str, row: int) -> int:
    """The line of a row in a CSV file: rows follow the header, and empty lines are not rows."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            rows = -2  # so that the header is row -1
            for number, line in enumerate(file, 1):
                rows += bool(line.strip())
                if rows == row:
                    return number
    except OSError:
        pass
    return row + 2


class MissingColumn(BadInput):
    """A column that the problem needs is absent."""

    def __init__(self, table: str, column: str, present: Iterable[str], why: str) -> None:
        self.table = table
        self.column = column
        super().__init__(f"{table} has no column '{column}' ({why}); it has: {', '.join(present) or 'none'}")


class UnknownName(BadInput):
    """A name that is not registered. ``what`` is the kind of thing: a topic, a broker, ..."""

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
    """A problem that is too large for a policy, or a message that is too large for a server."""

    kind = Kind.TOO_LARGE


class BadManifest(BadInput):
    """A fault in an application's manifest, at a place in its file."""

    def __init__(self, place: Place, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")


class Moving(BadInput):
    """The key to be moved or deleted is in a move."""

    kind = Kind.MOVING


class AlreadyThere(BadInput):
    """The key to be moved is already at the target broker."""

    kind = Kind.ALREADY_THERE
    fields = ("broker",)
    broker: str = ""

    def __init__(self, text: str, broker: str) -> None:
        self.broker = broker
        super().__init__(text)


class LinkRefused(BadInput):
    """Admission control: the placement assigns this link no broker."""

    kind = Kind.REFUSED_LINK


class NotStartedHere(BadInput):
    """A broker that this process did not start and therefore cannot end."""

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
    """A part of the fleet does not answer. ``changed``: whether the request may have been carried out all the same."""

    kind: ClassVar[Kind] = Kind.UNREACHABLE
    fields: ClassVar[tuple[str, ...]] = ("changed",)
    changed: bool = False

    def __init__(self, text: str, *, changed: bool = False) -> None:
        self.changed = changed
        super().__init__(text)


class NoAnswer(Unreachable):
    """The process that got the request does not answer. Raised in the process that sent the request."""


class NoLeader(Unreachable):
    """This controller does not lead, so the request must be sent to another one."""

    kind = Kind.NO_LEADER


_BY_KIND: Final[dict[str, type[BadInput | Unreachable]]] = {
    error.kind: error
    for error in (
        BadInput, UnknownName, TooLarge, Moving, AlreadyThere, LinkRefused, NotStartedHere, VersionMismatch,
        Unreachable, NoLeader,
    )
}  # fmt: skip


def travelled(kind: str, text: str, fields: Mapping[str, Any]) -> BadInput | Unreachable:
    """The error in another process's reply; an error of an unknown kind becomes ``BadInput``."""
    cls = _BY_KIND.get(kind, BadInput)
    error = _restored(cls, (text,), {name: fields[name] for name in cls.fields if name in fields})
    assert isinstance(error, BadInput | Unreachable)
    return error
