"""Telemetry into measurements of the whole fleet, every few seconds, for as long as a controller wants them."""

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
from trimtab.pipeline.measured import Measured, measured_tables
from trimtab.pipeline.nats.jetstream import JetStream

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from trimtab.pipeline.nats.wire import Server

log = logging.getLogger("trimtab.pipeline")
LOOK_S: Final = 5.0  # between measurements
AVERAGE_S: Final = 20.0  # of the moving averages that a controller plans on
HISTORY_S: Final = 60.0  # between writes of history
KEEP_S: Final = 7 * 86_400.0  # that history is kept


@dataclass(slots=True)
class Piece:
    """What came between two looks."""

    at: float
    reports: tables.Kept
    results: tables.Kept

    def drop(self) -> None:
        self.reports.drop()
        self.results.drop()


class Observer:
    """``run`` in a thread of its own. It makes no views, so that it may share the session of the channels.

    Nothing is added up twice, and links are put together anew only when any has come or gone.
    """

    def __init__(self, spark: SparkSession, server: Server, history: Path, feeds: Collection[str] = ()) -> None:
        self._spark = spark
        self._server = server
        self._history = history
        self._feeds = frozenset(feeds)  # topics of which the hub gets a copy
        self._forget_all()
        self._wanted: tuple[object, DataFrame | None] = (None, None)  # subscriptions as of some state of their stream
        self._wanted_at = -math.inf  # when they were read; and how long that took
        self._wanted_took = 0.0
        self._stored_at = time.monotonic()
        self._stored: float = 0.0
        self._lease: int | None = None  # where the stream of the controller's bucket was

    def _forget_all(self) -> None:
        self._pieces: list[Piece] = []
        self._averages: TopicAverages | None = None
        self._at = {TELEMETRY: 0, RESULTS: 0}
        self._marks: object = None  # of the links that are known
        self._links: pa.Table | None = None

    def run(self, stopping: Callable[[], bool]) -> None:
        with JetStream(self._server) as jetstream:
            while not stopping():
                began = time.monotonic()
                try:
                    if self._is_wanted(jetstream):
                        self.look(jetstream)
                    else:
                        self._forget()
                except Exception as error:  # channels go on, whatever becomes of measurements
                    log.warning("the fleet could not be measured: %s", str(error).split("\n")[0])
                    self._forget()
                while not stopping() and time.monotonic() < began + LOOK_S:
                    time.sleep(0.1)
        self._forget()

    def _is_wanted(self, jetstream: JetStream) -> bool:
        """Whether a controller has renewed its lease since the last time."""
        before, self._lease = self._lease, jetstream.info(bucket_stream(CONTROL)).last
        return before is not None and self._lease > before

    def _forget(self) -> None:
        """Begin anew; what is not in the history yet is written first."""
        if self._pieces:
            try:
                self.store()
            except Exception as error:
                log.warning("some history could not be written: %s", str(error).split("\n")[0])
        for piece in self._pieces:
            piece.drop()
        self._forget_all()

    def look(self, jetstream: JetStream) -> bool:
        """Take in what is new, and publish a measurement; whether there was anything to measure."""
        now = time.time()
        last = {stream: jetstream.info(stream).last for stream in self._at}
        if self._averages is None:  # what came before is not known to be complete
            self._averages, self._at = TopicAverages(AVERAGE_S, now), last
            return False
        # A few seconds of them, which one task adds up sooner than two would.
        reports = tables.Kept(telemetry.reports(self._read(TELEMETRY, last[TELEMETRY])).coalesce(1))
        results = tables.Kept(telemetry.results(self._read(RESULTS, last[RESULTS])).coalesce(1))
        self._at = last
        self._pieces.append(Piece(now, reports, results))
        rows = telemetry.topics(reports.frame).unionAll(results.frame).coalesce(1)
        middle = (self._averages.at + now) / 2
        self._averages.add(telemetry.halves(rows.where(rows.at > self._averages.began), middle).toArrow(), middle, now)
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
        """Reports and results that came after that and are in memory."""
        some = [piece for piece in self._pieces if piece.at > since]
        reports = tables.stacked(self._spark, [piece.reports for piece in some]).coalesce(1)
        return reports, tables.stacked(self._spark, [piece.results for piece in some]).coalesce(1)

    def _publish(self, jetstream: JetStream, now: float, averages: TopicAverages) -> None:
        said, _ = self._tables(now - USAGE_S)
        usage = self._usage(telemetry.brokers(said), telemetry.topics(said), max(averages.began, now - USAGE_S), now)
        links = Measured(
            self._current_links(jetstream, said), telemetry.publications(said, now - USAGE_S).toArrow(),
            telemetry.current_stock(said).toArrow(),
        )  # fmt: skip
        tables = measured_tables(averages.rates(), links, list(usage), self._feeds)
        data = packed(now, tables, usage, averages.unsure())
        number = int(now / LOOK_S)  # grows from one to the next, also over restarts
        jetstream.publish((subject, part, f"{number}/{subject}") for subject, part in messages(number, data))

    def _current_links(self, jetstream: JetStream, said: DataFrame) -> pa.Table:
        """Put together anew only if brokers list others than before, or subscriptions have come or gone."""
        newest: dict[str, tuple[float, int]] = {}
        for each in telemetry.marks(said).toArrow().to_pylist():
            newest[each["broker"]] = max(newest.get(each["broker"], (0.0, 0)), (each["at"], each["mark"]))
        wanted = self._subscriptions(jetstream)
        marks = ({broker: mark for broker, (_, mark) in newest.items()}, self._wanted[0])
        if self._links is None or marks != self._marks:
            self._links = telemetry.current_links(telemetry.links(said), wanted).toArrow()
            self._marks = marks
        return self._links

    def _subscriptions(self, jetstream: JetStream) -> DataFrame:
        """To channels; read anew when any has come or gone, but not for more than a tenth of the time."""
        state, known = jetstream.info(SUBSCRIPTIONS), self._wanted[1]
        began = time.monotonic()
        if known is not None and (self._wanted[0] == state or began < self._wanted_at + 10 * self._wanted_took):
            return known
        read = feeds.read(self._spark, self._server, {}, {SUBSCRIPTIONS: state.last})
        fresh = telemetry.subscriptions(read).coalesce(1).cache()
        fresh.count()
        if known is not None:
            known.unpersist()
        self._wanted = (state, fresh)
        self._wanted_at = time.monotonic()
        self._wanted_took = self._wanted_at - began
        return fresh

    def _usage(self, brokers: DataFrame, rows: DataFrame, since: float, now: float) -> dict[str, Usage]:
        late = telemetry.percentiles(rows.where(rows.at > since), ["broker"], [0.99])
        joined = telemetry.usage(brokers, rows, since, now).join(late, "broker", "left").toArrow().to_pylist()
        same = ("data", "messages", "cores", "processing", "memory", "own")
        return {
            each["broker"]: Usage(**{name: each[name] for name in same}, latency_ms=each["p99_ms"] or 0.0)
            for each in joined
        }

    def store(self) -> None:
        """History: what came since the last time, as Parquet."""
        self._stored_at, since, self._stored = time.monotonic(), self._stored, time.time()
        reports, results = self._tables(since)
        links = telemetry.links(reports)
        if (wanted := self._wanted[1]) is not None:
            links = links.unionByName(telemetry.listed_channels(links, wanted))
        frames: dict[str, Any] = {
            "brokers": telemetry.brokers(reports), "links": links,
            "topics": telemetry.topics(reports).unionByName(results),
        }  # fmt: skip
        for name, frame in frames.items():
            folder = self._history / name
            part, whole = folder / f".at-{int(self._stored)}", folder / f"at-{int(self._stored)}"
            frame.coalesce(1).write.mode("overwrite").parquet(str(part))
            part.rename(whole)
            for old in folder.glob("at-*"):
                if tables.age_s(old) > KEEP_S:
                    shutil.rmtree(old, ignore_errors=True)
