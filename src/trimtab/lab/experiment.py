"""The protocol of experiments: independent jobs that return rows, and a report on all rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

Job = dict[str, Any]  # JSON scalars; also the job's key when a run is resumed
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bar:
    """A requirement on a result of the experiment, and the value reached."""

    claim: str
    value: float
    met: bool

    @classmethod
    def at_least(cls, claim: str, value: float, limit: float) -> Bar:
        return cls(f"{claim} >= {limit:g}", value, value >= limit)

    @classmethod
    def at_most(cls, claim: str, value: float, limit: float) -> Bar:
        return cls(f"{claim} <= {limit:g}", value, value <= limit)


@dataclass(frozen=True, slots=True)
class Report:
    text: str  # Markdown
    bars: tuple[Bar, ...]
    figures: dict[str, Any] = field(default_factory=dict)  # machine-readable results by name


class Experiment(Protocol):
    """An experiment has no state, since each worker process creates its own instance."""

    title: str
    seeds: int  # number of seeds that the bars need
    timed: bool  # whether jobs measure time, so that they must not share the machine

    def jobs(self, seeds: int) -> list[Job]:
        """All jobs. Further keyword arguments are knobs that the command line offers."""
        ...

    def run(self, job: Job) -> list[Row]: ...

    def report(self, rows: list[Row], out: Path) -> Report:
        """Draw figures into ``out``, and return the results in words."""
        ...


@runtime_checkable
class InTwoStages(Protocol):
    """An experiment with jobs that depend on the rows of the first ones."""

    def further(self, rows: list[Row]) -> list[Job]: ...


def mean(rows: Iterable[Row], column: str, **where: Any) -> float:
    """The mean over rows whose columns have the given values; NaN without such rows."""
    values = [row[column] for row in select(rows, **where)]
    return float(np.mean(values)) if values else float("nan")


def select(rows: Iterable[Row], **where: Any) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in where.items())]


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [f"| {' | '.join(columns)} |", f"|{'|'.join(['---', *['---:'] * (len(columns) - 1)])}|"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


def bars_table(bars: Iterable[Bar]) -> str:
    return markdown_table(
        ["must show", "measured", "met"],
        ((b.claim, f"{b.value:.6g}", "yes" if b.met else "**no**") for b in bars),
    )


def grouped(rows: Iterable[Row], key: Callable[[Row], Any]) -> dict[Any, list[Row]]:
    """Rows in groups, in the order in which the groups first appear."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
