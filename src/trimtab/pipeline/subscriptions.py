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
from trimtab.pipeline.sql.share import SUB, SUBSCRIPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from trimtab.pipeline.jetstream import JetStream, Server
    from trimtab.pipeline.plan import Plan

FEW: Final = 2_000  # changes that are applied to what is kept
READ: Final = 20_000  # events that are read here instead of by Spark


@dataclass(slots=True)
class Table:
    """One channel's."""

    plan: Plan
    base: DataFrame | None = None  # as of ``version``
    version: int = 0
    count: int = 0
    came: dict[str, dict[str, Any]] = field(default_factory=dict)  # id -> parameters, after ``version``
    went: set[str] = field(default_factory=set)
    changed: int = 0  # the place of the last change
    indexes: dict[str, tuple[DataFrame, tuple[int, ...]]] = field(default_factory=dict)  # name -> rows, levels

    @property
    def now(self) -> int:
        return self.count + len(self.came) - len(self.went)

    def apply(self, identity: str, on: bool, params: dict[str, Any], seq: int) -> None:
        """It came, or it went: the hub tells of nothing that stays as it is."""
        self.changed = seq
        if on and identity in self.went:
            self.went.remove(identity)
        elif on:
            self.came[identity] = params
        elif self.came.pop(identity, None) is None:
            self.went.add(identity)


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
                        self._tables[channel].apply(identity, event["on"], event["params"], seq)
        self.version = last

    def count(self, channel: str) -> int:
        """How many there are now."""
        table = self._tables[channel]
        if table.base is None and self.version:
            self._make(table, self.version)
        return table.now

    def show(
        self, channel: str, version: int, with_indexes: Callable[[int], bool]
    ) -> tuple[int, dict[str, tuple[int, ...]]]:
        """Make the channel's table the view that its query reads; how many there are, and its indexes' levels.

        ``version`` may be an earlier one, for an execution that is repeated. ``with_indexes`` says by the number of
        subscriptions whether the indexes are needed.
        """
        table = self._tables[channel]
        if max(table.version, table.changed) > version:
            repeated = Table(table.plan)
            self._make(repeated, version)
            table = repeated
        elif table.base is None or len(table.came) + len(table.went) > max(FEW, table.count // 20):
            self._make(table, self.version)
        self._with_changes(table).createOrReplaceTempView(SUBSCRIPTIONS)
        return table.now, self._show_indexes(table) if with_indexes(table.now) else {}

    def _make(self, table: Table, version: int) -> None:
        channel = table.plan.channel
        old = table.base
        events = feeds.read(self._spark, self._server, {}, {BACKEND: version})
        table.base = latest_subscriptions(events, channel.name, channel.parameters).cache()
        table.count = table.base.count()
        table.version = version
        table.came, table.went, table.changed = {}, set(), 0
        for rows, _ in table.indexes.values():
            rows.unpersist()
        table.indexes = {}
        if old is not None:
            old.unpersist()

    def _with_changes(self, table: Table) -> DataFrame:
        assert table.base is not None
        if not (table.came or table.went):
            return table.base
        kept = table.base.where(~F.col(SUB).isin(list(table.went)))
        channel = table.plan.channel
        texts = [(name, json.dumps(params)) for name, params in table.came.items()]
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
                if table.came or table.went:
                    made, found = self._changed_index(table, index.sql, made, found)
            made.createOrReplaceTempView(index.name)
            levels[index.name] = found
        return levels

    def _changed_index(
        self, table: Table, sql: str, made: DataFrame, levels: tuple[int, ...]
    ) -> tuple[DataFrame, tuple[int, ...]]:
        whole = self._with_changes(table)
        whole.where(F.col(SUB).isin(list(table.came))).createOrReplaceTempView(SUBSCRIPTIONS)
        fresh = self._spark.sql(sql)
        found = {row[0] for row in fresh.select("_level").distinct().collect()}
        whole.createOrReplaceTempView(SUBSCRIPTIONS)
        kept = made.where(~F.col(SUB).isin(list(table.went)))
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
