"""Turns telemetry into measurements of the whole fleet, every few seconds while a controller runs."""

from __future__ import annotations

import logging
import math
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet.protocol.snapshots import messages
from trimtab.fleet.protocol.streams import CONTROL, RESULTS, SUBSCRIPTIONS, TELEMETRY
from trimtab.fleet.protocol.subjects import bucket_stream
from trimtab.observe.snapshot import USAGE_S, Usage, packed
from trimtab.pipeline import feeds, tables, telemetry
from trimtab.pipeline.averages import TopicAverages
from trimtab.pipeline.latencies import TopicLatencies
from trimtab.pipeline.measured import Measured, measured_tables
from trimtab.pipeline.nats.jetstream import JetStream

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from trimtab.pipeline.nats.wire import Server

log = logging.getLogger("trimtab.pipeline")
MEASURE_S: Final = 5.0  # interval of measurements
AVERAGE_S: Final = 20.0  # time constant of the moving averages of rates
HISTORY_S: Final = 60.0  # interval of writes of history
KEEP_S: Final = 7 * 86_400.0  # retention of history


@dataclass(slots=True)
class Piece:
    """The reports and results between two measurements."""

    at: float
    reports: tables.RowsInMemory
    results: tables.RowsInMemory

    def drop(self) -> None:
        self.reports.drop()
        self.results.drop()


