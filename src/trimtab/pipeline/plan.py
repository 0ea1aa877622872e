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
SOME_PAIRS: Final = 1e6  # pairs above which an index is cheaper, if the plain query has no equality
PAIRS_PER_PUBLICATION: Final = 30_000  # cost of an index lookup, in pairs compared in the same time
PAIRS_PER_SUBSCRIPTION: Final = 7_000  # cost of an index entry, in the same unit
ALL_WITH_ALL: Final = ("NestedLoopJoin", "CartesianProduct")  # joins that compare all pairs


@dataclass(frozen=True, slots=True)
class Plan:
    """One query for all subscriptions of a channel: plain, and with indexes where possible."""

    channel: Channel
    query: Query
    plain: str
    indexed: Indexed | None
    feeds: tuple[str, ...]  # feeds whose new publications the query reads
    datasets: tuple[str, ...]  # feeds of the datasets that the query reads
    always: bool  # whether there are results also without new publications

    @property
    def has_equality(self) -> bool:
        """Whether the plain query uses hash joins, too."""
        return all(" = " in index_.kind for index_ in self.indexes)

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
    """Compile all channels of an application; BadManifest names the first invalid channel and the reason."""
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
        parsed = query.read(channel.query, tables, channel.parameters)
        feeds = tuple(sorted(parsed.tables & set(app.feeds)))
        if not feeds:
            known = ", ".join(sorted(app.feeds))
            raise BadInput(f"the query reads no feed, so nothing would ever be new; feeds: {known}")
        shared = conditions.narrowed(share.share(parsed))
        indexed = index.use_indexes(shared, tables, channel.parameters)
        dataset_feeds = {app.datasets[name].feed for name in parsed.tables & set(app.datasets)} - {""}
        datasets = tuple(sorted(dataset_feeds))
        return Plan(channel, parsed, share.text(shared), indexed, feeds, datasets, share.always_answers(shared))
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
            physical = _physical(session, plan)
        except (AnalysisException, ParseException) as error:
            message = (error.getMessage() or str(error)).split("\n")[0].rstrip(". ")
            raise BadManifest(channel.place, f"channel '{channel.name}': {message}") from None
        if channel.parameters and not channel.allow_cross and any(sign in physical for sign in ALL_WITH_ALL):
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
        for index_ in plan.indexes:
            session.sql(index_.sql).createOrReplaceTempView(index_.name)
        sql = plan.indexed.at({index_.name: (0,) for index_ in plan.indexes})
    physical: str = session.sql(with_time(sql, EPOCH))._jdf.queryExecution().executedPlan().toString()
    return physical


def with_time(sql: str, at: str) -> str:
    """The query with the execution's time filled in."""
    return sql.replace("EXECUTION_TIME()", f"TIMESTAMP '{at}'")


def subscription_ddl(channel: Channel) -> str:
    columns = schema_ddl(channel.parameters)
    return f"{share.SUB} STRING{', ' if columns else ''}{columns}"


def _empty(session: SparkSession, ddl: str):  # type: ignore[no-untyped-def]
    """A table without rows whose emptiness is hidden from Spark, which would remove it from the plan otherwise."""
    return session.createDataFrame(session.sparkContext.emptyRDD(), ddl)
