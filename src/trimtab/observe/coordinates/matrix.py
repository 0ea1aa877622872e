"""Real round-trip times from a file: a square text of numbers, or rows ``from,to,rtt``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.observe.coordinates.node import MOST_RTT_MS

if TYPE_CHECKING:
    from trimtab.model.workload import Floats

UNITS: Final = {"ms": 1.0, "s": 1000.0}  # ms in one of them
FEWEST: Final = 4  # nodes of a matrix
MISSING: Final = frozenset({"", "-", "na", "n/a", "nan", "none", "null", "*"})
FIELDS: Final = 3  # of a row from, to, rtt


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Round-trip times between the nodes of a real network."""

    names: tuple[str, ...]
    rtt_ms: Floats  # (N, N); NaN where there is none, zero on the diagonal
    skipped: int  # entries left out: negative, zero, NaN, missing, or longer than ten seconds


def read_matrix(path: str | Path, unit: str = "ms") -> Matrix:
    """Read a matrix; raises ``BadInput`` with one sentence where the file cannot be used.

    Numbers are separated by blanks, tabs, commas or semicolons. ``from,to,rtt`` rows may have a header; of a pair that
    is given twice the later row counts, and the time holds for both directions unless both are given.
    """
    if unit not in UNITS:
        raise BadInput(f"unit '{unit}' must be one of {', '.join(UNITS)}")
    rows = _rows(Path(path))
    if not rows:
        raise BadInput(f"{path} is empty; it needs a square matrix of numbers, or rows from,to,rtt")
    named = all(len(row) == FIELDS for _, row in rows) and len(rows) != FIELDS
    names, rtt, skipped = (_from_rows if named else _from_square)(rows, str(path), UNITS[unit])
    np.fill_diagonal(rtt, 0.0)
    if len(names) < FEWEST:
        raise BadInput(f"{path} has {len(names)} nodes, but coordinates need {FEWEST} or more")
    if not (rtt > 0.0).any():
        raise BadInput(f"{path} has no round-trip time between 0 and {MOST_RTT_MS:,.0f} ms; check --unit, now {unit}")
    return Matrix(names, rtt, skipped)


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Line numbers and fields of the lines that are not empty."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise BadInput(f"{path} is not a text file; it needs a matrix of numbers, or rows from,to,rtt") from None
    separator = next((mark for mark in (",", ";", "\t") if mark in text), None)
    lines = [(number, line.strip(" \r\n")) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line.strip() and not line.startswith("#")]
    rows = [(number, [field.strip() for field in line.split(separator)]) for number, line in lines]
    if all(not row[-1] and len(row) in (len(rows) + 1, FIELDS + 1) for _, row in rows):
        rows = [(number, row[:-1]) for number, row in rows]  # every line ends with a separator
    return rows


def _from_square(rows: list[tuple[int, list[str]]], path: str, scale: float) -> tuple[tuple[str, ...], Floats, int]:
    count = len(rows)
    for number, row in rows:
        if len(row) != count:
            raise BadInput(f"{path} is not square: it has {count} rows, but line {number} has {len(row)} numbers")
    rtt = np.array([[_milliseconds(field, path, number, scale) for field in row] for number, row in rows])
    bad = np.isnan(rtt)
    np.fill_diagonal(bad, False)  # nobody needs a node's distance from itself
    return tuple(str(node) for node in range(count)), rtt, int(bad.sum())


def _from_rows(rows: list[tuple[int, list[str]]], path: str, scale: float) -> tuple[tuple[str, ...], Floats, int]:
    if not _is_number(rows[0][1][2]):
        rows = rows[1:]  # a header
    names = tuple(dict.fromkeys(name for _, row in rows for name in row[:2]))
    place = {name: node for node, name in enumerate(names)}
    rtt, skipped = np.full((len(names), len(names)), np.nan), 0
    for number, (one, other, field) in rows:
        value = _milliseconds(field, path, number, scale)
        if one != other:
            skipped += math.isnan(value)
            rtt[place[one], place[other]] = value
    return names, np.where(np.isnan(rtt), rtt.T, rtt), skipped


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return field.lower() in MISSING
    return True


def _milliseconds(field: str, path: str, line: int, scale: float) -> float:
    """The time in ms; NaN if there is none or it cannot be right."""
    if field.lower() in MISSING:
        return math.nan
    try:
        value = float(field) * scale
    except ValueError:
        raise BadInput(f"{path}, line {line}: '{field}' is not a number") from None
    return value if 0.0 < value <= MOST_RTT_MS else math.nan
