"""The conditions an index can serve, a circle or a span, as steps that compute the cells of a row.

The index side (subscriptions and the relations joined to them) has a row for every cell that a circle or span touches.
A row of the other side, the probe, is looked up by the one cell that contains it, at every level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from sqlglot import exp

from trimtab.pipeline.sql.query import DIALECT
from trimtab.pipeline.sql.share import S

if TYPE_CHECKING:
    from collections.abc import Callable

    Show = Callable[[exp.Expr], str]  # the SQL text of an expression, with its columns renamed where necessary

CELL: Final = "_cell"
LEVEL: Final = "_level"
# Height of the grid's rows, in radii at least. With an equality condition, a cell holds few rows to compare, so large
# cells are better (2 per circle). Without one, small cells are better (6 per circle).
COARSE: Final = 4
FINE: Final = 1
NARROWEST: Final = -1000
EVERYTHING: Final = 1024  # 2^1024 is infinite: all numbers are in cell 0
# Spans on the real line: cells have the width 2^level, at the first level at least as wide as the span, so a span
# touches two cells at most. Cells are wide enough for a double to tell neighbours apart. In Spark, NaN > infinity.
_NARROW: Final = "ceil(log2(greatest(abs(low), abs(high), 1e-300D))) - 40"
SPANS: Final = {
    "_span_level": (
        "low DOUBLE, high DOUBLE", "INT",
        "CASE WHEN high >= low THEN CASE WHEN high - low < double('Infinity') THEN "
        f"CAST(greatest({NARROWEST}, {_NARROW}, ceil(log2(greatest(high - low, 1e-300D)))) AS INT) "
        f"ELSE {EVERYTHING} END END",
    ),
    "_span_cells": (
        "low DOUBLE, high DOUBLE, level INT", "ARRAY<BIGINT>",
        "CASE WHEN level IS NOT NULL THEN sequence(floor(low / pow(2D, level)), floor(high / pow(2D, level))) END",
    ),
    "_span_cell": ("x DOUBLE, level INT", "BIGINT", "floor(x / pow(2D, level))"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NewColumn:
    """A new column."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Explode:
    """A row for every element of an array."""

    name: str
    value: str


Step = NewColumn | Explode


def keyed(sql: str, alias: str, steps: list[Step], key: list[str], *, keep: set[str]) -> str:
    """``sql`` with _cell, the hash of ``key``. The steps are nested queries, so that Spark computes each value once."""
    for step in steps:
        value = f"explode({step.value})" if isinstance(step, Explode) else step.value
        sql = f"SELECT {alias}.*, {value} AS {step.name} FROM ({sql}) AS {alias}"
    dropped = ", ".join(step.name for step in steps if step.name not in keep)
    return f"SELECT {alias}.* EXCEPT ({dropped}), xxhash64({', '.join(key)}) AS {CELL} FROM ({sql}) AS {alias}"


def _vector(lat: str, lon: str) -> list[Step]:
    """A place as a point of the unit sphere."""
    return [
        NewColumn("_i", f"cos(radians({lat})) * cos(radians({lon}))"),
        NewColumn("_j", f"cos(radians({lat})) * sin(radians({lon}))"),
        NewColumn("_k", f"sin(radians({lat}))"),
    ]


@dataclass(frozen=True, slots=True)
class Circle:
    """A condition: the probe's place lies within a radius of a place of the index side."""

    probe: str
    place: list[exp.Expr]
    centre: list[exp.Expr]
    km: exp.Expr
    fine: bool = False

    def alone(self) -> Circle:
        return replace(self, fine=True)

    @property
    def kept(self) -> tuple[str, ...]:
        return ("_i", "_j", "_k", "_chord") if self.fine else ()

    def needs(self) -> set[str]:
        return tables_of(*self.centre, self.km)

    def first_filter(self, probe: str) -> str:
        """A cheap necessary condition: the chord through the Earth is short enough."""
        if not self.fine:
            return ""
        line = " + ".join(f"({probe}._{axis} - {S}._{axis}) * ({probe}._{axis} - {S}._{axis})" for axis in "ijk")
        return f" AND {line} <= {S}._chord"

    def words(self) -> str:
        return f"radius around ({', '.join(written(expression) for expression in self.centre)})"

    def side(self, show: Show) -> list[Step]:
        (lat, lon), km = (show(expression) for expression in self.centre), show(self.km)
        return [
            NewColumn("_angle", f"CASE WHEN abs({lat}) <= 90 AND abs({lon}) <= 360 THEN _circle_angle({km}) END"),
            *([*_vector(lat, lon), NewColumn("_chord", "_circle_chord(_angle)")] if self.fine else []),
            NewColumn(LEVEL, f"_circle_level(_angle, {FINE if self.fine else COARSE})"),
            NewColumn("_reach", f"_circle_reach({lat}, _angle)"),
            NewColumn("_south", f"_place_row(greatest(-90D, {lat} - _angle), {LEVEL})"),
            NewColumn("_north", f"_place_row(least(90D, {lat} + _angle), {LEVEL})"),
            Explode("_y", "sequence(_south, _north)"),
            NewColumn("_n", f"_row_cells(_y, {LEVEL})"),
            NewColumn("_west", f"_place_column({lon} - _reach, _n)"),
            NewColumn("_east", f"least(_place_column({lon} + _reach, _n), _west + _n - 1)"),
            Explode("_x", "sequence(_west, _east)"),
        ]

    def key(self) -> str:
        return "_y, pmod(_x, _n)"

    def look_up(self, levels: str) -> list[Step]:
        lat, lon = (written(expression) for expression in self.place)
        on_earth = f"abs({lat}) <= 90 AND abs({lon}) <= 360"
        return [
            *(_vector(lat, lon) if self.fine else []),
            Explode(LEVEL, levels),
            NewColumn("_y", f"CASE WHEN {on_earth} THEN _place_row({lat}, {LEVEL}) END"),
            NewColumn("_n", f"_row_cells(_y, {LEVEL})"),
            NewColumn("_x", f"_place_column({lon}, _n)"),
        ]


@dataclass(frozen=True, slots=True)
class Span:
    """A column of the probe between two values of the side."""

    column: exp.Column
    low: exp.Expr
    high: exp.Expr
    scale: str
    kept: ClassVar = ()

    def alone(self) -> Span:
        return self

    @property
    def probe(self) -> str:
        return self.column.table

    def needs(self) -> set[str]:
        return tables_of(self.low, self.high)

    def first_filter(self, probe: str) -> str:
        return ""

    def words(self) -> str:
        return f"range of {written(self.column)}"

    def _ends(self, show: Show) -> str:
        return ", ".join(
            f"CAST({self.scale.format(show(expression))} AS DOUBLE)" for expression in (self.low, self.high)
        )

    def side(self, show: Show) -> list[Step]:
        ends = self._ends(show)
        return [
            NewColumn(LEVEL, f"_span_level({ends})"),
            NewColumn("_cells", f"_span_cells({ends}, {LEVEL})"),
            Explode("_y", "_cells"),
        ]

    def key(self) -> str:
        return "_y"

    def look_up(self, levels: str) -> list[Step]:
        return [
            Explode(LEVEL, levels),
            NewColumn("_y", f"_span_cell(CAST({self.scale.format(written(self.column))} AS DOUBLE), {LEVEL})"),
        ]


def tables_of(*expressions: exp.Expr) -> set[str]:
    """The tables whose columns the expressions use."""
    return {column.table for expression in expressions for column in expression.find_all(exp.Column)}


def written(expression: exp.Expr) -> str:
    return expression.sql(DIALECT)
