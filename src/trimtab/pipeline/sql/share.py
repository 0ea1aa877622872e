"""One plan for all subscriptions: parameters become columns of the table of subscriptions.

A query block that depends on parameters, directly or through a table it reads, is joined with the subscriptions. It
carries ``_sub``, the subscription's id, into its grouping, the partitions of its windows, its joins with other
dependent blocks, and its limit. So every subscription gets the rows that the query would give it alone, and equality
with a parameter is a hash join. (Nguyen, DEBS'19, 3.1, runs a channel "against the subscriptions it holds" and leaves
the method to AsterixDB. Spark's lateral joins would express the same, but they compare all rows with all subscriptions
as soon as a condition is more than an equality.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import sqlglot
from sqlglot import exp

from trimtab.errors import BadInput
from trimtab.pipeline.sql.aggregates import aggregates, of_nothing, unaliased
from trimtab.pipeline.sql.query import DIALECT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trimtab.pipeline.sql.query import Query

SUBSCRIPTIONS: Final = "_subscriptions"  # the table: _sub, and a column for every parameter
SUB: Final = "_sub"
RANK: Final = "_rank"  # column of the answer: a row's position among the rows of its subscription
S: Final = "_s"  # alias of the table of subscriptions
EVERYBODY: Final = "_a"  # alias of the aggregates of subscriptions that have rows
OUTER: Final = ("RIGHT", "FULL")


def share(query: Query) -> exp.Query:
    """The query for all subscriptions: ``_sub`` first, then its columns, then ``_rank``."""
    sharer = _Sharer()
    tree = sharer.query(query.tree.copy(), {}, top=True, force=True)
    columns = _columns(query.columns)
    if RANK in tree.named_selects:
        tree.set("expressions", [exp.column(SUB), *columns, exp.column(RANK)])
        return tree
    with_ = tree.args.pop("with_", None)
    return _with(sharer.named(exp.select(SUB, *columns, f"1 AS {RANK}"), tree), with_)


def always_answers(shared: exp.Query) -> bool:
    """Whether subscriptions get a result also when there are no rows, such as a count of 0."""
    return any(subquery.alias == EVERYBODY for subquery in shared.find_all(exp.Subquery))


class _Sharer:
    def __init__(self) -> None:
        self._count = 0  # number of subqueries named so far

    def named(self, select: exp.Select, of: exp.Query) -> exp.Select:
        self._count += 1
        return select.from_(of.subquery(f"_q{self._count}"))

    def query(
        self, tree: exp.Query, dependent_names: dict[str, bool], *, top: bool = False, force: bool = False
    ) -> exp.Query:
        """Rewrite ``tree`` in place. ``dependent_names``: name in WITH -> whether its query depends on parameters."""
        dependent_names = dependent_names | self._ctes(tree, dependent_names)
        if isinstance(tree, exp.Subquery):
            inner = self.query(tree.this, dependent_names, top=top, force=force)
            tree.set("this", inner)
            return inner
        if isinstance(tree, exp.SetOperation):
            return self._set_operation(tree, dependent_names, top, force)
        assert isinstance(tree, exp.Select)
        return self._select(tree, dependent_names, top, force)

    def _ctes(self, tree: exp.Query, dependent_names: dict[str, bool]) -> dict[str, bool]:
        shared_ctes: dict[str, bool] = {}
        with_ = tree.args.get("with_")
        for cte in with_.expressions if with_ else ():
            cte.set("this", self.query(cte.this, dependent_names | shared_ctes))
            shared_ctes[cte.alias] = _is_shared(cte.this)
        return shared_ctes

    def _set_operation(
        self, tree: exp.SetOperation, dependent_names: dict[str, bool], top: bool, force: bool
    ) -> exp.Query:
        if not (force or depends(tree, dependent_names)):
            return tree
        ordered, with_ = _take_order(tree, top), tree.args.pop("with_", None)
        columns = tree.named_selects
        ordered.by_name(columns)
        for side in ("this", "expression"):
            shared = self.query(tree.args[side], dependent_names, force=True)
            if isinstance(shared, exp.SetOperation) or shared.args.get("with_"):
                shared = exp.Subquery(this=shared)
            tree.set(side, shared)
        return _with(self._ranked(tree, columns, ordered, top=top), with_)

    def _select(self, tree: exp.Select, dependent_names: dict[str, bool], top: bool, force: bool) -> exp.Query:
        if not (force or depends(tree, dependent_names)):
            return tree
        columns = tree.named_selects
        with_ = tree.args.pop("with_", None)
        ordered = _take_order(tree, top)
        ordered.hide(tree)
        self._join(tree, dependent_names)
        _bind(tree, dependent_names)
        _partition(tree)
        grouped = tree.args.get("group")
        if grouped is None and aggregates(tree):
            result = self._one_row_each(tree)
        else:
            if grouped is not None:
                _group(tree, grouped)
            result = self._qualified(tree)
        return _with(self._ranked(result, columns, ordered, top=top), with_)

    def _join(self, tree: exp.Select, dependent_names: dict[str, bool]) -> None:
        """Make the subscriptions the first table, and join every dependent block with them on ``_sub``."""
        first, joins = tree.args.get("from_"), tree.args.get("joins") or []
        for join in joins:
            if join.side in OUTER:
                raise BadInput(f"a {join.side} JOIN cannot be shared by subscriptions; write it as a LEFT JOIN")
            if join.method:
                raise BadInput(f"a {join.method} JOIN cannot be shared by subscriptions; write it with ON")
        relations: list[exp.Join] = []
        if first is not None:
            relations.append(exp.Join(this=first.this, kind="CROSS"))
        for join in (*relations, *joins):
            source = join.this
            dependent = isinstance(source, exp.Table) and dependent_names.get(source.name, False)
            if isinstance(source, exp.Subquery):
                source.set("this", self.query(source.this, dependent_names))
                dependent = _is_shared(source.this)
            if dependent:
                same = exp.EQ(this=exp.column(SUB, source.alias_or_name), expression=_sub())
                if join.side == "LEFT" or join.args.get("on"):
                    join.set("on", exp.and_(join.args.get("on"), same))
                else:
                    tree.where(same, copy=False)
        tree.set("from_", exp.From(this=exp.to_table(SUBSCRIPTIONS, alias=S)))
        tree.set("joins", [*relations, *joins])

    def _qualified(self, tree: exp.Select) -> exp.Query:
        """Add ``_sub``. QUALIFY becomes a column of the block, since parameters are visible only inside the block."""
        names = tree.named_selects
        tree.set("expressions", [exp.alias_(_sub(), SUB), *tree.expressions])
        qualify = tree.args.pop("qualify", None)
        if qualify is None:
            return tree
        if tree.args.get("distinct"):
            raise BadInput("SELECT DISTINCT with QUALIFY cannot be shared by subscriptions; write one around the other")
        tree.append("expressions", exp.alias_(qualify.this, "_qualify"))
        return self.named(exp.select(SUB, *_columns(names)), tree).where("_qualify")

    def _one_row_each(self, tree: exp.Select) -> exp.Query:
        """Rewrite an aggregate without GROUP BY: every subscription gets one row, even with nothing to aggregate."""
        if any(window.find_ancestor(exp.Select) is tree for window in tree.find_all(exp.Window)):
            raise BadInput("a window over the one row of an aggregate cannot be shared; leave OVER (...) out")
        having = tree.args.pop("having", None)
        names = tree.named_selects
        if having is not None:
            tree.append("expressions", exp.alias_(having.this, "_having"))
        expressions = tree.expressions
        _check_columns(expressions)
        values_of_nothing = [of_nothing(expression) for expression in expressions]
        tree.set("expressions", [exp.alias_(_sub(), SUB), *expressions])
        tree.set("group", exp.Group(expressions=[_sub(), *_parameters_of(expressions)]))
        chosen = [
            exp.alias_(
                exp.Case(
                    ifs=[exp.If(this=exp.column(SUB, EVERYBODY).is_(exp.null()), true=value)],
                    default=exp.column(expression.alias, EVERYBODY),
                ),
                expression.alias,
                quoted=True,
            )
            for expression, value in zip(expressions, values_of_nothing, strict=True)
        ]
        answer = exp.select(exp.alias_(_sub(), SUB), *chosen).from_(exp.to_table(SUBSCRIPTIONS, alias=S))
        same = exp.EQ(this=exp.column(SUB, EVERYBODY), expression=_sub())
        answer = answer.join(tree.subquery(EVERYBODY), on=same, join_type="LEFT")
        if having is None:
            return answer
        return self.named(exp.select(SUB, *_columns(names)), answer).where("_having")

    def _ranked(self, tree: exp.Query, columns: list[str], ordered: _Order, *, top: bool) -> exp.Query:
        """Apply ORDER BY and LIMIT to each subscription separately."""
        if not ordered.ranks:
            return tree
        # Ties are broken by all columns, so that a repeated execution gives the same rows.
        keys = [*ordered.names, *(exp.Ordered(this=column, nulls_first=True) for column in _columns(columns))]
        window = exp.Window(
            this=exp.RowNumber(), partition_by=[exp.column(SUB)], order=exp.Order(expressions=keys)
        )  # fmt: skip
        columns_kept = [exp.column(SUB), *_columns(columns)]
        ranked = self.named(exp.select(*columns_kept, *_columns(ordered.bounds), exp.alias_(window, RANK)), tree)
        answer = self.named(exp.select(*columns_kept, *([exp.column(RANK)] if top else [])), ranked)
        rank: exp.Expr = exp.column(RANK)
        skip, last = ordered.offset, ordered.limit
        if skip is not None:
            answer = answer.where(exp.GT(this=rank.copy(), expression=exp.paren(skip)))
            # The offset is subtracted from the rank, since limit plus offset may overflow its type.
            skipped = exp.Greatest(this=skip.copy(), expressions=[exp.Literal.number(0)])
            rank = exp.Sub(this=rank, expression=skipped)
        if last is not None:
            answer = answer.where(exp.LTE(this=rank, expression=exp.paren(last)))
        return answer


class _Order:
    """ORDER BY, LIMIT and OFFSET, taken off a query."""

    def __init__(self, keys: list[exp.Ordered], limit: exp.Expr | None, offset: exp.Expr | None) -> None:
        self.keys = keys
        self.limit = limit
        self.offset = offset
        self.names: list[exp.Ordered] = []  # the keys as columns of the block
        self.bounds: list[str] = []  # columns that hold LIMIT and OFFSET where they are parameters

    @property
    def ranks(self) -> bool:
        return bool(self.keys) or self.limit is not None or self.offset is not None

    def by_name(self, columns: list[str]) -> None:
        """Resolve the keys of a set operation, which can be ordered by its own columns only."""
        for key in self.keys:
            if not isinstance(key.this, exp.Column) or key.this.name not in columns:
                raise BadInput(
                    f"UNION and its like are ordered by columns of their answer, not by {key.this.sql(DIALECT)}"
                )
            self._add(key, key.this.name)
        if any(bound is not None and bound.find(exp.Placeholder) for bound in (self.limit, self.offset)):
            raise BadInput("the LIMIT of UNION and its like cannot be a parameter")

    def hide(self, tree: exp.Select) -> None:
        """Add columns to the block for keys and limits that are not among its columns."""
        shown = {expression.alias_or_name: unaliased(expression) for expression in tree.expressions}
        for number, key in enumerate(self.keys):
            if isinstance(key.this, exp.Column) and not key.this.table and key.this.name in shown:
                self._add(key, key.this.name)
                continue
            if tree.args.get("distinct"):
                raise BadInput("SELECT DISTINCT can be ordered by columns of its answer only")
            self._add(key, f"_o{number}")
            value = key.this.copy().transform(
                lambda node: (
                    exp.paren(shown[node.name].copy())
                    if isinstance(node, exp.Column) and not node.table and node.name in shown
                    else node
                )
            )
            tree.append("expressions", exp.alias_(value, f"_o{number}"))
        for which in ("limit", "offset"):
            bound = getattr(self, which)
            if bound is not None and bound.find(exp.Placeholder):
                self.bounds.append(f"_{which}")
                tree.append("expressions", exp.alias_(bound, f"_{which}"))
                setattr(self, which, exp.column(f"_{which}"))

    def _add(self, key: exp.Ordered, name: str) -> None:
        nulls_first = key.args.get("nulls_first")
        self.names.append(
            exp.Ordered(this=exp.column(name, quoted=True), desc=key.args.get("desc"), nulls_first=nulls_first)
        )


def _take_order(tree: exp.Query, top: bool) -> _Order:
    order, limit, offset = (tree.args.pop(name, None) for name in ("order", "limit", "offset"))
    if isinstance(limit, exp.Fetch):
        raise BadInput("FETCH cannot be shared by subscriptions; write LIMIT")
    if limit and isinstance(limit.expression, exp.Var):  # LIMIT ALL
        limit = None
    keys = list(order.expressions) if order and (top or limit or offset) else []
    if any(isinstance(key.this, exp.Var) for key in keys):
        raise BadInput("ORDER BY ALL cannot be shared by subscriptions; name the columns")
    return _Order(keys, limit.expression if limit else None, offset.expression if offset else None)


def depends(tree: exp.Expr, dependent_names: dict[str, bool]) -> bool:
    """Whether a query's answer differs between subscriptions."""
    if tree.find(exp.Placeholder):
        return True
    return any(dependent_names.get(table.name, False) for table in tree.find_all(exp.Table))


