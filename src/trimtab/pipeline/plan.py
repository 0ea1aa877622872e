"""Compiles a channel into a plan: its query is checked, shared by all subscriptions, and indexed where possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trimtab.errors import BadInput, BadManifest
from trimtab.fleet.protocol.types import schema_ddl
from trimtab.pipeline.sql import conditions, functions, index, query, share

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

    from trimtab.pipeline.manifest import App, Channel
    from trimtab.pipeline.sql.index import Index, Indexed
    from trimtab.pipeline.sql.query import Query

EPOCH: Final = "1970-01-01T00:00:00Z"
SOME_PAIRS: Final = 1e6
PAIRS_PER_PUBLICATION: Final = 30_000
PAIRS_PER_SUBSCRIPTION: Final = 7_000
ALL_WITH_ALL: Final = ("NestedLoopJoin", "CartesianProduct")


@dataclass(frozen=True, slots=True)
class Plan:
    """One query for all subscriptions of a channel: plain, and with indexes where possible."""

    channel: Channel
    query: Query
    plain: str
    indexed: Indexed | None
    feeds: tuple[str, ...]  # feeds whose new publications it reads
    datasets: tuple[str, ...]  # feeds behind the datasets that it reads
    always: bool  # whether it has results also without new publications

    @property
    def has_equality(self) -> bool:
        """Whether the plain query uses hash joins, too."""
        return all(" = " in each.kind for each in self.indexes)

    @property
    def indexes(self) -> tuple[Index, ...]:
        return self.indexed.indexes if self.indexed else ()


def pays(plan: Plan, publications: int, subscriptions: int) -> bool:
    """Whether there are so many pairs to compare that the plan's indexes are cheaper.

    Where the plain query has an equality, the cost of the index lookup is expressed in pairs compared in the same time,
    measured with 1,000 different values (docs/benchmarks.md).
    """
    pairs = publications * subscriptions
    if plan.indexed is None:
        return False
    if not plan.has_equality:
        return pairs >= SOME_PAIRS
    return pairs > PAIRS_PER_PUBLICATION * publications + PAIRS_PER_SUBSCRIPTION * subscriptions


def compile_channels(app: App) -> dict[str, Plan]:
    """Compile all channels of an application; BadManifest names the first that cannot be compiled, and why."""
    tables = {name: feed.schema for name, feed in app.feeds.items()}
    tables |= {name: dataset.schema for name, dataset in app.datasets.items()}
    for part in app.tables():
        if hidden := [column for column in part.schema if column.startswith("_")]:
            raise BadManifest(part.place, f"column '{hidden[0]}': names that begin with '_' are kept for the pipeline")
    return {name: _compile(channel, app, tables) for name, channel in app.channels.items()}


def _compile(channel: Channel, app: App, tables: Mapping[str, Mapping[str, str]]) -> Plan:
    try:
        if hidden := [name for name in channel.parameters if name.startswith("_")]:
            raise BadInput(f"parameter '{hidden[0]}': names that begin with '_' are kept for the pipeline")
        read = query.read(channel.query, tables, channel.parameters)
        feeds = tuple(sorted(read.tables & set(app.feeds)))
        if not feeds:
            known = ", ".join(sorted(app.feeds))
            raise BadInput(f"the query reads no feed, so nothing would ever be new; feeds: {known}")
        shared = conditions.narrowed(share.share(read))
        indexed = index.use_indexes(shared, tables, channel.parameters)
        behind = {app.datasets[name].feed for name in read.tables & set(app.datasets)} - {""}
        datasets = tuple(sorted(behind))
        return Plan(channel, read, share.text(shared), indexed, feeds, datasets, share.always_answers(shared))
    except BadManifest:
        raise
    except BadInput as error:
        raise BadManifest(channel.place, f"channel '{channel.name}': {error}") from None


def check_plans(spark: SparkSession, app: App, plans: Iterable[Plan]) -> None:
    """Have Spark analyse every query, and refuse queries that would compare all publications with all subscriptions."""
    from pyspark.errors import AnalysisException, ParseException

    session = _session(spark, app)
    for plan in plans:
        channel = plan.channel
        try:
            shown = _physical(session, plan)
        except (AnalysisException, ParseException) as error:
            said = (error.getMessage() or str(error)).split("\n")[0].rstrip(". ")
            raise BadManifest(channel.place, f"channel '{channel.name}': {said}") from None
        if channel.parameters and not channel.allow_cross and any(sign in shown for sign in ALL_WITH_ALL):
            raise BadManifest(
                channel.place,
                f"channel '{channel.name}' would compare every publication with every subscription: none of its "
                "conditions says that a column equals a parameter, lies within a radius (distance_km(...) <= ...) or "
                "between two parameters; add such a condition, or allow_cross: true if there will be few subscriptions",
            )


def explain(spark: SparkSession, app: App, plan: Plan) -> str:
    """Spark's physical plan, of the indexed query if there is one."""
    return _physical(_session(spark, app), plan)


def _session(spark: SparkSession, app: App) -> SparkSession:
    """A separate session with empty tables."""
    session = spark.newSession()
    functions.register(session)
    for part in app.tables():
        _empty(session, schema_ddl(part.schema)).createOrReplaceTempView(part.name)
    return session


def _physical(session: SparkSession, plan: Plan) -> str:
    _empty(session, subscription_ddl(plan.channel)).createOrReplaceTempView(share.SUBSCRIPTIONS)
    sql = plan.plain
    if plan.indexed is not None:
        for each in plan.indexes:
            session.sql(each.sql).createOrReplaceTempView(each.name)
        sql = plan.indexed.at({each.name: (0,) for each in plan.indexes})
    shown: str = session.sql(with_time(sql, EPOCH))._jdf.queryExecution().executedPlan().toString()
    return shown


def with_time(sql: str, at: str) -> str:
    """The query with the execution's time filled in."""
    return sql.replace("EXECUTION_TIME()", f"TIMESTAMP '{at}'")


def subscription_ddl(channel: Channel) -> str:
    columns = schema_ddl(channel.parameters)
    return f"{share.SUB} STRING{', ' if columns else ''}{columns}"


def _empty(session: SparkSession, ddl: str):  # type: ignore[no-untyped-def]
    """A table without rows, made so that Spark does not know it is empty: it would remove known empty tables."""
    return session.createDataFrame(session.sparkContext.emptyRDD(), ddl)
