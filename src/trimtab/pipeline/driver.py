"""The pipeline's loop: take new publications, execute the channels that are due, publish results, update the ledger.

Feeds are read and parsed in another thread. Long jobs (executions of channels with a period, and writing feeds to disk)
run one at a time in a background thread, so that continuous channels do not wait for them.

An execution is recorded in the hub's ledger before it begins and when it is done. If the driver dies in between, the
execution is repeated with the same publications, subscriptions and time. Results that are stored already are not sent
again. So every (channel, execution, subscription) has exactly one result, wherever the driver died.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet.protocol.streams import RESULTS
from trimtab.pipeline import bridge, publish, tables
from trimtab.pipeline.background_job import BackgroundJob
from trimtab.pipeline.datasets import HIDDEN, Arrivals, Keyed
from trimtab.pipeline.feed_reader import FeedReader
from trimtab.pipeline.ledger import Execution, Ledger
from trimtab.pipeline.nats.jetstream import JetStream
from trimtab.pipeline.nats.source import NatsSource
from trimtab.pipeline.plan import pays, with_time
from trimtab.pipeline.sql import functions
from trimtab.pipeline.subscriptions import Subscriptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from trimtab.pipeline.datasets import Segment
    from trimtab.pipeline.ledger import Positions
    from trimtab.pipeline.manifest import App
    from trimtab.pipeline.nats.wire import Server
    from trimtab.pipeline.plan import Plan

    Do = Callable[[Callable[[], Any], Callable[[Any], None]], None]  # (work, callback for the result of the work)

log = logging.getLogger("trimtab.pipeline")
PAUSE_S: Final = 0.1  # longest time that a round waits for new publications
LONGEST_REST_S: Final = 0.5  # longest pause of a continuous channel between executions
BROADCAST_MOST: Final = 200_000  # most publications that are broadcast to every core instead of the subscriptions
STORE_S: Final = 30.0  # interval of writes of feeds to disk
STORE_MOST: Final = 100_000  # unwritten messages of a feed that start a write early: channels wait for long writes
SNAPSHOT_S: Final = 300.0  # interval of snapshots of keyed datasets


@dataclass(slots=True)
class Done:
    """Figures of a finished execution, passed to the driver's ``on_execution`` callback."""

    channel: str
    execution: int
    publications: int
    subscriptions: int
    results: int
    rows: int
    indexed: bool
    took_s: float
    late_s: float  # time from the scheduled time to the last result
    left_out: int = 0  # rows that are too large for a message
    reason: str = ""  # why the last such row was left out


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A channel's query after Spark's analysis. The temporary views that it names may be replaced afterwards."""

    results: DataFrame
    publications: int
    subscriptions: int
    indexed: bool
    began: float


@dataclass(slots=True)
class Due:
    """The schedule of a channel: its next execution, in seconds since 1970."""

    period_s: float  # 0: continuous
    phase_s: float = 0.0  # offset from multiples of the period
    next_at: float = 0.0

    def start(self, now: float) -> None:
        if self.period_s:
            past = math.floor((now - self.phase_s) / self.period_s)
            self.next_at = (past + 1) * self.period_s + self.phase_s

    def rest(self, began: float, ended: float) -> None:
        """Let a continuous channel pause as long as its execution took, so that other channels get their turn."""
        if not self.period_s:
            self.next_at = ended + min(ended - began, LONGEST_REST_S)

    def is_now(self, now: float) -> bool:
        return now >= self.next_at


def at_once(work: Callable[[], Any], finish: Callable[[Any], None]) -> None:
    """Run the work in the calling thread, not in the background."""
    finish(work())


def schedule(periods_s: Mapping[str, float]) -> dict[str, Due]:
    """Stagger channels with a period evenly over the shortest period, so that they do not wait for each other."""
    periodic = [name for name, period_s in periods_s.items() if period_s]
    step_s = min((periods_s[name] for name in periodic), default=0.0) / max(1, len(periodic))
    phases_s = {name: row * step_s for row, name in enumerate(periodic)}
    return {name: Due(period_s, phases_s.get(name, 0.0)) for name, period_s in periods_s.items()}


class Driver:
    """Runs the channels of one application."""

    def __init__(
        self, spark: SparkSession, server: Server, app: App, plans: dict[str, Plan], folder: Path,
        on_execution: Callable[[Done], None] = lambda done: None,
    ) -> None:  # fmt: skip
        self.app = app
        self.plans = plans
        self.spark = spark
        self._server = server
        self._on_execution = on_execution
        self._folder = folder
        self.arrivals = {name: Arrivals(spark, server, feed, app.name, folder) for name, feed in app.feeds.items()}
        self._background = BackgroundJob()
        self._reader: FeedReader[Segment] | None = None
        self._keyed: dict[str, Keyed] = {}
        self._static: dict[str, DataFrame] = {}
        self.subscriptions = Subscriptions(spark, server, plans, self._background.when_free)
        self._due = schedule({name: plan.channel.period_s for name, plan in plans.items()})
        self._stored_at = self._snapshots_at = time.monotonic()
        self.ledger = Ledger(app.name)
        self._jetstream = JetStream(server)
        self._bridges: list[StreamingQuery] = []

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        for query in self._bridges:
            query.stop()
        self._background.close()
        if self._reader is not None:
            self._reader.close()
        self._jetstream.close()

    def load(self) -> None:
        """Read the files of static datasets. This changes nothing outside the process."""
        functions.register(self.spark)
        self.spark.dataSource.register(NatsSource)
        for dataset in self.app.datasets.values():
            if dataset.kind == "static":
                self._static[dataset.name] = tables.static(self.spark, dataset)
            elif dataset.kind == "keyed":
                arrivals = self.arrivals[dataset.feed]
                self._keyed[dataset.name] = Keyed(dataset, arrivals, self._folder, self._background.when_free)

    def start(self) -> None:
        """Read the ledger, and repeat the executions that were interrupted."""
        self.ledger = Ledger.read(self._jetstream, self.app.name)
        self._begin_where_it_ended()
        self.subscriptions.follow(self._jetstream)
        for feed in self.app.feeds.values():
            if feed.spark:
                self._bridges.append(bridge.start(self.spark, self._server, self.app, feed, self._folder))
        now = time.time()
        for due in self._due.values():
            due.start(now)
        for name in self.plans:
            interrupted = self.ledger.channels[name]
            if not interrupted.done:
                self._read_up_to(interrupted)
                log.info("channel %s: execution %d was interrupted; repeating it", name, interrupted.number)
                self._perform(name, interrupted, repeated=True)

    def _begin_where_it_ended(self) -> None:
        """Set the start position of every channel and feed from the ledger.

        A new channel starts at the current end of its feeds, and so does a feed that is new to a channel.
        """
        last = {name: arrivals.last(self._jetstream) for name, arrivals in self.arrivals.items()}
        for name, plan in self.plans.items():
            entry = self.ledger.channels.get(name)
            ends = [{feed: last[feed] for feed in feeds} for feeds in (plan.feeds, plan.datasets)]
            adapted = (entry or Execution(0, {}, {})).fitting(*ends)
            if adapted != entry:
                self.ledger.write_channel(self._jetstream, name, adapted)
        for name, arrivals in self.arrivals.items():
            position = self.ledger.stored.get(name, last[name])
            if name in self.ledger.stored and arrivals.is_new_here:
                log.warning("feed %s: no stored messages in %s; reading those still at the hub", name, self._folder)
                position = {stream: self._jetstream.info(stream).first - 1 for stream in last[name]}
            stored = {stream: min(position.get(stream, end), end) for stream, end in last[name].items()}
            if stored != self.ledger.stored.get(name):
                self.ledger.write_stored(self._jetstream, name, stored)
            floors = [stored, *(self._consumed(channel).get(name, stored) for channel in self.plans)]
            after = {stream: min(floor.get(stream, last[name][stream]) for floor in floors) for stream in last[name]}
            arrivals.start(after, stored)
        # Feeds of datasets are read last: if a client publishes its position and then a report, an execution that
        # sees the report also sees the position.
        dataset_feeds = {feed for plan in self.plans.values() for feed in plan.datasets}
        feeds = sorted(self.arrivals, key=lambda name: name in dataset_feeds)
        self._reader = FeedReader(self._server, {name: self.arrivals[name].upto for name in feeds}, self._segment)

    def _segment(self, feed: str, after: Positions, upto: Positions, messages: pa.Table | None) -> Segment:
        return self.arrivals[feed].segment(after, upto, messages)

    def _consumed(self, channel: str) -> dict[str, dict[str, int]]:
        entry = self.ledger.channels[channel]
        return entry.upto if entry.done else entry.after

    def _has_read(self, execution: Execution) -> bool:
        """Whether this driver has read all publications that the execution covers."""
        return all(
            self.arrivals[feed].upto[stream] >= at
            for feed, upto in (*execution.upto.items(), *execution.datasets.items())
            for stream, at in upto.items()
        )

    def _read_up_to(self, execution: Execution) -> None:
        while not self._has_read(execution):
            self._read(wait_s=1.0)

    def run(self, stopping: Callable[[], bool]) -> None:
        while not stopping():
            self.round(PAUSE_S)
        self._background.settle(wait=True)
        self.store()
        self.store_snapshots()

    def round(self, wait_s: float = 0.0) -> None:
        """Take new publications and execute every continuous channel that is due.

        If the background thread is free, also start a write to disk or one channel with a period.
        """
        for query in self._bridges:
            if (problem := query.exception()) is not None:
                raise problem
        self._background.settle()
        self._read(wait_s)
        self.subscriptions.follow(self._jetstream)
        now = time.time()
        due = [name for name, due in self._due.items() if due.is_now(now)]
        for name in due:
            if not self._due[name].period_s:
                self._execute(name, now)
        if not self._background.busy and not self._store_in_turn():
            waiting = sorted((n for n in due if self._due[n].period_s), key=lambda name: self._due[name].next_at)
            any(self._execute(name, now) for name in waiting)  # the first one, longest due first, that has new input
        for name, arrivals in self.arrivals.items():
            consumed = (self._consumed(channel) for channel in self.plans)
            arrivals.forget([positions[name] for positions in consumed if name in positions])

    def _read(self, wait_s: float = 0.0) -> None:
        """Take the segments that the reader thread has parsed; wait up to ``wait_s`` for the first."""
        assert self._reader is not None
        for segment in self._reader.take(wait_s):
            self.arrivals[segment.feed].add(segment)

    def _store_in_turn(self) -> bool:
        """Start a write to disk if one is due; returns whether a write was started."""
        now = time.monotonic()
        unstored = max((arrivals.unstored for arrivals in self.arrivals.values()), default=0)
        if now - self._stored_at > STORE_S or unstored > STORE_MOST:
            self.store(self._background.start)
            return True
        if now - self._snapshots_at > SNAPSHOT_S:
            self.store_snapshots(self._background.start)
            return True
        return False

    def store(self, do: Do = at_once) -> None:
        """Write the unwritten messages of all feeds to disk."""
        self._stored_at = time.monotonic()
        parts = []
        for name, arrivals in self.arrivals.items():
            for keyed in self._keyed.values():
                if keyed.dataset.feed == name:
                    keyed.rows(arrivals.upto)  # update it now: segments on disk may leave the memory
            parts += [(name, part) for part in [arrivals.unwritten()] if part is not None]

        def finish(bad: list[int]) -> None:
            for (name, part), count in zip(parts, bad, strict=True):
                self.arrivals[name].written(part, count)
                self.ledger.write_stored(self._jetstream, name, part.upto)

        do(lambda: [part.write() for _, part in parts], finish)

    def store_snapshots(self, do: Do = at_once) -> None:
        self._snapshots_at = time.monotonic()
        writes = [write for keyed in self._keyed.values() for write in [keyed.snapshot()] if write is not None]
        do(lambda: [write() for write in writes], lambda _: None)

    def _execute(self, name: str, now: float) -> bool:
        """Execute a channel that is due, unless it has no new input; returns whether it was executed."""
        due, began = self._due[name], time.time()
        at = due.next_at if due.period_s else now
        due.start(now)
        execution = self._next(name, at)
        if execution is None:
            return False
        self.ledger.write_channel(self._jetstream, name, execution)
        self._perform(name, execution, self._background.start if due.period_s else at_once)
        due.rest(began, time.time())
        return True

    def _next(self, name: str, at: float) -> Execution | None:
        plan, before = self.plans[name], self.ledger.channels[name]
        if not self._has_read(before):  # the driver has just started
            return None
        upto = {feed: dict(self.arrivals[feed].upto) for feed in plan.feeds}
        if upto == before.upto and not (plan.always and plan.channel.period_s):
            return None
        if not self.subscriptions.count(name):  # without subscriptions, publications are skipped
            self.ledger.write_channel(self._jetstream, name, replace(before, upto=upto))
            return None
        datasets = {feed: dict(self.arrivals[feed].upto) for feed in plan.datasets}
        return Execution(
            before.number + 1, before.upto, upto, datasets, self.subscriptions.version,
            datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
            self._jetstream.info(RESULTS).last, done=False, left_out=before.left_out, reason=before.reason,
        )  # fmt: skip

    def _perform(self, name: str, execution: Execution, do: Do = at_once, *, repeated: bool = False) -> None:
        prepared = self._prepare(name, execution)
        do(
            lambda: self._publish(name, execution, prepared.results, repeated=repeated),
            lambda counts: self._finish(name, execution, prepared, counts),
        )

    def _prepare(self, name: str, execution: Execution) -> PreparedQuery:
        began, plan = time.time(), self.plans[name]
        publications = self._show_tables(plan, execution)
        subscriptions, levels = self.subscriptions.show(
            name, execution.version, lambda count: pays(plan, publications, count)
        )
        sql, indexed = plan.plain, bool(levels) and all(levels.values())
        if plan.indexed is not None and indexed:
            sql = plan.indexed.at(levels, publications < subscriptions)
        results = self._results(publish.grouped(sql, plan.query.columns), execution)
        return PreparedQuery(results, publications, subscriptions, indexed, began)

    def _finish(self, name: str, execution: Execution, prepared: PreparedQuery, counts: publish.Counts) -> None:
        if counts.left_out:
            log.warning("channel %s: execution %d: %d rows left out: %s", name, execution.number, counts.left_out,
                        counts.reason)  # fmt: skip
            total = execution.left_out + counts.left_out
            execution = replace(execution, left_out=total, reason=counts.reason)
        self._commit(name, execution)
        ended = time.time()
        late = ended - datetime.fromisoformat(execution.at).timestamp()
        self._on_execution(
            Done(
                name, execution.number, prepared.publications, prepared.subscriptions, counts.messages,
                counts.rows, prepared.indexed, ended - prepared.began, late, counts.left_out, counts.reason,
            )
        )  # fmt: skip

    def _show_tables(self, plan: Plan, execution: Execution) -> int:
        """Create the views that the query reads, as of this execution; returns the number of publications."""
        count = 0
        for name in plan.query.tables:
            if name in self.arrivals:
                rows, number = self.arrivals[name].between(execution.after[name], execution.upto[name])
                count += number
                if number <= min(self.subscriptions.count(plan.channel.name), BROADCAST_MOST):
                    rows = rows.hint("broadcast")  # Spark does not know that the rows are few
            elif name in self._static:
                rows = self._static[name]
            else:
                dataset = self.app.datasets[name]
                arrivals = self.arrivals[dataset.feed]
                upto = execution.datasets[dataset.feed]
                rows = self._keyed[name].rows(upto) if name in self._keyed else arrivals.history(upto)
            rows.drop(*HIDDEN).createOrReplaceTempView(name)
        return count

    def _results(self, sql: str, execution: Execution) -> DataFrame:
        return self.spark.sql(with_time(sql, execution.at))

    def _publish(self, name: str, execution: Execution, results: DataFrame, *, repeated: bool) -> publish.Counts:
        stored: set[str] = set()
        if repeated:
            stored = publish.stored_identities(self._jetstream, RESULTS, execution.results, name, execution.number)
        send = publish.publisher(self._server, name, execution, stored)
        return sum(results.rdd.mapPartitions(send).collect(), publish.Counts())

    def _commit(self, name: str, execution: Execution) -> None:
        self.ledger.write_channel(self._jetstream, name, replace(execution, done=True))
