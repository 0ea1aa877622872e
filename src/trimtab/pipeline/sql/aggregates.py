"""Finds aggregates in a query, and their values over no rows."""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from trimtab.errors import BadInput

# Spark's aggregates that sqlglot does not know as aggregates.
AGGREGATES: Final = {
    "collect_union", "every", "histogram_numeric", "listagg", "max_by", "mean", "min_by", "percentile_cont",
    "percentile_disc", "some", "std", "string_agg", "try_avg", "try_sum",
}  # fmt: skip
AROUND: Final = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)  # expressions that wrap an aggregate
COUNTS: Final = (exp.Count, exp.CountIf, exp.ApproxDistinct, exp.RegrCount)  # aggregates that are 0 over no rows
LISTS: Final = (exp.ArrayAgg, exp.ArrayUniqueAgg)  # aggregates that are an empty list over no rows
SKETCHES: Final = (
    exp.ApproxTopK, exp.ApproxTopKAccumulate, exp.ApproxTopKCombine, exp.BitmapConstructAgg, exp.BitmapOrAgg,
)  # fmt: skip


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.AggFunc) or (isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES)


def aggregates(tree: exp.Select) -> bool:
    """Whether a block aggregates: in its columns or HAVING, and not over a window."""
    having = tree.args.get("having")
    return any(
        _is_aggregate(node) and node.find_ancestor(exp.Select) is tree and not _is_over_window(node)
        for clause in (*tree.expressions, *([having] if having else []))
        for node in clause.walk()
    )


def _is_over_window(node: exp.Expr) -> bool:
    owner = node.parent
    while isinstance(owner, AROUND):
        owner = owner.parent
    return isinstance(owner, exp.Window)


def of_nothing(expression: exp.Expr) -> exp.Expr:
    """The value of an expression of aggregates over no rows."""
    holder = exp.Paren(this=unaliased(expression).copy())
    for node in list(holder.walk(prune=lambda node: isinstance(node, (exp.Query, *AROUND)) or _is_aggregate(node))):
        call: exp.Expr = node
        while isinstance(call, AROUND):
            call = call.this
        if isinstance(call, SKETCHES):
            raise BadInput(f"{call.sql_name().lower()}() over everything cannot be shared; GROUP BY a column")
        if _is_aggregate(call):
            node.replace(_value_of_nothing(call))
    return holder.unnest()


def _value_of_nothing(call: exp.Expr) -> exp.Expr:
    if isinstance(call, COUNTS):
        return exp.cast(exp.Literal.number(0), "BIGINT")
    return exp.Array(expressions=[]) if isinstance(call, LISTS) else exp.null()


def unaliased(expression: exp.Expr) -> exp.Expr:
    return expression.this if isinstance(expression, exp.Alias) else expression
