"""What has come by a feed: in memory while channels need it, on disk for good, and the latest row per key of it."""

from __future__ import annotations

import shutil
import time
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.sql import functions as F

from trimtab.fleet.types import schema_ddl
from trimtab.pipeline import feeds, tables
from trimtab.pipeline.feeds import SEQ, STREAM, TIME, Segment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from trimtab.pipeline.jetstream import JetStream, Server
    from trimtab.pipeline.ledger import Positions
    from trimtab.pipeline.manifest import Dataset, Feed

AT_ONCE: Final = 200_000  # messages of a stream read in one go
SEGMENTS: Final = 12  # pieces in memory before old ones are put together
HIDDEN: Final = (STREAM, SEQ, TIME)


class Arrivals:
    """The publications of one feed."""

    def __init__(self, spark: SparkSession, server: Server, feed: Feed, app: str, folder: Path) -> None:
        self.feed = feed
        self.streams = feeds.streams_of(feed, app)
        self.upto: Positions = dict.fromkeys(self.streams, 0)  # what has been read
        self.stored: Positions = dict.fromkeys(self.streams, 0)  # what is on disk
        self.count = self.rejected = 0
        self._spark = spark
        self._server = server
        self._folder = folder / "feeds" / feed.name
        self._rejects = folder / "rejects" / feed.name
        self._segments: list[Segment] = []

    def start(self, after: Positions, stored: Positions) -> None:
        self.upto = {stream: after.get(stream, 0) for stream in self.streams}
        self.stored = {stream: stored.get(stream, 0) for stream in self.streams}

    def last(self, jetstream: JetStream) -> Positions:
        return {stream: jetstream.info(stream).last for stream in self.streams}

    def read(self, jetstream: JetStream) -> int:
        """Read what is new, parse it, keep it in memory; how many messages that were."""
        last = self.last(jetstream)
        upto = {stream: min(last[stream], at + AT_ONCE) for stream, at in self.upto.items()}
        if upto == self.upto:
            return 0
        schema = self.feed.schema
        raw = feeds.read(self._spark, self._server, self.upto, upto)
        rows = feeds.parsed(raw, schema).persist(StorageLevel.MEMORY_AND_DISK)
        counted = rows.agg(F.count("*"), F.count(feeds.BAD)).first()
        assert counted is not None
        count, bad = counted
        if bad:
            name = "-".join(str(at) for at in self.upto.values())
            feeds.rejects(rows, schema).write.mode("overwrite").parquet(str(self._rejects / f"after-{name}"))
        self._segments.append(Segment(dict(self.upto), upto, rows, count - bad, bad))
        self.upto = upto
        self.count += count - bad
        self.rejected += bad
        return int(count)

    def between(self, after: Positions, upto: Positions) -> tuple[DataFrame, int]:
        """Publications after and up to these positions, and about how many."""
        found = []
        count = 0
        for segment in self._segments:
            if all(segment.upto[s] <= after.get(s, 0) or segment.after[s] >= upto[s] for s in self.streams):
                continue
            rows = feeds.good(segment.rows, self.feed.schema)
            if any(segment.after[s] < after.get(s, 0) or segment.upto[s] > upto[s] for s in self.streams):
                rows = rows.where(_within(after, upto))
            found.append(rows)
            count += segment.count
        if not found:
            return self._nothing(), 0
        return reduce(lambda one, other: one.unionAll(other), found), count

    def _nothing(self) -> DataFrame:
        return self._spark.createDataFrame(
            [], f"{schema_ddl(self.feed.schema)}, {STREAM} STRING, {SEQ} LONG, {TIME} TIMESTAMP"
        )

    def history(self, upto: Positions) -> DataFrame:
        """Everything up to these positions: from disk, and what is not there yet."""
        fresh, _ = self.between(self.stored, upto)
        parts = [str(path) for path in sorted(self._folder.glob("after-*"))]
        if not parts:
            return fresh
        kept = self._spark.read.schema(fresh.schema).parquet(*parts).where(_within({}, upto))
        return kept.unionAll(fresh)

    def store(self) -> Positions | None:
        """Write to disk what is not there yet; the new position if there was anything."""
        if self.stored == self.upto:
            return None
        rows, _ = self.between(self.stored, self.upto)
        name = f"after-{'-'.join(str(at) for at in self.stored.values())}"
        part = self._folder / f".{name}"
        rows.write.mode("overwrite").parquet(str(part))
        shutil.rmtree(self._folder / name, ignore_errors=True)  # of a run that was cut off right after this
        part.rename(self._folder / name)
        self.stored = dict(self.upto)
        for old in self._folder.glob("after-*"):
            if time.time() - old.stat().st_mtime > self.feed.retention_s:
                shutil.rmtree(old, ignore_errors=True)
        return self.stored

    def forget(self, consumed: Sequence[Positions]) -> None:
        """Drop what every channel has had and what is on disk; put small old pieces together."""
        floors = [*consumed, self.stored]
        kept = []
        for segment in self._segments:
            if all(all(segment.upto[s] <= floor.get(s, 0) for s in self.streams) for floor in floors):
                segment.rows.unpersist()
            else:
                kept.append(segment)
        self._segments = kept
        if len(kept) > SEGMENTS:
            old, rest = kept[: -SEGMENTS // 2], kept[-SEGMENTS // 2 :]
            rows = reduce(lambda one, other: one.unionAll(other), (s.rows for s in old)).coalesce(2)
            rows = rows.persist(StorageLevel.MEMORY_AND_DISK)
            rows.count()
            whole = Segment(old[0].after, old[-1].upto, rows, sum(s.count for s in old), sum(s.rejected for s in old))
            for segment in old:
                segment.rows.unpersist()
            self._segments = [whole, *rest]


class Keyed:
    """The latest row per key of a feed."""

    def __init__(self, spark: SparkSession, dataset: Dataset, arrivals: Arrivals, folder: Path) -> None:
        self.dataset = dataset
        self._spark = spark
        self._arrivals = arrivals
        self._folder = folder / "keyed" / dataset.name
        self._base: DataFrame | None = None
        self._at: Positions = {}

    def rows(self, upto: Positions) -> DataFrame:
        """As of these positions."""
        if self._base is None or any(self._at[s] > upto[s] for s in upto):  # the latter to repeat an execution
            base = tables.latest(self._arrivals.history(upto), self.dataset.key)
        elif self._at == upto:
            return self._base
        else:
            fresh, _ = self._arrivals.between(self._at, upto)
            base = tables.latest(self._base.unionAll(fresh), self.dataset.key)
        made, _ = tables.settled(base)
        if self._base is not None:
            self._base.unpersist()
        self._base, self._at = made, dict(upto)
        return made


def _within(after: Mapping[str, int], upto: Mapping[str, int]) -> str:
    return " OR ".join(
        f"({STREAM} = '{stream}' AND {SEQ} > {after.get(stream, 0)} AND {SEQ} <= {high})"
        for stream, high in upto.items()
    )
