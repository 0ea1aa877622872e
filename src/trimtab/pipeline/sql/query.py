"""A channel's query as it was written: parsed, every column resolved, and nothing in it but a query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.optimizer.qualify import qualify
from sqlglot.parsers.spark import SparkParser

from trimtab.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from collections.abc import Mapping

    Columns = Mapping[str, str]  # name -> type

DIALECT: Final = "spark"
# Functions of Spark that sqlglot confuses with others, or writes without some of their arguments.
UNLIKE: Final = {
    "INSTR", "LISTAGG", "MAX_BY", "MIN_BY", "PARSE_JSON", "PERCENTILE_CONT", "PERCENTILE_DISC", "STRING_AGG", "TO_CHAR",
}  # fmt: skip
# Non-deterministic functions: with them, a repeated execution would give different results.
NONDETERMINISTIC: Final = {
    "rand", "random", "randn", "randstr", "uniform", "uuid", "shuffle", "monotonically_increasing_id",
    "spark_partition_id", "input_file_name", "current_user", "session_user", "user", "now", "current_timestamp",
    "current_date", "current_time", "curdate", "localtime", "localtimestamp", "unix_timestamp",
}  # fmt: skip
# Functions that reach outside the application's data, or abort an execution for all subscriptions.
FORBIDDEN: Final = {
    "assert_true", "identifier", "java_method", "raise_error", "read_files", "reflect", "try_reflect",
}  # fmt: skip
ARGUMENTS: Final = {"within_km": 5, "in_box": 6, "distance_km": 4, "bearing_deg": 4, "compass": 1}
REFUSED: Final[dict[type[exp.Expr], str]] = {
    exp.Into: "INTO", exp.Insert: "INSERT", exp.Lock: "FOR UPDATE", exp.Hint: "a hint", exp.TableSample: "TABLESAMPLE",
    exp.QueryTransform: "TRANSFORM", exp.Pivot: "PIVOT", exp.Cluster: "CLUSTER BY", exp.Distribute: "DISTRIBUTE BY",
    exp.Sort: "SORT BY",
}  # fmt: skip


class _Parser(SparkParser):
    FUNCTIONS: ClassVar = {name: parse for name, parse in SparkParser.FUNCTIONS.items() if name not in UNLIKE}
    FUNCTION_PARSERS: ClassVar = {
        name: parse for name, parse in SparkParser.FUNCTION_PARSERS.items() if name not in UNLIKE
    }  # fmt: skip


class _Tokenizer(Spark.Tokenizer):
    STRING_ESCAPES: ClassVar = ["\\", "'", '"']  # since Spark 4, '' inside a string is a quote


class AsWritten(Spark):
    """Spark's SQL dialect that leaves the functions in ``UNLIKE`` as written."""

    Parser = _Parser
    Tokenizer = _Tokenizer


@dataclass(frozen=True, slots=True)
class Query:
    """A checked query. In ``tree``, every column is qualified with its table and every star is expanded."""

    tree: exp.Query
    tables: frozenset[str]  # feeds and datasets that it reads
    parameters: frozenset[str]  # parameters that it uses
    columns: tuple[str, ...]  # columns of its answer


def read(text: str, tables: Mapping[str, Columns], parameters: Columns) -> Query:
    """Parse and check ``text``, which may use these ``tables`` and ``parameters``."""
    tree = parse_select(text, "a channel")
    _check_clauses(tree)
    _check_functions(tree)
    used = _check_parameters(tree, parameters)
    named = _check_tables(tree, tables)
    spelled = _spelling(tree, named, tables)
    for call in reversed(list(tree.find_all(exp.Anonymous))):  # the innermost first
        _inline(call)
    tree = _resolve(tree, tables)
    _check_columns(tree, parameters)
    columns = tuple(spelled.get(name, name) for name in tree.named_selects)
    return Query(tree, frozenset(named), frozenset(used), columns)


def parse_select(text: str, whose: str) -> exp.Query:
    """Parse a single SELECT; ``whose`` names its owner in error messages."""
    try:
        statements = [statement for statement in sqlglot.parse(text, read=AsWritten) if statement is not None]
    except (ParseError, TokenError) as error:
        raise BadInput(f"the query does not parse: {_first_line(error)}") from None
    except Exception as error:  # the parser raises many kinds of errors on bad input
        raise BadInput(f"the query does not parse: {_first_line(error)}") from None
    if len(statements) != 1:
        raise BadInput(f"{whose} has one query, but here are {len(statements)} statements")
    tree = statements[0]
    if not _is_query(tree):
        raise BadInput(f"{whose}'s query is a SELECT, but this is {type(tree).__name__.upper()}")
    assert isinstance(tree, exp.Query)
    return tree