def _is_shared(tree: exp.Query) -> bool:
    return SUB in tree.named_selects


def _bind(tree: exp.Select, dependent_names: dict[str, bool]) -> None:
    """Replace parameters by columns of the subscription, also in the queries inside of conditions."""
    for marker in list(tree.find_all(exp.Placeholder)):
        _check_reach(marker, tree)
        marker.replace(exp.column(marker.name, S))
    for nested in _own_queries(tree):
        for join in (nested.args.get("from_"), *(nested.args.get("joins") or [])):
            if join is None or not (isinstance(join.this, exp.Table) and dependent_names.get(join.this.name, False)):
                continue
            if join.args.get("side"):
                raise BadInput(
                    f"WITH {join.this.name} depends on parameters, so a condition's own query cannot have it in a "
                    f"{join.side} JOIN"
                )
            _check_reach(join, tree)
            nested.where(exp.EQ(this=exp.column(SUB, join.alias_or_name), expression=_sub()), copy=False)


def _check_reach(node: exp.Expr, tree: exp.Select) -> None:
    """Refuse parameters in queries nested in a condition's own query: the subscription is not visible there."""
    levels, select = 0, node.find_ancestor(exp.Select)
    while select is not None and select is not tree:
        owner = select.parent
        while isinstance(owner, (exp.Subquery, exp.SetOperation)):
            owner = owner.parent
        levels += 2 if isinstance(owner, exp.CTE) else not isinstance(owner, (exp.From, exp.Join))
        select = select.find_ancestor(exp.Select)
    if levels > 1:
        raise BadInput("a query inside of a condition's own query cannot depend on parameters; write it as a JOIN")


