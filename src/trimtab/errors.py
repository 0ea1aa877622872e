"""Every error a caller may want to catch.

    TrimtabError
    └── BadInput (ValueError)        what came in cannot be used; the command line exits with 2
        ├── BadTable                 a value in a workload or placement table
        ├── MissingColumn            a column the question needs
        ├── UnknownName              a policy, world, experiment, ... that does not exist
        ├── BadKnob                  a knob outside its range
        ├── TooLarge                 more work than a policy should be asked for
        ├── BadManifest              a line of an application's manifest
        └── Unreachable (ConnectionError)   a part of the fleet does not answer

Each sentence says what was asked, what came, and what would have been right.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trimtab.pipeline.yaml_source import Place


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
    """A name that nothing is registered under."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = list(known)
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else ";"
        super().__init__(f"there is no {kind} '{name}'{hint} known: {', '.join(names) or 'none'}")


class BadKnob(BadInput):
    """A knob outside its range."""

    def __init__(self, owner: str, knob: str, value: object, rule: str) -> None:
        super().__init__(f"{owner}: {knob} must be {rule}, but is {value!r}")


class TooLarge(BadInput):
    """More work than a policy should be asked for."""


class BadManifest(BadInput):
    """An application's manifest says something it must not, at a place in its file."""

    def __init__(self, place: Place, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")


class Unreachable(BadInput, ConnectionError):
    """A part of the fleet does not answer; nothing was changed."""
