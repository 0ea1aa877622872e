"""Telemetry into measurements of the whole fleet, every few seconds, for as long as a controller wants them."""

from __future__ import annotations

import logging
import shutil
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.fleet.channels import RESULTS, SUBSCRIPTIONS
from trimtab.fleet.keeper import CONTROL, TELEMETRY
from trimtab.observe.snapshot import Usage, packed
from trimtab.pipeline import feeds, tables, telemetry
from trimtab.pipeline.nats.jetstream import JetStream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from trimtab.pipeline.nats.wire import Server

log = logging.getLogger("trimtab.pipeline")
LOOK_S: Final = 5.0  # between measurements
AVERAGE_S: Final = 20.0  # of the moving averages that a controller plans on
MEMORY_S: Final = 60.0  # that telemetry is kept in memory
USAGE_S: Final = 10.0  # over which a broker's usage is the mean
PART: Final = 800_000  # bytes of a measurement in one message
SLOTS: Final = 3  # measurements that are there at a time, so that one is not replaced while it is read
HISTORY_S: Final = 60.0  # between writes of history
KEEP_S: Final = 7 * 86_400.0  # that history is kept


@dataclass(slots=True)
class Piece:
    """What came between two looks."""

    at: float
    reports: tables.Kept
    results: tables.Kept


class Observer:
    """``run`` in a thread of its own. It makes no views, so that it may share the session of the channels."""

    def __init__(self, spark: SparkSession, server: Server, history: Path) -> None:
        self._spark = spark
        self._server = server
        self._history = history
        self._pieces: list[Piece] = []
        self._began = 0.0
        self._at = {TELEMETRY: 0, RESULTS: 0}
        self._wanted: tuple[object, DataFrame | None] = (None, None)  # subscriptions as of some state of their stream
        self._number = 0
        self._stored_at = time.monotonic()
        self._stored: float = 0.0
        self._lease: int | None = None  # where the stream of the controller's bucket was

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

    def _is_wanted(self, jetstream: JetStream) -> bool:
        """Whether a controller has renewed its lease since the last time."""
        before, self._lease = self._lease, jetstream.info(f"KV_{CONTROL}").last
        return before is not None and self._lease > before

    def _forget(self) -> None:
        for piece in self._pieces:
            piece.reports.drop()
            piece.results.drop()
        self._pieces, self._began = [], 0.0

    def look(self, jetstream: JetStream) -> bool:
        """Take in what is new, and publish a measurement; whether there was anything to measure."""
        now = time.time()
        last = {stream: jetstream.info(stream).last for stream in self._at}
        if not self._began:  # what came before is not known to be complete
            self._began, self._at = now, last
            return False
        reports = telemetry.reports(self._read(TELEMETRY, last[TELEMETRY]))
        results = telemetry.results(self._read(RESULTS, last[RESULTS]))
        self._at = last
        self._pieces.append(Piece(now, tables.Kept(reports), tables.Kept(results)))
        for old in [piece for piece in self._pieces if piece.at < now - MEMORY_S]:
            old.reports.drop()
            old.results.drop()
        self._pieces = [piece for piece in self._pieces if piece.at >= now - MEMORY_S]
        self._publish(jetstream, now)
        if time.monotonic() > self._stored_at + HISTORY_S:
            self.store()
        return True

    def _read(self, stream: str, upto: int) -> DataFrame:
        return feeds.read(self._spark, self._server, {stream: self._at[stream]}, {stream: upto})

    def _tables(self, since: float = 0.0) -> tuple[DataFrame, DataFrame]:
        """Reports and results that are in memory: a minute of them, which one task adds up sooner than two would."""
        some = [piece for piece in self._pieces if piece.at > since]
        reports = tables.stacked(self._spark, [piece.reports for piece in some]).coalesce(1)
        return reports, tables.stacked(self._spark, [piece.results for piece in some]).coalesce(1)

    def _publish(self, jetstream: JetStream, now: float) -> None:
        since = max(self._began, now - MEMORY_S)
        reports, results = self._tables()
        rows = telemetry.topics(reports).unionAll(results).coalesce(1)
        known = telemetry.rates(rows, since, now, AVERAGE_S).toArrow()
        said, _ = self._tables(now - USAGE_S)
        linked = telemetry.current_links(telemetry.links(said), self._subscriptions(jetstream)).toArrow()
        usage = self._usage(telemetry.brokers(said), telemetry.topics(said), now)
        data = packed(now, _workload(known, linked, list(usage)), usage)
        self._number += 1
        slot = self._number % SLOTS
        parts = [data[at : at + PART] for at in range(0, len(data), PART)]
        number = int(now * 1000)
        about = f'{{"number": {number}, "slot": {slot}, "parts": {len(parts)}, "bytes": {len(data)}, "at": {now}}}'
        messages = [(f"snapshot.part.{slot}.{at}", part, f"{number}/{at}") for at, part in enumerate(parts)]
        jetstream.publish(iter([*messages, ("snapshot.about", about.encode(), f"{number}/about")]))

    def _subscriptions(self, jetstream: JetStream) -> DataFrame:
        """To channels; read anew only when any has come or gone."""
        state = jetstream.info(SUBSCRIPTIONS)
        if self._wanted[1] is None or self._wanted[0] != state:
            read = feeds.read(self._spark, self._server, {}, {SUBSCRIPTIONS: state.last})
            fresh = telemetry.subscriptions(read).coalesce(1).cache()
            if self._wanted[1] is not None:
                self._wanted[1].unpersist()
            self._wanted = (state, fresh)
        assert self._wanted[1] is not None
        return self._wanted[1]

    def _usage(self, brokers: DataFrame, rows: DataFrame, now: float) -> dict[str, Usage]:
        since = max(self._began, now - USAGE_S)
        late = telemetry.percentiles(rows.where(rows.at > since), ["broker"], [0.99])
        joined = telemetry.usage(brokers, since, now).join(late, "broker", "left").toArrow().to_pylist()
        return {
            each["broker"]: Usage(each["data"], each["messages"], each["cores"] or 0.0, each["p99_ms"] or 0.0)
            for each in joined
        }

    def store(self) -> None:
        """History: what came since the last time, as Parquet."""
        self._stored_at, since, self._stored = time.monotonic(), self._stored, time.time()
        reports, results = self._tables(since)
        frames: dict[str, Any] = {
            "brokers": telemetry.brokers(reports), "links": telemetry.links(reports),
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


def _workload(known: pa.Table, linked: pa.Table, brokers: list[str]) -> dict[str, pa.Table]:
    """``telemetry.workload`` of what is here already."""
    links = linked.filter(pc.is_valid(linked["topic"]))
    quiet = pc.unique(links["topic"]).filter(pc.invert(pc.is_in(pc.unique(links["topic"]), known["topic"])))
    nothing = pa.array([0.0] * len(quiet), pa.float64())
    topics = pa.concat_tables([
        pa.table({"id": known["topic"]} | {name: known[name] for name in known.column_names[1:]}),
        pa.table({"id": quiet} | dict.fromkeys(known.column_names[1:], nothing)),
    ])  # fmt: skip
    return {
        "topics": topics, "clients": pa.table({"id": pc.unique(linked["client"])}),
        "brokers": pa.table({"id": pa.array(brokers, pa.string())}), "links": links.select(["topic", "client", "role"]),
    }  # fmt: skip