def _is_query(node: exp.Expr) -> bool:
    return isinstance(node.unnest(), (exp.Select, exp.SetOperation))


def _resolve(tree: exp.Query, tables: Mapping[str, Columns]) -> exp.Query:
    schema: dict[str, object] = {name: dict(columns) for name, columns in tables.items()}
    try:
        resolved = qualify(tree, schema=schema, dialect=DIALECT, quote_identifiers=False)
        resolved.sql(DIALECT)  # sqlglot can parse some calls that it cannot write
        return resolved
    except Exception as error:
        raise BadInput(_sentence(error, tree, tables)) from None


def _check_clauses(tree: exp.Query) -> None:
    for node in tree.walk():
        if type(node) in REFUSED:
            raise BadInput(f"{REFUSED[type(node)]} cannot be part of a channel's query")
        if isinstance(node, exp.Subquery):
            if any(node.args.get(clause) for clause in ("order", "limit", "offset", "with_")):
                raise BadInput("ORDER BY and LIMIT of a query in parentheses are written inside of them")
            if isinstance(node.this, exp.Table) and not node.alias:
                raise BadInput("tables are joined without parentheses around them")
        parts = [node.this] if isinstance(node, exp.CTE) else []
        parts += [node.this, node.expression] if isinstance(node, exp.SetOperation) else []
        if not all(map(_is_query, parts)):
            raise BadInput("WITH and UNION are of queries, and here is something else")
        if isinstance(node, exp.With) and node.args.get("recursive"):
            raise BadInput("WITH RECURSIVE cannot be shared by subscriptions")


def _check_functions(tree: exp.Query) -> None:
    for call in tree.find_all(exp.Func):
        name = (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower()
        if name in NONDETERMINISTIC:
            raise BadInput(
                f"{name}() gives another answer each time, and an execution that is repeated must give the same; "
                "for the time there is execution_time()"
            )
        if name in FORBIDDEN:
            raise BadInput(f"{name}() reaches outside the application's data, and cannot be used in a channel")
        if len(call.expressions) != ARGUMENTS.get(name, len(call.expressions)):
            raise BadInput(f"{name}() takes {ARGUMENTS[name]} arguments, but here are {len(call.expressions)}")


def _check_parameters(tree: exp.Query, parameters: Columns) -> set[str]:
    names_used = set()
    for marker in tree.find_all(exp.Placeholder, exp.Parameter, exp.SessionParameter):
        name = marker.name
        if not isinstance(marker, exp.Placeholder) or name in ("", "?"):
            raise BadInput(f"a parameter is written :name, but here is {marker.sql(DIALECT)}")
        if name not in parameters:
            raise UnknownName("parameter", name, sorted(parameters))
        names_used.add(name)
    if unused := sorted(set(parameters) - names_used):
        raise BadInput(f"parameter '{unused[0]}' is declared, but the query does not use :{unused[0]}")
    return names_used


def _check_tables(tree: exp.Query, tables: Mapping[str, Columns]) -> set[str]:
    cte_names: set[str] = set()
    for cte in tree.find_all(exp.CTE):
        name = cte.alias.lower()
        if name in tables:
            raise BadInput(f"WITH {name} has the name of a feed or dataset; choose another")
        if name in cte_names:
            raise BadInput(f"there are two WITH {name}; choose another name for one of them")
        cte_names.add(name)
    named = set()
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier) or table.args.get("db"):
            raise BadInput(f"{table.sql(DIALECT)} is not a feed or dataset; known: {', '.join(sorted(tables))}")
        name = table.name.lower()
        if name in cte_names:
            continue
        if name not in tables:
            raise UnknownName("feed or dataset", table.name, sorted(tables))
        named.add(name)
    for alias in tree.find_all(exp.TableAlias):
        if hidden := [
            name for name in (alias.name, *(column.name for column in alias.columns)) if name.startswith("_")
        ]:
            raise BadInput(f"alias '{hidden[0]}': names that begin with '_' are kept for the rewritten query")
    return named


