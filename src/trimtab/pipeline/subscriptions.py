"""The table of a channel's subscriptions, with its indexes: kept in memory, and brought up to date by what changed.

What is kept is as of some place in the hub's stream of subscriptions that came and went. A few changes are applied as
they are; when there are many, the table is made anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from trimtab.fleet.channels import BACKEND
from trimtab.fleet.types import schema_ddl
from trimtab.pipeline import feeds
from trimtab.pipeline.plan import subscription_ddl
from trimtab.pipeline.sql.share import SUB, SUBSCRIPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from trimtab.pipeline.jetstream import JetStream, Server
    from trimtab.pipeline.plan import Plan

FEW: Final = 2_000  # changes that are applied to what is kept
READ: Final = 20_000  # events that are read here instead of by Spark
SMALL: Final = 50_000  # subscriptions up to which Spark is told to send the table to every core


@dataclass(slots=True)
class Change:
    """What became of a subscription since the table was made."""

    on: bool
    params: dict[str, Any]
    seq: int


@dataclass(slots=True)
class Table:
    """One channel's."""

    plan: Plan
    base: DataFrame | None = None  # as of ``version``
    version: int = 0
    count: int = 0
    changes: dict[str, Change] = field(default_factory=dict)  # after ``version``
    indexes: dict[str, tuple[DataFrame, tuple[int, ...]]] = field(default_factory=dict)  # name -> rows, levels


class Subscriptions:
    """Of all channels of an application."""

    def __init__(self, spark: SparkSession, server: Server, plans: dict[str, Plan]) -> None:
        self._spark = spark
        self._server = server
        self._tables = {name: Table(plan) for name, plan in plans.items()}
        self.version = 0  # everything up to this place of the stream is known

    def follow(self, jetstream: JetStream) -> None:
        """Take over what has changed since the last time."""
        last = jetstream.info(BACKEND).last
        if last - self.version > READ:  # most of all at the start
            for table in self._tables.values():
                self._make(table, last)
        elif last > self.version:
            for rows in jetstream.read(BACKEND, self.version + 1, last):
                for seq, subject, data in zip(rows.seq, rows.subject, rows.data, strict=True):
                    _, channel, identity = subject.decode().split(".")
                    if channel in self._tables:
                        event = json.loads(data)
                        self._tables[channel].changes[identity] = Change(event["on"], event["params"], seq)
        self.version = last

    def count(self, channel: str) -> int:
        """About how many there are now; 0 only if there are none."""
        table = self._tables[channel]
        if table.base is None and self.version:
            self._make(table, self.version)
        changed = sum(1 for change in table.changes.values() if change.on)
        gone = sum(1 for change in table.changes.values() if not change.on)
        return max(table.count - gone, 0) + changed

    def show(self, channel: str, version: int | None = None) -> tuple[int, dict[str, tuple[int, ...]]]:
        """Make the channel's table the view that its query reads; how many there are, and its indexes' levels.

        ``version`` is an earlier one, for an execution that is repeated.
        """
        table = self._tables[channel]
        if version is not None and version != self.version and (table.version > version or table.changes):
            repeated = Table(table.plan)
            self._make(repeated, version)
            table = repeated
        elif table.base is None or len(table.changes) > max(FEW, table.count // 20):
            self._make(table, self.version)
        rows = self._with_changes(table)
        rows.createOrReplaceTempView(SUBSCRIPTIONS)
        return table.count + len(table.changes), self._show_indexes(table)

    def _make(self, table: Table, version: int) -> None:
        channel = table.plan.channel
        old = table.base
        events = feeds.read(self._spark, self._server, {}, {BACKEND: version})
        table.base = latest_subscriptions(events, channel.name, channel.parameters).cache()
        table.count = table.base.count()
        table.version = version
        table.changes = {}
        for rows, _ in table.indexes.values():
            rows.unpersist()
        table.indexes = {}
        if old is not None:
            old.unpersist()

    def _with_changes(self, table: Table) -> DataFrame:
        assert table.base is not None
        if not table.changes:
            return table.base
        kept = table.base.where(~F.col(SUB).isin(list(table.changes)))
        channel = table.plan.channel
        texts = [(name, json.dumps(change.params)) for name, change in table.changes.items() if change.on]
        fresh = self._spark.createDataFrame(texts, f"{SUB} STRING, _params STRING")
        return kept.unionByName(_with_params(fresh, channel.parameters).select(*kept.columns))

    def _show_indexes(self, table: Table) -> dict[str, tuple[int, ...]]:
        """Those of subscriptions alone are kept; what changed is added to them."""
        levels = {}
        for index in table.plan.indexes:
            made = self._spark.sql(index.sql)
            if not index.own:
                found = tuple(row[0] for row in made.select("_level").distinct().collect() if row[0] is not None)
            else:
                if index.name not in table.indexes:
                    assert table.base is not None
                    table.base.createOrReplaceTempView(SUBSCRIPTIONS)
                    kept = self._spark.sql(index.sql).cache()
                    known = tuple(row[0] for row in kept.select("_level").distinct().collect())
                    table.indexes[index.name] = (kept, known)
                    self._with_changes(table).createOrReplaceTempView(SUBSCRIPTIONS)
                made, found = table.indexes[index.name]
                if table.changes:
                    made, found = self._changed_index(table, index.sql, made, found)
            made.createOrReplaceTempView(index.name)
            levels[index.name] = found
        return levels

    def _changed_index(
        self, table: Table, sql: str, made: DataFrame, levels: tuple[int, ...]
    ) -> tuple[DataFrame, tuple[int, ...]]:
        whole = self._with_changes(table)
        whole.where(F.col(SUB).isin([n for n, c in table.changes.items() if c.on])).createOrReplaceTempView(
            SUBSCRIPTIONS
        )
        fresh = self._spark.sql(sql)
        found = {row[0] for row in fresh.select("_level").distinct().collect()}
        whole.createOrReplaceTempView(SUBSCRIPTIONS)
        kept = made.where(~F.col(SUB).isin(list(table.changes)))
        return kept.unionByName(fresh), tuple({*levels, *found})


def latest_subscriptions(events: DataFrame, channel: str, parameters: dict[str, str]) -> DataFrame:
    """The subscriptions of a channel after all these events: ``_sub`` and a column for every parameter."""
    own = events.where(F.col("subject").startswith(f"be.{channel}."))
    newest = own.groupBy("subject").agg(F.max_by("data", "seq").alias("data"))
    text = F.from_json(F.col("data").cast("string"), "on BOOLEAN, params STRING")
    known = newest.select(F.element_at(F.split("subject", "[.]"), -1).alias(SUB), text.alias("_event")).where(
        "_event.on"
    )
    return _with_params(known.select(SUB, F.col("_event.params").alias("_params")), parameters)


def _with_params(texts: DataFrame, parameters: dict[str, str]) -> DataFrame:
    if not parameters:
        return texts.select(SUB)
    params = texts.select(SUB, F.from_json("_params", schema_ddl(parameters)).alias("_p"))
    return params.select(SUB, *(F.col(f"_p.`{name}`").alias(name) for name in parameters))


__all__ = ["Subscriptions", "latest_subscriptions", "subscription_ddl"]
