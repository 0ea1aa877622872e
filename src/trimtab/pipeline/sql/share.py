"""One plan for all subscriptions: parameters become columns of the table of subscriptions.

A query block that depends on parameters, itself or by what it reads, is joined with the subscriptions and carries
``_sub``, the subscription's id, through: into its grouping, the partitions of its windows, the joins with other blocks
that depend on parameters, its limit. So every subscription gets what the query would give it alone, and equality with
a parameter is a hash join. (Nguyen, DEBS'19, 3.1, runs a channel "against the subscriptions it holds"; how is
AsterixDB's. Lateral joins, Spark's own way to say this, compare all with all as soon as there is more than equality.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import sqlglot
from sqlglot import exp

from trimtab.errors import BadInput
from trimtab.pipeline.sql.query import DIALECT

if TYPE_CHECKING:
    from trimtab.pipeline.sql.query import Query

SUBSCRIPTIONS: Final = "_subscriptions"  # the table: _sub, and a column for every parameter
SUB: Final = "_sub"
RANK: Final = "_rank"  # in the answer: a row's place among those of its subscription
S: Final = "_s"  # the table's alias
EVERYBODY: Final = "_a"  # what is aggregated for those who have something to aggregate
OUTER: Final = ("RIGHT", "FULL")


def share(query: Query) -> exp.Query:
    """The query for all subscriptions: ``_sub`` first, then its columns, then ``_rank``."""
    sharer = _Sharer()
    tree = sharer.query(query.tree.copy(), {}, top=True, force=True)
    if RANK not in tree.named_selects:
        with_ = tree.args.pop("with_", None)
        tree = _with(sharer.named(exp.select(SUB, *query.columns, f"1 AS {RANK}"), tree), with_)
    return tree


def always_answers(shared: exp.Query) -> bool:
    """Whether subscriptions get an answer also when there is nothing to answer about: a count of 0, say."""
    return any(each.alias == EVERYBODY for each in shared.find_all(exp.Subquery))


class _Sharer:
    def __init__(self) -> None:
        self._made = 0  # tables that were given a name

    def named(self, select: exp.Select, of: exp.Query) -> exp.Select:
        self._made += 1
        return select.from_(of.subquery(f"_q{self._made}"))

    def query(self, tree: exp.Query, known: dict[str, bool], *, top: bool = False, force: bool = False) -> exp.Query:
        """Rewrite a query in place of ``tree``; ``known`` says of WITH names whether they depend on parameters."""
        known = known | self._ctes(tree, known)
        if isinstance(tree, exp.Subquery):
            inner = self.query(tree.this, known, top=top, force=force)
            tree.set("this", inner)
            return inner
        if isinstance(tree, exp.SetOperation):
            return self._set_operation(tree, known, top, force)
        assert isinstance(tree, exp.Select)
        return self._select(tree, known, top, force)

    def _ctes(self, tree: exp.Query, known: dict[str, bool]) -> dict[str, bool]:
        found: dict[str, bool] = {}
        with_ = tree.args.get("with_")
        if with_ is None:
            return found
        for cte in with_.expressions:
            if with_.args.get("recursive"):
                raise BadInput("WITH RECURSIVE cannot be shared by subscriptions")
            before = depends(cte.this, known | found)
            cte.set("this", self.query(cte.this, known | found))
            found[cte.alias] = before
        return found

    def _set_operation(self, tree: exp.SetOperation, known: dict[str, bool], top: bool, force: bool) -> exp.Query:
        if not (force or depends(tree, known)):
            return tree
        ordered, with_ = _take_order(tree), tree.args.pop("with_", None)
        columns = tree.named_selects
        ordered.by_name(columns)
        for side in ("this", "expression"):
            tree.set(side, self.query(tree.args[side], known, force=True))
        return _with(self._ranked(tree, columns, ordered, top=top), with_)

    def _select(self, tree: exp.Select, known: dict[str, bool], top: bool, force: bool) -> exp.Query:
        if not (force or depends(tree, known)):
            return tree
        columns = tree.named_selects
        with_ = tree.args.pop("with_", None)
        ordered = _take_order(tree)
        self._join(tree, known)
        _bind(tree, known)
        for window in tree.find_all(exp.Window):
            if window.find_ancestor(exp.Select) is tree:
                window.set("partition_by", [_sub(), *(window.args.get("partition_by") or [])])
        result: exp.Query = tree
        grouped = tree.args.get("group")
        if grouped is None and _aggregates(tree):
            result = self._one_row_each(tree, columns, ordered)
        else:
            if grouped is not None:
                if any(grouped.args.get(kind) for kind in ("cube", "rollup", "grouping_sets", "all")):
                    raise BadInput("GROUP BY ALL, CUBE, ROLLUP and GROUPING SETS cannot be shared; name the columns")
                _group(tree, grouped)
            keys = ordered.hide(tree)
            tree.set("expressions", [exp.alias_(_sub(), SUB), *tree.expressions, *keys])
        return _with(self._ranked(result, columns, ordered, top=top), with_)

    def _join(self, tree: exp.Select, known: dict[str, bool]) -> None:
        """Put the subscriptions in front of the tables, and tie what depends on them to them."""
        first, joins = tree.args.get("from_"), tree.args.get("joins") or []
        for join in joins:
            if join.side in OUTER:
                raise BadInput(f"a {join.side} JOIN cannot be shared by subscriptions; write it as a LEFT JOIN")
            if join.args.get("using"):
                raise BadInput("JOIN ... USING cannot be shared by subscriptions; write it with ON")
        relations: list[exp.Join] = []
        if first is not None:
            relations.append(exp.Join(this=first.this, kind="CROSS"))
        for join in (*relations, *joins):
            source = join.this
            if isinstance(source, exp.Subquery):
                dependent = depends(source.this, known)
                source.set("this", self.query(source.this, known))
            else:
                dependent = known.get(source.name, False) and isinstance(source, exp.Table)
            if dependent:
                same = exp.EQ(this=exp.column(SUB, source.alias_or_name), expression=_sub())
                if join.side == "LEFT" or join.args.get("on"):
                    join.set("on", exp.and_(join.args.get("on"), same))
                else:
                    tree.where(same, copy=False)
        tree.set("from_", exp.From(this=exp.to_table(SUBSCRIPTIONS, alias=S)))
        tree.set("joins", [*relations, *joins])

    def _one_row_each(self, tree: exp.Select, columns: list[str], ordered: _Order) -> exp.Query:
        """An aggregate over everything has an answer for everybody, also for those with nothing to aggregate."""
        having = tree.args.pop("having", None)
        names = [*columns]
        extra: list[exp.Expr] = []
        if having is not None:
            extra.append(exp.alias_(having.this.copy(), "_having"))
            names.append("_having")
        hidden = ordered.hide(tree)
        extra += hidden
        names += [each.alias for each in hidden]
        whole = [*tree.expressions, *extra]
        empty = [_of_nothing(each) for each in whole]
        bound = _parameters_of(whole)
        tree.set("expressions", [exp.alias_(_sub(), SUB), *whole])
        tree.set("group", exp.Group(expressions=[_sub(), *(exp.column(name, S) for name in bound)]))
        aliased = tree.subquery(EVERYBODY)
        chosen = [
            exp.alias_(
                exp.Case(
                    ifs=[exp.If(this=exp.column(SUB, EVERYBODY).is_(exp.null()), true=_unaliased(nothing))],
                    default=exp.column(name, EVERYBODY),
                ),
                name,
            )
            for name, nothing in zip(names, empty, strict=True)
        ]
        answer = exp.select(exp.alias_(_sub(), SUB), *chosen).from_(exp.to_table(SUBSCRIPTIONS, alias=S))
        answer = answer.join(aliased, on=exp.EQ(this=exp.column(SUB, EVERYBODY), expression=_sub()), join_type="LEFT")
        if having is None:
            return answer
        kept = [SUB, *columns, *(each.alias for each in hidden)]
        return self.named(exp.select(*kept), answer).where("_having")

    def _ranked(self, tree: exp.Query, columns: list[str], ordered: _Order, *, top: bool) -> exp.Query:
        """ORDER BY and LIMIT for every subscription on its own."""
        if ordered.limit is None and not (top and ordered.keys):
            if not ordered.hidden:
                return tree
            return self.named(exp.select(SUB, *columns), tree)
        keys = [exp.Ordered(this=exp.column(name), desc=desc, nulls_first=nulls) for name, desc, nulls in ordered.names]
        # Ties are broken by all columns, so that an execution that is repeated gives the same rows.
        keys += [exp.Ordered(this=exp.column(name), nulls_first=True) for name in columns]
        window = exp.Window(
            this=exp.RowNumber(), partition_by=[exp.column(SUB)], order=exp.Order(expressions=keys)
        )  # fmt: skip
        limits = [name for name, _ in ordered.bounds]
        ranked = self.named(exp.select(SUB, *columns, *limits, exp.alias_(window, RANK)), tree)
        kept = [SUB, *columns, RANK] if top else [SUB, *columns]
        if ordered.limit is None:
            return self.named(exp.select(*kept), ranked)
        skip = ordered.offset or exp.Literal.number(0)
        answer = self.named(exp.select(*kept), ranked)
        answer = answer.where(exp.LTE(this=exp.column(RANK), expression=exp.Add(this=ordered.limit, expression=skip)))
        if ordered.offset is not None:
            answer = answer.where(exp.GT(this=exp.column(RANK), expression=ordered.offset.copy()))
        return answer


class _Order:
    """ORDER BY, LIMIT and OFFSET, taken off a query."""

    def __init__(self, keys: list[exp.Ordered], limit: exp.Expr | None, offset: exp.Expr | None) -> None:
        self.keys = keys
        self.limit = limit
        self.offset = offset
        self.names: list[tuple[str, bool, bool | None]] = []  # column, descending, nulls first
        self.bounds: list[tuple[str, exp.Expr]] = []  # limits that are parameters
        self.hidden = False

    def by_name(self, columns: list[str]) -> None:
        """The order of a set operation, which has nothing but its columns."""
        for key in self.keys:
            if not isinstance(key.this, exp.Column) or key.this.name not in columns:
                raise BadInput(
                    f"UNION and its like are ordered by columns of their answer, not by {key.this.sql(DIALECT)}"
                )
            self.names.append((key.this.name, bool(key.args.get("desc")), key.args.get("nulls_first")))
        if any(bound is not None and bound.find(exp.Placeholder) for bound in (self.limit, self.offset)):
            raise BadInput("the LIMIT of UNION and its like cannot be a parameter")

    def hide(self, tree: exp.Select) -> list[exp.Expr]:
        """Columns of the block that the order needs and the answer has not."""
        shown = set(tree.named_selects)
        extra: list[exp.Expr] = []
        for number, key in enumerate(self.keys):
            column = key.this
            name = column.name
            if not (isinstance(column, exp.Column) and not column.table and name in shown):
                if tree.args.get("distinct"):
                    raise BadInput("SELECT DISTINCT can be ordered by columns of its answer only")
                name = f"_o{number}"
                extra.append(exp.alias_(column.copy(), name))
            self.names.append((name, bool(key.args.get("desc")), key.args.get("nulls_first")))
        for which in ("limit", "offset"):
            bound = getattr(self, which)
            if bound is not None and bound.find(exp.Placeholder, exp.Column):
                extra.append(exp.alias_(bound.copy(), f"_{which}"))
                self.bounds.append((f"_{which}", bound))
                setattr(self, which, exp.column(f"_{which}"))
        for each in extra:
            _bind(each, {})
        self.hidden = bool(extra)
        return extra


def _take_order(tree: exp.Query) -> _Order:
    order, limit, offset = (tree.args.pop(name, None) for name in ("order", "limit", "offset"))
    if isinstance(limit, exp.Fetch):
        raise BadInput("FETCH cannot be shared by subscriptions; write LIMIT")
    keys = list(order.expressions) if order else []
    return _Order(keys, limit.expression if limit else None, offset.expression if offset else None)


def depends(tree: exp.Expr, known: dict[str, bool]) -> bool:
    """Whether a query's answer differs between subscriptions."""
    if tree.find(exp.Placeholder):
        return True
    return any(known.get(table.name, False) for table in tree.find_all(exp.Table))


