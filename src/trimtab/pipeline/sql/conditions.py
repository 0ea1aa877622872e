"""Recognises conditions of a query, and adds cheap necessary conditions in front of expensive ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlglot import exp

from trimtab.pipeline.sql.share import S

if TYPE_CHECKING:
    from collections.abc import Iterable

RANGES: Final = (exp.GTE, exp.GT, exp.LTE, exp.LT)
TURNED: Final = {exp.GTE: exp.LTE, exp.GT: exp.LT, exp.LTE: exp.GTE, exp.LT: exp.GT}


def flat(condition: exp.Expr) -> list[exp.Expr]:
    """The parts of a condition that AND connects."""
    parts, pending = [], [condition]
    while pending:
        condition = pending.pop().unnest()
        if isinstance(condition, exp.And):
            pending += [condition.expression, condition.this]
        else:
            parts.append(condition)
    return parts


def within(condition: exp.Expr) -> tuple[exp.Anonymous | None, exp.Expr | None]:
    """The call and the radius of distance_km(...) <= radius, however it is written."""
    call, radius = _below(condition)
    if isinstance(call, exp.Anonymous) and call.name.lower() == "distance_km":
        return call, radius
    return None, None


def _below(condition: exp.Expr) -> tuple[exp.Expr | None, exp.Expr | None]:
    """(x, y) of x <= y, however it is written."""
    if isinstance(condition, (exp.LTE, exp.LT)):
        return condition.this.unnest(), condition.expression.unnest()
    if isinstance(condition, (exp.GTE, exp.GT)):
        return condition.expression.unnest(), condition.this.unnest()
    return None, None


def bounds(condition: exp.Expr) -> Iterable[tuple[exp.Column, type[exp.Expr], exp.Expr]]:
    """(column, comparison, bound) of a condition that bounds a column."""
    if isinstance(condition, exp.Between) and isinstance(condition.this.unnest(), exp.Column):
        yield condition.this.unnest(), exp.GTE, condition.args["low"]
        yield condition.this.unnest(), exp.LTE, condition.args["high"]
    for kind in RANGES:
        if type(condition) is kind:
            left, right = condition.this.unnest(), condition.expression.unnest()
            if isinstance(left, exp.Column) and left.table != S:
                yield left, kind, right
            if isinstance(right, exp.Column) and right.table != S:
                yield right, TURNED[kind], left


def narrowed(tree: exp.Query) -> exp.Query:
    """The query with a comparison of latitudes in front of every radius condition.

    A distance is at least the distance between the latitudes, so this test rejects most pairs without computing a sine.
    A place off the Earth has no distance, so no row is lost.
    """
    tree = tree.copy()
    for select in tree.find_all(exp.Select):
        where = select.args.get("where")
        ons = [join.args["on"] for join in select.args.get("joins") or [] if join.args.get("on")]
        clauses = ([where.this] if where else []) + ons
        for condition in [part for clause in clauses for part in flat(clause)]:
            call, radius = within(condition)
            if call is not None and radius is not None and not condition.find(exp.Query):
                difference = exp.Abs(this=exp.Sub(this=_part(call, 0), expression=_part(call, 2)))
                angle = exp.Anonymous(this="_circle_angle", expressions=[radius.copy()])
                first = exp.LTE(this=difference, expression=angle)
                condition.replace(exp.And(this=first, expression=condition.copy()))
    return tree


def _part(call: exp.Anonymous, number: int) -> exp.Expr:
    part = call.expressions[number].copy()
    return exp.Paren(this=part) if isinstance(part, exp.Binary) else part
