"""A channel's query as it was written: parsed, every column resolved, and nothing in it but a query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, ParseError, TokenError
from sqlglot.optimizer.qualify import qualify

from trimtab.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping

    Columns = Mapping[str, str]  # name -> type

DIALECT: Final = "spark"
# Answers that differ from one run to the next would make a repeated execution say something else.
FICKLE: Final = {
    "rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle", "monotonically_increasing_id",
    "spark_partition_id", "input_file_name", "current_user", "session_user", "user", "now", "current_timestamp",
    "current_date", "curdate", "localtimestamp", "unix_timestamp",
}  # fmt: skip
# They reach outside the data of the application.
OUTSIDE: Final = {"java_method", "reflect", "try_reflect", "read_files", "raise_error"}


@dataclass(frozen=True, slots=True)
class Query:
    """Checked. ``tree`` has every column with its table and every star spelled out."""

    tree: exp.Query
    tables: frozenset[str]  # feeds and datasets that it reads
    parameters: frozenset[str]  # that it uses
    columns: tuple[str, ...]  # of its answer


def read(text: str, tables: Mapping[str, Columns], parameters: Columns) -> Query:
    """Parse ``text``; ``tables`` and ``parameters`` are what it may name."""
    tree = _parse(text)
    _check_functions(tree)
    used = _check_parameters(tree, parameters)
    named = _check_tables(tree, tables)
    for call in list(tree.find_all(exp.Anonymous)):
        _inline(call)
    try:
        schema: dict[str, object] = {name: dict(columns) for name, columns in tables.items()}
        tree = qualify(tree, schema=schema, dialect=DIALECT, quote_identifiers=False, expand_alias_refs=False)
    except OptimizeError as error:
        raise BadInput(_sentence(error, tree, tables)) from None
    columns = tuple(tree.named_selects)
    _check_columns(tree, columns)
    return Query(tree, frozenset(named), frozenset(used), columns)


def _parse(text: str) -> exp.Query:
    try:
        found = [each for each in sqlglot.parse(text, read=DIALECT) if each is not None]
    except (ParseError, TokenError) as error:
        raise BadInput(f"the query does not parse: {_first_line(error)}") from None
    if len(found) != 1:
        raise BadInput(f"a channel has one query, but here are {len(found)} statements")
    tree = found[0]
    if not isinstance(tree, exp.Query) or isinstance(tree, exp.Table):
        raise BadInput(f"a channel's query is a SELECT, but this is {type(tree).__name__.upper()}")
    for forbidden in (exp.Into, exp.Insert, exp.Lock, exp.Hint, exp.TableSample, exp.QueryTransform):
        if tree.find(forbidden):
            raise BadInput(f"a channel's query only reads: {forbidden.__name__.upper()} cannot be part of it")
    return tree


def _check_functions(tree: exp.Query) -> None:
    for call in tree.find_all(exp.Func):
        name = (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower()
        if name in FICKLE:
            raise BadInput(
                f"{name}() gives another answer each time, and an execution that is repeated must give the same; "
                "for the time there is execution_time()"
            )
        if name in OUTSIDE:
            raise BadInput(f"{name}() reaches outside the application's data, and cannot be used in a channel")


def _check_parameters(tree: exp.Query, parameters: Columns) -> set[str]:
    used = set()
    for marker in tree.find_all(exp.Placeholder, exp.Parameter, exp.SessionParameter):
        name = marker.name
        if not isinstance(marker, exp.Placeholder) or name in ("", "?"):
            raise BadInput(f"a parameter is written :name, but here is {marker.sql(DIALECT)}")
        if name not in parameters:
            raise UnknownName("parameter", name, sorted(parameters))
        used.add(name)
    if unused := sorted(set(parameters) - used):
        raise BadInput(f"parameter '{unused[0]}' is declared, but the query does not use :{unused[0]}")
    return used


def _check_tables(tree: exp.Query, tables: Mapping[str, Columns]) -> set[str]:
    made = {cte.alias_or_name for cte in tree.find_all(exp.CTE)}
    if clash := made & set(tables):
        raise BadInput(f"WITH {sorted(clash)[0]} has the name of a feed or dataset; choose another")
    named = set()
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.args.get("db"):
            raise BadInput(f"{table.sql(DIALECT)} is not a feed or dataset; known: {', '.join(sorted(tables))}")
        name = table.name.lower()
        if name in made:
            continue
        if name not in tables:
            raise UnknownName("feed or dataset", table.name, sorted(tables))
        named.add(name)
    for alias in tree.find_all(exp.TableAlias):
        if alias.name.startswith("_"):
            raise BadInput(f"alias '{alias.name}': names that begin with '_' are kept for the rewritten query")
    return named


def _check_columns(tree: exp.Query, columns: tuple[str, ...]) -> None:
    if tree.find(exp.Star) and any(isinstance(each.parent, exp.Select) for each in tree.find_all(exp.Star)):
        raise BadInput("a star cannot be spelled out, as two of its columns have the same name; name the columns")
    for select in tree.find_all(exp.Select):
        names = [name.lower() for name in select.named_selects]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadInput(f"two columns are called '{twice[0]}'; give one of them another name with AS")
        if hidden := [name for name in names if name.startswith("_") and not name.startswith("_col_")]:
            raise BadInput(f"column '{hidden[0]}': names that begin with '_' are kept for the rewritten query")
    if nameless := [name for name in columns if not name or name.startswith("_col_")]:
        at = columns.index(nameless[0]) + 1
        raise BadInput(f"column {at} of the answer has no name; give it one with AS")


def _inline(call: exp.Anonymous) -> None:
    """Shorthands that an index can serve only if it sees what they stand for."""
    name, arguments = call.name.lower(), call.expressions
    if name == "within_km" and len(arguments) == 5:
        distance = exp.Anonymous(this="distance_km", expressions=[each.copy() for each in arguments[:4]])
        call.replace(exp.Paren(this=exp.LTE(this=distance, expression=arguments[4].copy())))
    elif name == "in_box" and len(arguments) == 6:
        lat, lon, south, west, north, east = (each.sql(DIALECT) for each in arguments)
        inside = (
            f"(({lat}) BETWEEN ({south}) AND ({north}) AND CASE WHEN ({west}) <= ({east}) "
            f"THEN ({lon}) BETWEEN ({west}) AND ({east}) ELSE ({lon}) >= ({west}) OR ({lon}) <= ({east}) END)"
        )
        call.replace(sqlglot.parse_one(inside, read=DIALECT))


def _sentence(error: OptimizeError, tree: exp.Query, tables: Mapping[str, Columns]) -> str:
    said = _first_line(error)
    if found := re.search(r"Column '([^']+)' could not be resolved|Unknown column: (\S+)", said):
        column = (found.group(1) or found.group(2)).strip('`"').split(".")[-1]
        named = {table.name.lower() for table in tree.find_all(exp.Table)} & set(tables)
        known = sorted({name for table in named for name in tables[table]})
        return str(UnknownName("column", column, known))
    return f"the query cannot be resolved: {said}"


def _first_line(error: Exception) -> str:
    """Without the colours and the excerpt that the parser adds for terminals."""
    said = re.sub(r"\x1b\[\d*m", "", str(error)).split("\n")[0].rstrip(". ").replace("Invalid expression / ", "")
    return re.sub(r"<Token [^>]*text: (\S+?),[^>]*>", r"'\1'", said).replace("'SENTINEL'", "the end")
