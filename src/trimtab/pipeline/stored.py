"""Stored data of an application as tables: messages of its feeds, datasets, rejected messages, results.

The tables can be read while a pipeline runs or when none does. Nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from trimtab.errors import BadInput
from trimtab.fleet.protocol.streams import RESULTS
from trimtab.pipeline import feeds, tables
from trimtab.pipeline.datasets import HIDDEN
from trimtab.pipeline.ledger import Ledger
from trimtab.pipeline.nats.jetstream import JetStream
from trimtab.pipeline.nats.source import NatsSource
from trimtab.pipeline.sql import functions

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from trimtab.pipeline.ledger import Positions
    from trimtab.pipeline.manifest import App, Feed
    from trimtab.pipeline.nats.wire import Server

REJECTS: Final = "rejects"
PLAIN: Final = ("byte", "short", "integer", "long", "float", "double", "boolean", "string")


def prepare(spark: SparkSession, server: Server, app: App, folder: Path) -> list[str]:
    """Create a view of each table; returns their names."""
    functions.register(spark)
    spark.dataSource.register(NatsSource)
    messages, rejects = {}, spark.createDataFrame([], f"feed STRING, {feeds.REJECTS}")
    with JetStream(server) as jetstream:
        views = {RESULTS: _results(spark, server, app, jetstream.info(RESULTS).last)}
        ledger = Ledger.read(jetstream, app.name)
        for name, feed in app.feeds.items():
            last = {stream: jetstream.info(stream).last for stream in feeds.streams_of(feed, app.name)}
            messages[name], bad = _messages(spark, server, feed, folder, ledger.stored.get(name, {}), last)
            rejects = rejects.unionAll(bad.select(F.lit(name).alias("feed"), "*"))
    views |= {name: rows.drop(*HIDDEN) for name, rows in messages.items()} | {REJECTS: rejects}
    for name, dataset in app.datasets.items():
        if dataset.kind == "static":
            views[name] = tables.static(spark, dataset)
        elif dataset.kind == "keyed":
            rows = tables.with_files(messages[dataset.feed], folder / "keyed" / name, "at-*")
            views[name] = tables.latest(rows, dataset.key).drop(*HIDDEN)
        else:
            views[name] = views[dataset.feed]
    for name, rows in views.items():
        rows.createOrReplaceTempView(f"`{name}`")
    return sorted(views)


def ask(spark: SparkSession, sql: str, limit: int) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of the answer, at most ``limit`` + 1 rows; times and similar types as texts."""
    try:
        rows = spark.sql(sql)
        plain = [field.dataType.typeName() in PLAIN for field in rows.schema]
        columns = [F.col(f"`{name}`") for name in rows.columns]
        shown = [column if is_plain else column.cast("string") for column, is_plain in zip(columns, plain, strict=True)]
        return rows.columns, [list(row) for row in rows.select(*shown).limit(limit + 1).collect()]
    except PySparkException as error:
        message = (error.getMessage() or str(error)).split("\n")[0].rstrip(". ")
        raise BadInput(f"the query cannot be answered: {message}") from None


def describe(spark: SparkSession, names: list[str]) -> tuple[list[str], list[list[Any]]]:
    """The tables, their columns, and how many rows they have."""
    rows = []
    for name in names:
        table = spark.table(f"`{name}`")
        rows.append([name, ", ".join(f"{column} {kind}" for column, kind in table.dtypes), table.count()])
    return ["table", "columns", "rows"], rows


def _messages(
    spark: SparkSession, server: Server, feed: Feed, folder: Path, stored: Positions, last: Positions
) -> tuple[DataFrame, DataFrame]:
    """All messages of a feed, and the rejected ones: from disk, and the newest from the hub."""
    fresh = feeds.parsed(feeds.read(spark, server, stored, last), feed.schema)
    good, bad = feeds.good(fresh, feed.schema), feeds.rejects(fresh, feed.schema)
    before = sum(stored.values())
    return (
        tables.with_files(good, folder / "feeds" / feed.name, "after-*", feed.retention_s, before),
        tables.with_files(bad, folder / "rejects" / feed.name, "after-*", feed.retention_s, before),
    )


def _results(spark: SparkSession, server: Server, app: App, last: int) -> DataFrame:
    """A row for each row of each result."""
    messages = feeds.read(spark, server, {}, {RESULTS: last}) if last else spark.createDataFrame([], feeds.MESSAGES)
    result = F.from_json(F.col("data").cast("string"), "execution LONG, at TIMESTAMP, rows ARRAY<STRING>")
    parts = F.split("subject", "[.]")
    return messages.select(
        parts[1].alias("channel"), parts[2].alias("subscription"), F.col("time").alias("stored"), result.alias("result")
    ).where(F.col("channel").isin(list(app.channels))).select(
        "channel", "result.execution", "result.at", "subscription", "stored", F.explode("result.rows").alias("row")
    )  # fmt: skip