class Observer:
    """Measures the fleet; ``run`` is to be called in a separate thread.

    The observer creates no views, so it can share the session of the channels. Every report is counted once. The table
    of links is rebuilt only if links have changed.
    """

    def __init__(self, spark: SparkSession, server: Server, history: Path, feeds: Collection[str] = ()) -> None:
        self._spark = spark
        self._server = server
        self._history = history
        self._feeds = frozenset(feeds)  # topics whose publications the hub gets a copy of
        self._reset()
        self._subscription_rows: tuple[object, DataFrame | None] = (None, None)  # stream state, subscriptions
        self._subscriptions_at = -math.inf  # time of the last read of subscriptions
        self._subscriptions_took_s = 0.0  # duration of that read
        self._stored_at = time.monotonic()  # time of the last write of history
        self._stored: float = 0.0  # the same, in seconds since 1970
        self._lease: int | None = None  # last sequence of the controller's bucket at the last check

    def _reset(self) -> None:
        self._pieces: list[Piece] = []
        self._averages: TopicAverages | None = None
        self._latencies = TopicLatencies(AVERAGE_S)
        self._at = {TELEMETRY: 0, RESULTS: 0}
        self._marks: object = None  # fingerprint of the current links
        self._links: pa.Table | None = None

    def run(self, stopping: Callable[[], bool]) -> None:
        with JetStream(self._server) as jetstream:
            while not stopping():
                began = time.monotonic()
                try:
                    if self._has_controller(jetstream):
                        self.measure(jetstream)
                    else:
                        self._store_and_reset()
                except Exception as error:  # channels continue without measurements
                    log.warning("the fleet could not be measured: %s", str(error).split("\n")[0])
                    self._store_and_reset()
                while not stopping() and time.monotonic() < began + MEASURE_S:
                    time.sleep(0.1)
        self._store_and_reset()

    def _has_controller(self, jetstream: JetStream) -> bool:
        """Whether a controller has renewed its lease since the last time."""
        before, self._lease = self._lease, jetstream.info(bucket_stream(CONTROL)).last
        return before is not None and self._lease > before

    def _store_and_reset(self) -> None:
        """Write what is not in the history yet, and start the measurements again."""
        if self._pieces:
            try:
                self.store()
            except Exception as error:
                log.warning("some history could not be written: %s", str(error).split("\n")[0])
        for piece in self._pieces:
            piece.drop()
        self._reset()

    def measure(self, jetstream: JetStream) -> bool:
        """Read new telemetry and publish a measurement; returns whether a measurement was published."""
        now = time.time()
        last = {stream: jetstream.info(stream).last for stream in self._at}
        if self._averages is None:  # earlier telemetry may be incomplete
            self._averages, self._at = TopicAverages(AVERAGE_S, now), last
            return False
        # A few seconds of telemetry, which one task handles faster than two.
        reports = tables.RowsInMemory(telemetry.reports(self._read(TELEMETRY, last[TELEMETRY])).coalesce(1))
        results = tables.RowsInMemory(telemetry.results(self._read(RESULTS, last[RESULTS])).coalesce(1))
        self._at = last
        self._pieces.append(Piece(now, reports, results))
        rows = telemetry.topics(reports.frame).unionAll(results.frame).coalesce(1)
        middle = (self._averages.at + now) / 2
        fresh = rows.where(rows.at > self._averages.began)
        self._averages.add(telemetry.halves(fresh, middle).toArrow(), middle, now)
        self._latencies.add(telemetry.latencies(fresh).toArrow(), now)
        self._publish(jetstream, now, self._averages)
        if time.monotonic() > self._stored_at + HISTORY_S:
            self.store()
            for piece in self._pieces:
                if piece.at <= now - USAGE_S:
                    piece.drop()
            self._pieces = [piece for piece in self._pieces if piece.at > now - USAGE_S]
        return True

    def _read(self, stream: str, upto: int) -> DataFrame:
        return feeds.read(self._spark, self._server, {stream: self._at[stream]}, {stream: upto})

    def _tables(self, since: float) -> tuple[DataFrame, DataFrame]:
        """Reports and results after a time that are still in memory."""
        recent = [piece for piece in self._pieces if piece.at > since]
        reports = tables.stacked(self._spark, [piece.reports for piece in recent]).coalesce(1)
        return reports, tables.stacked(self._spark, [piece.results for piece in recent]).coalesce(1)

    def _publish(self, jetstream: JetStream, now: float, averages: TopicAverages) -> None:
        reports, _ = self._tables(now - USAGE_S)
        since = max(averages.began, now - USAGE_S)
        usage = self._usage(telemetry.brokers(reports), telemetry.topics(reports), since, now)
        links = Measured(
            self._current_links(jetstream, reports), telemetry.publications(reports, now - USAGE_S).toArrow(),
            telemetry.current_stock(reports).toArrow(), self._latencies.p90_ms(),
            telemetry.positions(reports).toArrow(),
        )  # fmt: skip
        tables = measured_tables(averages.rates(), links, list(usage), self._feeds)
        data = packed(now, tables, usage, averages.unsure())
        number = int(now / MEASURE_S)  # increases with every measurement, also over restarts
        jetstream.publish((subject, part, f"{number}/{subject}") for subject, part in messages(number, data))

    def _current_links(self, jetstream: JetStream, reports: DataFrame) -> pa.Table:
        """The links; rebuilt only if brokers list other links than before, or subscriptions have changed."""
        newest: dict[str, tuple[float, int]] = {}
        for mark in telemetry.marks(reports).toArrow().to_pylist():
            newest[mark["broker"]] = max(newest.get(mark["broker"], (0.0, 0)), (mark["at"], mark["mark"]))
        channels = self._subscriptions(jetstream)
        marks = ({broker: mark for broker, (_, mark) in newest.items()}, self._subscription_rows[0])
        if self._links is None or marks != self._marks:
            self._links = telemetry.current_links(telemetry.links(reports), channels).toArrow()
            self._marks = marks
        return self._links

    def _subscriptions(self, jetstream: JetStream) -> DataFrame:
        """Subscriptions to channels; read again if they have changed, but for a tenth of the time at most."""
        state, current = jetstream.info(SUBSCRIPTIONS), self._subscription_rows[1]
        began = time.monotonic()
        next_at = self._subscriptions_at + 10 * self._subscriptions_took_s
        if current is not None and (self._subscription_rows[0] == state or began < next_at):
            return current
        read = feeds.read(self._spark, self._server, {}, {SUBSCRIPTIONS: state.last})
        fresh = telemetry.subscriptions(read).coalesce(1).cache()
        fresh.count()
        if current is not None:
            current.unpersist()
        self._subscription_rows = (state, fresh)
        self._subscriptions_at = time.monotonic()
        self._subscriptions_took_s = self._subscriptions_at - began
        return fresh

    def _usage(self, brokers: DataFrame, rows: DataFrame, since: float, now: float) -> dict[str, Usage]:
        latency = telemetry.percentiles(rows.where(rows.at > since), ["broker"], [0.99])
        joined = telemetry.usage(brokers, rows, since, now).join(latency, "broker", "left").toArrow().to_pylist()
        names = ("data", "messages", "cores", "processing", "memory", "own", "clients")
        return {
            row["broker"]: Usage(**{name: row[name] for name in names}, latency_ms=row["p99_ms"] or 0.0)
            for row in joined
        }

    def store(self) -> None:
        """Write the reports and results since the last write to history, as Parquet."""
        self._stored_at, since, self._stored = time.monotonic(), self._stored, time.time()
        reports, results = self._tables(since)
        links = telemetry.links(reports)
        if (subscriptions := self._subscription_rows[1]) is not None:
            links = links.unionByName(telemetry.listed_channels(links, subscriptions))
        frames: dict[str, Any] = {
            "brokers": telemetry.brokers(reports), "links": links,
            "topics": telemetry.topics(reports).unionByName(results),
        }  # fmt: skip
        for name, frame in frames.items():
            folder = self._history / name
            part, final = folder / f".at-{int(self._stored)}", folder / f"at-{int(self._stored)}"
            frame.coalesce(1).write.mode("overwrite").parquet(str(part))
            part.rename(final)
            for old in folder.glob("at-*"):
                if tables.age_s(old) > KEEP_S:
                    shutil.rmtree(old, ignore_errors=True)
