"""The table of a channel's subscriptions and its indexes, kept in memory and updated incrementally.

The version of a table is a position in the hub's stream of subscription events. A few changes are applied on top of the
table; after many changes, the table is rebuilt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import functions as F

from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.protocol.hub_verbs import BackendRecord
from trimtab.fleet.protocol.streams import BACKEND
from trimtab.fleet.protocol.types import schema_ddl
from trimtab.pipeline import feed_reader, feeds
from trimtab.pipeline.sql.share import SUB, SUBSCRIPTIONS
from trimtab.pipeline.tables import CachedRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from trimtab.pipeline.nats.jetstream import JetStream
    from trimtab.pipeline.nats.wire import Server
    from trimtab.pipeline.plan import Plan

FEW: Final = 2_000  # changes that are always applied on top of a table, without rebuilding it


@dataclass(slots=True)
class Table:
    """The subscriptions of one channel: a base in memory, and the changes since."""

    plan: Plan
    base: CachedRows | None = None  # as of ``version``
    version: int = 0
    added: dict[str, dict[str, Any]] = field(default_factory=dict)  # id -> parameters, added after ``version``
    removed: set[str] = field(default_factory=set)
    changed: int = 0  # stream position of the last change
    indexes: dict[str, tuple[CachedRows, tuple[int, ...]]] = field(default_factory=dict)  # name -> rows, levels

    @property
    def count(self) -> int:
        return self.base.count if self.base is not None else 0

    @property
    def now(self) -> int:
        return self.count + len(self.added) - len(self.removed)

    def apply(self, identity: str, on: bool, params: dict[str, Any], seq: int) -> None:
        """Apply one event: the subscription was added (``on``) or removed. The hub sends no event without a change.

        The hub keeps only the last events, so the first known event of a subscription may be its removal.
        """
        self.changed = seq
        if on and identity in self.removed:
            self.removed.remove(identity)
        elif on:
            self.added[identity] = params
        elif self.added.pop(identity, None) is None and self.base is not None:
            self.removed.add(identity)


class Subscriptions:
    """The subscriptions of all channels of an application."""

    def __init__(
        self, spark: SparkSession, server: Server, plans: dict[str, Plan],
        when_free: Callable[[Callable[[], None]], None],
    ) -> None:  # fmt: skip
        self._spark = spark
        self._when_free = when_free  # delays a drop until no execution can still read the rows
        self._server = server
        self._tables = {name: Table(plan) for name, plan in plans.items()}
        self.version = 0  # stream position up to which events have been read

    def follow(self, jetstream: JetStream) -> None:
        """Read and apply the events since the last call."""
        last = jetstream.info(BACKEND).last
        if last - self.version > feed_reader.FEW:  # usually at the start
            events = self._latest_events(last).cache()
            for table in self._tables.values():
                self._make(table, events, last)
            events.unpersist()
        elif last > self.version:
            for rows in jetstream.read(BACKEND, self.version + 1, last):
                for seq, subject, data in zip(rows.seq, rows.subject, rows.data, strict=True):
                    parts = subjects.backend_subscription(subject.decode())
                    if parts is not None and parts[0] in self._tables:
                        event = coding.decode(bytes(data), BackendRecord)
                        self._tables[parts[0]].apply(parts[1], event.on, event.params, seq)
        self.version = last

    def _latest_events(self, version: int) -> DataFrame:
        return latest_events(feeds.read(self._spark, self._server, {}, {BACKEND: version}))

    def count(self, channel: str) -> int:
        """The current number of subscriptions."""
        return self._tables[channel].now

    def show(
        self, channel: str, version: int, with_indexes: Callable[[int], bool]
    ) -> tuple[int, dict[str, tuple[int, ...]]]:
        """Create the views that the channel's query reads; returns the number of subscriptions and the index levels.

        ``version`` may be an earlier one, for a repeated execution. ``with_indexes`` decides by the number of
        subscriptions whether the indexes are needed.
        """
        table = self._tables[channel]
        if max(table.version, table.changed) > version:
            earlier = Table(table.plan)
            self._make(earlier, self._latest_events(version), version)
            table = earlier
        elif table.base is None or len(table.added) + len(table.removed) > max(FEW, table.count // 20):
            self._keep(table, self._with_changes(table), self.version)
        self._with_changes(table).createOrReplaceTempView(SUBSCRIPTIONS)
        return table.now, self._show_indexes(table) if with_indexes(table.now) else {}

    def _make(self, table: Table, events: DataFrame, version: int) -> None:
        channel = table.plan.channel
        self._keep(table, subscriptions_of(events, channel.name, channel.parameters), version)

    def _keep(self, table: Table, rows: DataFrame, version: int) -> None:
        """Replace the table by these rows, and drop its changes and indexes."""
        old = table.base
        table.base = CachedRows(rows)
        table.version = version
        table.added, table.removed, table.changed = {}, set(), 0
        for index, _ in table.indexes.values():
            self._when_free(index.drop)
        table.indexes = {}
        if old is not None:
            self._when_free(old.drop)

    def _with_changes(self, table: Table) -> DataFrame:
        channel = table.plan.channel
        if table.base is not None and not (table.added or table.removed):
            return table.base.rows
        texts = pa.table({
            SUB: pa.array(list(table.added), pa.string()),
            "_params": pa.array([json.dumps(params) for params in table.added.values()], pa.string()),
        })  # fmt: skip
        fresh = _with_params(self._spark.createDataFrame(texts), channel.parameters)
        if table.base is None:
            return fresh
        base = table.base.rows
        remaining = base.where(~F.col(SUB).isin(list(table.removed))) if table.removed else base
        return remaining.unionByName(fresh) if table.added else remaining

    def _show_indexes(self, table: Table) -> dict[str, tuple[int, ...]]:
        """Create the views of the indexes. An index of subscriptions alone is kept; changes are applied on top."""
        levels = {}
        for index in table.plan.indexes:
            rows = self._spark.sql(index.sql)
            if not index.own:
                levels_in_use = tuple(
                    row[0] for row in rows.select("_level").distinct().collect() if row[0] is not None
                )
            else:
                if index.name not in table.indexes:
                    assert table.base is not None
                    table.base.rows.createOrReplaceTempView(SUBSCRIPTIONS)
                    # Without its lineage: Spark would drop the cache as soon as another channel replaces the view.
                    cached = CachedRows(self._spark.sql(index.sql))
                    index_levels = tuple(row[0] for row in cached.rows.select("_level").distinct().collect())
                    table.indexes[index.name] = (cached, index_levels)
                    self._with_changes(table).createOrReplaceTempView(SUBSCRIPTIONS)
                rows, levels_in_use = table.indexes[index.name][0].rows, table.indexes[index.name][1]
                if table.added or table.removed:
                    rows, levels_in_use = self._changed_index(table, index.sql, rows, levels_in_use)
            rows.createOrReplaceTempView(index.name)
            levels[index.name] = levels_in_use
        return levels

    def _changed_index(
        self, table: Table, sql: str, rows: DataFrame, levels: tuple[int, ...]
    ) -> tuple[DataFrame, tuple[int, ...]]:
        current = self._with_changes(table)
        current.where(F.col(SUB).isin(list(table.added))).createOrReplaceTempView(SUBSCRIPTIONS)
        fresh = self._spark.sql(sql)
        fresh_levels = {row[0] for row in fresh.select("_level").distinct().collect()}
        current.createOrReplaceTempView(SUBSCRIPTIONS)
        remaining = rows.where(~F.col(SUB).isin(list(table.removed)))
        return remaining.unionByName(fresh), tuple({*levels, *fresh_levels})


def latest_events(events: DataFrame) -> DataFrame:
    """The last event of each subscription: ``subject`` and ``data``."""
    return events.groupBy("subject").agg(F.max_by("data", "seq").alias("data"))


def subscriptions_of(latest: DataFrame, channel: str, parameters: dict[str, str]) -> DataFrame:
    """The subscriptions of a channel after all these events: ``_sub`` and a column for every parameter."""
    parts = [F.regexp_extract("subject", subjects.BACKEND_PATTERN, group) for group in (1, 2)]
    own = latest.where(parts[0] == channel)
    text = F.from_json(F.col("data").cast("string"), "on BOOLEAN, params STRING")
    active = own.select(parts[1].alias(SUB), text.alias("_event")).where("_event.on")
    return _with_params(active.select(SUB, F.col("_event.params").alias("_params")), parameters)


def _with_params(texts: DataFrame, parameters: dict[str, str]) -> DataFrame:
    if not parameters:
        return texts.select(SUB)
    params = texts.select(SUB, F.from_json("_params", schema_ddl(parameters)).alias("_p"))
    return params.select(SUB, *(F.col(f"_p.`{name}`").alias(name) for name in parameters))