def _bind(tree: exp.Expr, known: dict[str, bool]) -> None:
    """Parameters are columns of the subscription, also in the conditions' own queries."""
    for marker in list(tree.find_all(exp.Placeholder)):
        column = exp.column(marker.name, S)
        if marker is tree:
            raise BadInput("a parameter alone cannot be ordered by")
        marker.replace(column)
    for nested in tree.find_all(exp.Select):
        if nested is tree:
            continue
        for table in nested.find_all(exp.Table):
            if known.get(table.name, False):
                nested.where(exp.EQ(this=exp.column(SUB, table.alias_or_name), expression=_sub()), copy=False)


def _group(tree: exp.Select, grouped: exp.Group) -> None:
    positions = {str(at): each for at, each in enumerate(tree.expressions, 1)}
    keys = [
        _unaliased(positions[each.name]).copy() if isinstance(each, exp.Literal) and each.name in positions else each
        for each in grouped.expressions
    ]
    outside = [*tree.expressions, *([tree.args["having"]] if tree.args.get("having") else [])]
    grouped.set("expressions", [_sub(), *keys, *(exp.column(name, S) for name in _parameters_of(outside))])


def _parameters_of(expressions: list[exp.Expr]) -> list[str]:
    """Parameters that are used: each has one value for a subscription, so that grouping by them is free."""
    found: dict[str, None] = {}
    for expression in expressions:
        for column in expression.find_all(exp.Column):
            if column.table == S and column.name != SUB:
                found[column.name] = None
    return list(found)