def _own_queries(tree: exp.Select) -> Iterable[exp.Select]:
    """The queries in a block's conditions and columns, and lateral ones: all except the tables that it reads."""
    for clause, parts in tree.args.items():
        for part in parts if isinstance(parts, list) else [parts]:
            if isinstance(part, exp.Join):
                if isinstance(part.this, exp.Lateral):
                    yield from part.find_all(exp.Select)
                elif on := part.args.get("on"):
                    yield from on.find_all(exp.Select)
            elif isinstance(part, exp.Expr) and clause != "from_":
                yield from part.find_all(exp.Select)


def _partition(tree: exp.Select) -> None:
    for window in tree.find_all(exp.Window):
        named = window.args.get("alias")  # OVER w, where w has its own partitions
        if window.find_ancestor(exp.Select) is tree and not named:
            window.set("partition_by", [_sub(), *(window.args.get("partition_by") or [])])


def _group(tree: exp.Select, grouped: exp.Group) -> None:
    if grouped.args.get("all") or grouped.find(exp.Cube, exp.Rollup, exp.GroupingSets):
        raise BadInput("GROUP BY ALL, CUBE, ROLLUP and GROUPING SETS cannot be shared; name the columns")
    _check_columns(tree.expressions)
    # A number would be the place of a column, and constants make no groups.
    keys = [key for key in grouped.expressions if not isinstance(key, exp.Literal)]
    outside = [*tree.expressions, *(tree.args[clause] for clause in ("having", "qualify") if tree.args.get(clause))]
    grouped.set("expressions", [_sub(), *keys, *_parameters_of(outside)])