def _check_columns(tree: exp.Query, parameters: Columns) -> None:
    for star in tree.find_all(exp.Star):
        owner = star.parent.parent if isinstance(star.parent, exp.Column) else star.parent
        if isinstance(owner, exp.Select):
            raise BadInput("a star cannot be expanded, since two of its columns have the same name; name the columns")
        if not (owner is star.parent and isinstance(owner, exp.Count)):
            raise BadInput("a star is for SELECT * and count(*) only; name the columns")
    for select in tree.find_all(exp.Select):
        names = [name.lower() for name in select.named_selects]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadInput(f"two columns are called '{twice[0]}'; give one of them another name with AS")
        if hidden := [name for name in names if name.startswith("_") and not name.startswith("_col_")]:
            raise BadInput(f"column '{hidden[0]}': names that begin with '_' are kept for the rewritten query")
    for at, name in enumerate(tree.named_selects, 1):
        if not name or name.startswith("_col_"):
            raise BadInput(f"column {at} of the answer has no name; give it one with AS")
    known = {name.lower() for name in parameters}
    for column in tree.find_all(exp.Column):
        if not column.table and column.name in known and not _orders(column):
            raise BadInput(f"'{column.name}' is both a column of the answer and a parameter; rename one of them")


def _orders(column: exp.Column) -> bool:
    """Whether the column is in the ORDER BY of a query, where only columns of the answer are visible."""
    order = column.find_ancestor(exp.Order, exp.Query)
    return isinstance(order, exp.Order) and isinstance(order.parent, exp.Query)


def _spelling(tree: exp.Query, named: set[str], tables: Mapping[str, Columns]) -> dict[str, str]:
    """Lower-case name -> name as written: resolving makes names lower-case."""
    spelling = {name.lower(): name for table in sorted(named) for name in tables[table]}
    spelling |= {alias.alias.lower(): alias.alias for alias in tree.find_all(exp.Alias)}
    return spelling | {name.lower(): name for name in tree.named_selects}


def _inline(call: exp.Anonymous) -> None:
    """Replace within_km() and in_box() by the conditions they stand for, so that an index can serve them."""
    name, arguments = call.name.lower(), call.expressions
    if name == "within_km":
        distance = exp.Anonymous(this="distance_km", expressions=[argument.copy() for argument in arguments[:4]])
        call.replace(exp.Paren(this=exp.LTE(this=distance, expression=exp.paren(arguments[4].copy()))))
    elif name == "in_box":
        lat, lon, south, west, north, east = (argument.sql(DIALECT) for argument in arguments)
        inside = (
            f"(({lat}) BETWEEN ({south}) AND ({north}) AND CASE WHEN ({west}) <= ({east}) "
            f"THEN ({lon}) BETWEEN ({west}) AND ({east}) ELSE ({lon}) >= ({west}) OR ({lon}) <= ({east}) END)"
        )
        call.replace(sqlglot.parse_one(inside, read=AsWritten))


def _sentence(error: Exception, tree: exp.Query, tables: Mapping[str, Columns]) -> str:
    message = _first_line(error)
    match = re.search(
        r"Column '([^']+)' could not be resolved(?: for table: '([^']+)')?|Unknown column: (\S+)", message
    )
    if match is None:
        return f"the query cannot be resolved: {message}"
    column, alias = (match.group(1) or match.group(3)).strip('`"').split(".")[-1], match.group(2)
    read = list(tree.find_all(exp.Table))
    known = sorted({name for table in read for name in tables.get(table.name.lower(), ())})
    if alias:
        return str(UnknownName("table", alias, sorted({table.alias_or_name for table in read})))
    if column in map(str.lower, known):
        return f"column '{column}' is in more than one table; write which one, as in {read[0].alias_or_name}.{column}"
    return str(UnknownName("column", column, known))


def _first_line(error: Exception) -> str:
    """The error's first line, without the terminal colours and the excerpt that the parser adds."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    message = re.sub(
        r"Required keyword: '\w+' missing for <class '[\w.]*?(\w+)'>",
        r"\1 is incomplete",
        str(error.__cause__ or error),
    )
    message = re.sub(r"\x1b\[\d*m", "", message).split("\n")[0].rstrip(". ").replace("Invalid expression / ", "")
    return re.sub(r"<Token [^>]*text: (\S+?),[^>]*>", r"'\1'", message).replace("'SENTINEL'", "the end")