def _aggregates(tree: exp.Select) -> bool:
    having = tree.args.get("having")
    return any(
        call.find_ancestor(exp.Window, exp.Select) is tree
        for each in (*tree.expressions, *([having] if having else []))
        for call in each.find_all(exp.AggFunc)
    )


def _of_nothing(expression: exp.Expr) -> exp.Expr:
    """What an expression of aggregates is when there is nothing to aggregate."""

    def value(node: exp.Expr) -> exp.Expr:
        if isinstance(node, (exp.Count, exp.CountIf, exp.ApproxDistinct)):
            return exp.cast(exp.Literal.number(0), "BIGINT")
        if isinstance(node, (exp.ArrayAgg, exp.ArrayUniqueAgg)):
            return exp.Array(expressions=[])
        return exp.null() if isinstance(node, exp.AggFunc) else node

    return expression.copy().transform(value)


def _with(tree: exp.Query, with_: exp.With | None) -> exp.Query:
    if with_ is not None:
        tree.set("with_", with_)
    return tree


def _unaliased(expression: exp.Expr) -> exp.Expr:
    return expression.this if isinstance(expression, exp.Alias) else expression


def _sub() -> exp.Column:
    return exp.column(SUB, S)


def text(tree: exp.Query) -> str:
    return tree.sql(DIALECT, pretty=True)


def parse(sql: str) -> exp.Expr:
    return sqlglot.parse_one(sql, read=DIALECT)