def _check_columns(expressions: list[exp.Expr]) -> None:
    """Refuse subqueries with parameters among the columns of an aggregate, which Spark does not support."""
    if any(_parameters_of([query]) for expression in expressions for query in expression.find_all(exp.Query)):
        raise BadInput("a query among the columns of an aggregate cannot use parameters; write it as a JOIN")


def _parameters_of(expressions: list[exp.Expr]) -> list[exp.Column]:
    """Parameters used in the expressions. Each has one value per subscription, so grouping by them adds no groups."""
    parameters: dict[str, exp.Column] = {}
    for expression in expressions:
        for column in expression.find_all(exp.Column):
            if column.table == S and column.name != SUB:
                parameters[column.name] = column.copy()
    return list(parameters.values())


def _with(tree: exp.Query, with_: exp.With | None) -> exp.Query:
    if with_ is not None:
        tree.set("with_", with_)
    return tree


def _columns(names: Iterable[str]) -> list[exp.Expr]:
    return [exp.column(name, quoted=True) for name in names]


def _sub() -> exp.Column:
    return exp.column(SUB, S)


def text(tree: exp.Query) -> str:
    return tree.sql(DIALECT, pretty=True)


def parse(sql: str) -> exp.Expr:
    return sqlglot.parse_one(sql, read=DIALECT)
