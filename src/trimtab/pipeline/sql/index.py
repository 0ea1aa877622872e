"""Finds conditions of a shared query that an index can serve, and rewrites the query to use the index.

An index has a 64-bit key per subscription and cell: a hash of the parameters that are compared for equality and of the
cell, in a grid (for a radius) or on a scale (for a range). A publication looks up its own cells, one per level, in a
hash join. The original conditions then filter the pairs found, so the index must be complete but need not be exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from trimtab.pipeline.sql.conditions import bounds, flat, within
from trimtab.pipeline.sql.query import DIALECT
from trimtab.pipeline.sql.shapes import CELL, LEVEL, Circle, Span, keyed, tables_of, written
from trimtab.pipeline.sql.share import SUBSCRIPTIONS, S, parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Types = Mapping[str, Mapping[str, str]]  # table -> column -> type

SCALES: Final = {  # type -> expression that converts a value to a number
    "int": "{0}", "long": "{0}", "double": "{0}", "date": "unix_date({0})", "timestamp": "unix_micros({0})",
}  # fmt: skip
NUMBERS: Final = ("int", "long", "double")
ARITHMETIC: Final = (exp.Literal, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Paren)


@dataclass(frozen=True, slots=True)
class Index:
    """One index of a shared query."""

    name: str  # name of the index's table
    kind: str  # description for people
    sql: str  # query for the index's rows: all columns of a subscription, and _level and _cell
    probe: str  # alias of the relation whose rows are looked up in the index
    own: bool  # whether the index depends on the subscriptions alone, so that it can be kept between executions


@dataclass(frozen=True, slots=True)
class Indexed:
    """A query that uses indexes; NAME_LEVELS() is a placeholder for the levels in use."""

    sql: str
    indexes: tuple[Index, ...]

    def at(self, levels: Mapping[str, Iterable[int]], fewer_publications: bool = True) -> str:
        """The query for indexes with these levels; the smaller side of the join is broadcast."""
        sql = self.sql
        for index in self.indexes:
            sql = sql.replace(f"BROADCAST({index.name})", f"BROADCAST({index.probe if fewer_publications else S})")
            numbers = ", ".join(str(level) for level in sorted(levels[index.name]))
            sql = sql.replace(f"{index.name}_levels()".upper(), f"CAST(array({numbers}) AS ARRAY<INT>)")
        return sql


def use_indexes(shared: exp.Query, types: Types, parameters: Mapping[str, str]) -> Indexed | None:
    """The query rewritten with an index in every block that can use one; None if no block can."""
    tree = shared.copy()
    indexes: list[Index] = []
    for select in list(tree.find_all(exp.Select)):
        first = select.args.get("from_")
        if first is not None and first.this.name == SUBSCRIPTIONS and select.root() is tree:
            block = _Block(select, types, parameters)
            index = block.use(f"_index_{len(indexes)}")
            if index is not None:
                indexes.append(index)
    return Indexed(tree.sql(DIALECT, pretty=True), tuple(indexes)) if indexes else None


class _Block:
    """A query block that reads the subscriptions, and its rewriting with an index."""

    def __init__(self, select: exp.Select, types: Types, parameters: Mapping[str, str]) -> None:
        self.select = select
        self.joins: list[exp.Join] = select.args.get("joins") or []
        self.inner = {
            join.alias_or_name: join
            for join in self.joins
            if join.side == "" and join.kind in ("", "CROSS", "INNER") and not isinstance(join.this, exp.Lateral)
        }
        # Relations that an index can include. Names from WITH are excluded: they exist inside the query only.
        self.alone = {
            alias
            for alias, join in self.inner.items()
            if all(table.name in types or table.name == SUBSCRIPTIONS for table in join.this.find_all(exp.Table))
        }
        where = select.args.get("where")
        clauses = [where.this] if where else []
        clauses += [join.args["on"] for join in self.inner.values() if join.args.get("on")]
        parts = [part for condition in clauses for part in flat(condition)]
        self.conditions = [condition for condition in parts if not condition.find(exp.Query)]
        self.types = {S: _lower(parameters)}
        self.types |= {alias: _lower(types.get(join.this.name, {})) for alias, join in self.inner.items()}

    def use(self, name: str) -> Index | None:
        matches: list[Circle | Span] = [*self._circles(), *self._spans()]
        return self._rewrite(matches[0], name) if matches else None

    # Conditions that an index can serve.

    def _circles(self) -> Iterable[Circle]:
        for condition in self.conditions:
            call, radius = within(condition)
            if call is None or radius is None:
                continue
            ends = (call.expressions[:2], call.expressions[2:])
            for place, centre in (ends, ends[::-1]):
                probes, needs = tables_of(*place), tables_of(*centre, radius)
                probe = next(iter(probes), "")
                if probes == {probe} and probe in self.inner and needs and self._reach(probe) >= needs:
                    yield Circle(probe, place, centre, radius)

    def _spans(self) -> Iterable[Span]:
        lows: dict[str, exp.Expr] = {}
        highs: dict[str, exp.Expr] = {}
        columns: dict[str, exp.Column] = {}
        for condition in self.conditions:
            for column, kind, bound in bounds(condition):
                needs = tables_of(bound)
                if column.table in self.inner and needs and self._reach(column.table) >= needs:
                    columns[written(column)] = column
                    (lows if kind in (exp.GTE, exp.GT) else highs).setdefault(written(column), bound)
        for text, column in columns.items():
            type_ = self._type(column) or ""
            if type_ in SCALES and text in lows and text in highs:
                ends = (lows[text], highs[text])
                if type_ not in NUMBERS or all(map(self._is_number, ends)):
                    yield Span(column, *ends, SCALES[type_])

    def _is_number(self, expression: exp.Expr) -> bool:
        """Whether the expression is numeric. Texts are not: Spark casts them, and reads '2.5' as 2 beside an INT."""
        return all(
            self._type(node) in NUMBERS if isinstance(node, exp.Column) else isinstance(node, ARITHMETIC)
            for node in expression.walk(prune=lambda node: isinstance(node, exp.Column))
        ) and not any(literal.is_string for literal in expression.find_all(exp.Literal))

    def _reach(self, probe: str) -> set[str]:
        """Relations joined to the subscription by equality, directly or indirectly, but not through ``probe``."""
        side = {S}
        while True:
            more = {
                alias
                for alias in self.alone
                if alias not in side and alias != probe and any(self._ties(alias, side))
            }  # fmt: skip
            if not more:
                return side
            side |= more

    def _ties(self, alias: str, side: set[str]) -> Iterable[exp.Expr]:
        for condition in self.conditions:
            if isinstance(condition, exp.EQ):
                ends = (condition.this, condition.expression)
                for own, other in (ends, ends[::-1]):
                    if tables_of(own) == {alias} and tables_of(other) and tables_of(other) <= side:
                        yield condition

    # The rewriting.

    def _rewrite(self, match: Circle | Span, name: str) -> Index:
        probe, side = match.probe, {S}
        inside: list[str] = []
        if match.needs() != {S}:  # the condition needs more tables than the subscriptions: join them first
            side = self._reach(probe)
            inside = [alias for alias in self.inner if alias in side]
        equal = list(self._equalities(probe, side))
        if not equal:
            match = match.alone()
        sql = self._side(match, inside, [own for _, own in equal])
        self._look_up(match, name, [probed for probed, _ in equal])
        self._use_index(inside, name)
        words = [match.words(), *(f"{written(probed)} = {written(own)}" for probed, own in equal)]
        self.select.set("hint", exp.Hint(expressions=[exp.Anonymous(this="BROADCAST", expressions=[exp.column(name)])]))
        return Index(name, " and ".join(words), sql, _name(probe), own=not inside)

    def _equalities(self, probe: str, side: set[str]) -> Iterable[tuple[exp.Expr, exp.Expr]]:
        for condition in self._ties(probe, side):
            ends = (condition.this, condition.expression)
            probed, own = ends if tables_of(ends[0]) == {probe} else ends[::-1]
            types = {self._type(probed), self._type(own)}
            if len(types) == 1 and types != {None}:
                yield probed, own

    def _type(self, expression: exp.Expr) -> str | None:
        if not isinstance(expression, exp.Column):
            return None
        return self.types.get(expression.table, {}).get(expression.name.lower())

    def _side(self, match: Circle | Span, inside: list[str], equal: list[exp.Expr]) -> str:
        """The query for the index: the subscriptions and the relations joined to them, a row per cell."""
        sql = f"SELECT {S}.* FROM {SUBSCRIPTIONS} AS {S}"
        if inside:
            used = {column.sql(): column for column in self._columns_of(inside)}
            columns = [written(exp.alias_(column.copy(), _kept(column), quoted=True)) for column in used.values()]
            joins = " ".join(f"CROSS JOIN {written(self.inner[alias].this)}" for alias in inside)
            available = {S, *inside}
            conditions = [written(condition) for condition in self.conditions if tables_of(condition) <= available]
            sql = (
                f"SELECT {', '.join([f'{S}.*', *columns])} FROM {SUBSCRIPTIONS} AS {S} {joins} "
                f"WHERE {' AND '.join(conditions)}"
            )

        def show(expression: exp.Expr) -> str:
            return written(_renamed(expression.copy(), inside))

        steps = match.side(show)
        return keyed(sql, S, steps, [*map(show, equal), LEVEL, match.key()], keep={LEVEL, *match.kept})

    def _look_up(self, match: Circle | Span, name: str, equal: list[exp.Expr]) -> None:
        join, alias = self.inner[match.probe], _name(match.probe)
        steps, key = match.look_up(f"{name}_levels()"), [*map(written, equal), LEVEL, match.key()]
        keep = set(match.kept)
        exploded = parse(keyed(f"SELECT {alias}.* FROM _probe AS {alias}", alias, steps, key, keep=keep))
        probe = next(table for table in exploded.find_all(exp.Table) if table.name == "_probe")
        source = join.this
        join.set("this", exp.Subquery(this=exploded, alias=exp.TableAlias(this=exp.to_identifier(match.probe))))
        probe.replace(source)
        first = f"{alias}.{CELL} = {S}.{CELL}{match.first_filter(alias)}"
        where = self.select.args.get("where")
        self.select.where(parse(first), *([where.this] if where else []), append=False, copy=False)

    def _use_index(self, inside: list[str], name: str) -> None:
        """Read the subscriptions from the index, and remove joins with relations that the index includes."""
        self.select.set("from_", exp.From(this=exp.to_table(name, alias=S)))
        for alias in inside:
            on = self.inner[alias].args.get("on")
            if on is not None:  # the condition may refer to other relations, too
                self.select.where(on.copy(), copy=False)
        self.select.set("joins", [join for join in self.joins if join.alias_or_name not in inside])
        for column in self._columns_of(inside):
            column.replace(exp.column(_kept(column), S))

    def _columns_of(self, aliases: list[str]) -> list[exp.Column]:
        """All uses of columns of these relations, except in subqueries that define the same alias themselves."""
        return [
            column
            for column in self.select.find_all(exp.Column)
            if column.table in aliases and not self._is_of_another(column)
        ]  # fmt: skip

    def _is_of_another(self, column: exp.Column) -> bool:
        select = column.find_ancestor(exp.Select)
        while select is not None and select is not self.select:
            sources = (select.args.get("from_"), *(select.args.get("joins") or []))
            if any(source is not None and source.alias_or_name == column.table for source in sources):
                return True
            select = select.find_ancestor(exp.Select)
        return False


def _lower(types: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): kind for name, kind in types.items()}


def _kept(column: exp.Column) -> str:
    return f"_{column.table}__{column.name}"


def _renamed(tree: exp.Expr, inside: list[str]) -> exp.Expr:
    return tree.transform(
        lambda node: exp.column(_kept(node), S) if isinstance(node, exp.Column) and node.table in inside else node
    )


def _name(alias: str) -> str:
    return written(exp.to_identifier(alias))
