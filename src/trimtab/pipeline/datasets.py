"""Messages of a feed: in memory while channels need them, on disk for its retention, and the latest row per key."""

from __future__ import annotations

import itertools
import logging
import math
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import Observation
from pyspark.sql import functions as F

from trimtab.fleet.protocol.types import schema_ddl
from trimtab.pipeline import feeds, tables
from trimtab.pipeline.feeds import SEQ, STREAM, TIME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from trimtab.pipeline.ledger import Positions
    from trimtab.pipeline.manifest import Dataset, Feed
    from trimtab.pipeline.nats.jetstream import JetStream
    from trimtab.pipeline.nats.wire import Server

log = logging.getLogger("trimtab.pipeline")
SMALL: Final = 20_000  # most publications that one Spark task handles faster than two would
GRACE_S: Final = 120.0  # time that an expired file is kept for queries that have already listed it
SNAPSHOTS: Final = 3  # snapshots kept: a repeated execution may need an earlier one
HIDDEN: Final = (STREAM, SEQ, TIME)


@dataclass(frozen=True, slots=True)
class Segment:
    """Messages of a feed between two positions, parsed and in memory."""

    feed: str
    after: Positions
    upto: Positions
    rows: tables.RowsInMemory
    count: int


@dataclass(frozen=True, slots=True)
class Writing:
    """Messages of a feed to be written to disk."""

    feed: Feed
    upto: Positions
    rows: DataFrame | None
    good: Path
    bad: Path
    needed: float  # position from which files are kept, however old

    def write(self) -> int:
        """Write the messages; returns the number that do not fit the feed's schema, which are written to ``bad``."""
        if self.rows is None:
            return 0
        counts = Observation()
        counted_rows = self.rows.observe(counts, F.expr(f"count({feeds.BAD}) AS bad"))
        self._write(feeds.good(counted_rows, self.feed.schema), self.good)
        bad: int = counts.get["bad"]
        if bad:
            self._write(feeds.rejects(self.rows, self.feed.schema), self.bad)
        return bad

    def _write(self, rows: DataFrame, path: Path) -> None:
        """Write all rows or none, replacing a file left by an interrupted run; delete files past retention."""
        tables.write(rows, path)
        folders = sorted(path.parent.glob("after-*"), key=tables.begins)
        for old, following in itertools.pairwise(folders):
            if tables.age_s(old) > self.feed.retention_s + GRACE_S and tables.begins(following) <= self.needed:
                shutil.rmtree(old, ignore_errors=True)


class Arrivals:
    """The publications of one feed."""

    def __init__(self, spark: SparkSession, server: Server, feed: Feed, app: str, folder: Path) -> None:
        self.feed = feed
        self.streams = feeds.streams_of(feed, app)
        self.upto: Positions = dict.fromkeys(self.streams, 0)  # position of the last message read
        self.stored: Positions = dict.fromkeys(self.streams, 0)  # position of the last message on disk
        self.rejected = 0  # messages written so far that do not fit the schema
        self._spark = spark
        self._server = server
        self._folder = folder / "feeds" / feed.name
        self._rejects = folder / "rejects" / feed.name
        self._segments: list[Segment] = []
        self.needed_by: list[Callable[[], int]] = []  # positions from which files must be kept, however old

    @property
    def is_new_here(self) -> bool:
        """Whether this machine holds no files of the feed, or only of other topics."""
        return not tables.is_about(self._folder, self.streams)

    def start(self, after: Positions, stored: Positions) -> None:
        """Begin after these positions."""
        self.upto = {stream: after.get(stream, 0) for stream in self.streams}
        self.stored = {stream: stored.get(stream, 0) for stream in self.streams}
        tables.make_about(self._folder, self.streams)

    def last(self, jetstream: JetStream) -> Positions:
        return {stream: jetstream.info(stream).last for stream in self.streams}

    def segment(self, after: Positions, upto: Positions, messages: pa.Table | None) -> Segment:
        """Parse the next messages, given or read by Spark, into a segment. May run in any thread; see ``add``."""
        if messages is None:
            raw = feeds.read(self._spark, self._server, after, upto)
        else:
            raw = self._spark.createDataFrame(messages)
            if messages.num_rows <= SMALL:
                raw = raw.coalesce(1)
        rows = tables.RowsInMemory(feeds.parsed(raw, self.feed.schema))
        rows.settle()
        return Segment(self.feed.name, after, upto, rows, sum(at - after[stream] for stream, at in upto.items()))

    def add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self.upto = segment.upto

    def between(self, after: Positions, upto: Positions) -> tuple[DataFrame, int]:
        """Publications after ``after`` and up to ``upto``, and their approximate number."""
        rows, count = self._parsed(after, upto)
        return (feeds.good(rows, self.feed.schema), count) if rows is not None else (self._nothing(), 0)

    def _parsed(self, after: Positions, upto: Positions) -> tuple[DataFrame | None, int]:
        """Parsed messages: in one Spark task if they are few, otherwise in as many as there are cores."""
        segments = [
            segment
            for segment in self._segments
            if any(segment.upto[s] > after.get(s, 0) and segment.after[s] < upto[s] for s in self.streams)
        ]
        if not segments:
            return None, 0
        count = sum(segment.count for segment in segments)
        rows = tables.stacked(self._spark, [segment.rows for segment in segments])
        rows = rows.coalesce(1 if count <= SMALL else self._spark.sparkContext.defaultParallelism)
        pairs = [(segment, stream) for segment in segments for stream in self.streams]
        if any(segment.after[s] < after.get(s, 0) or segment.upto[s] > upto[s] for segment, s in pairs):
            rows = rows.where(_within(after, upto))
        return rows, count

    @property
    def unstored(self) -> int:
        """Messages that are not on disk."""
        return sum(at - self.stored[stream] for stream, at in self.upto.items())

    @property
    def begins(self) -> Positions:
        """The position after which messages are in memory."""
        return next((segment.after for segment in self._segments), self.upto)

    def _nothing(self) -> DataFrame:
        return self._spark.createDataFrame(
            [], f"{schema_ddl(self.feed.schema)}, {STREAM} STRING, {SEQ} LONG, {TIME} TIMESTAMP"
        )

    def history(self, upto: Positions) -> DataFrame:
        """Everything up to these positions within the feed's retention, from disk and from memory."""
        return self._stored_and_new(upto, {}, self.feed.retention_s)

    def since(self, after: Positions, upto: Positions) -> DataFrame:
        """Everything after and up to these positions, however old."""
        return self._stored_and_new(upto, after, math.inf)

    def _stored_and_new(self, upto: Positions, after: Mapping[str, int], younger_s: float) -> DataFrame:
        rows, _ = self.between(self.stored, upto)
        stored = sum(self.stored.values())
        return tables.with_files(rows, self._folder, "after-*", younger_s, before=stored).where(_within(after, upto))

    def unwritten(self) -> Writing | None:
        """The messages that are not on disk yet; None if there are none."""
        # A driver that has just started may read messages again that are already on disk.
        upto = {stream: max(at, self.stored[stream]) for stream, at in self.upto.items()}
        if self.stored == upto:
            return None
        rows, _ = self._parsed(self.stored, upto)
        name = f"after-{'-'.join(str(at) for at in self.stored.values())}"
        return Writing(self.feed, upto, rows, self._folder / name, self._rejects / name, self._needed())

    def _needed(self) -> float:
        return min((position() for position in self.needed_by), default=math.inf)

    def written(self, part: Writing, bad: int) -> None:
        """Note that ``part`` is on disk now, with ``bad`` rejected messages."""
        self.stored = part.upto
        self.rejected += bad
        if bad:
            log.warning("feed %s: %d messages do not fit its schema; they are in 'rejects'", self.feed.name, bad)

    def forget(self, consumed: Sequence[Positions]) -> None:
        """Drop segments that every channel has consumed and that are on disk."""
        floors = [*consumed, self.stored]
        remaining = []
        for segment in self._segments:
            if all(segment.upto[s] <= floor.get(s, 0) for floor in floors for s in self.streams):
                segment.rows.drop()
            else:
                remaining.append(segment)
        self._segments = remaining


class Keyed:
    """The latest row per key of a feed. Snapshots on disk keep rows that are older than the feed's retention."""

    def __init__(
        self, dataset: Dataset, arrivals: Arrivals, folder: Path, when_free: Callable[[Callable[[], None]], None]
    ) -> None:
        self.dataset = dataset
        self._when_free = when_free  # delays a drop until no execution can still read the rows
        self._arrivals = arrivals
        self._folder = folder / "keyed" / dataset.name
        self._base: tables.CachedRows | None = None
        self._at: Positions = {}
        self._partial = False  # built without a snapshot although later ones exist, so older rows may be missing
        tables.make_about(self._folder, arrivals.streams)
        arrivals.needed_by.append(self._snapshot_at)

    def rows(self, upto: Positions) -> DataFrame:
        """The rows as of these positions."""
        begins = self._arrivals.begins
        outdated = self._partial and bool(self._older(upto))
        if self._base is None or outdated or any(self._at[s] > upto[s] or self._at[s] < begins[s] for s in upto):
            # A repeated execution may need positions from before those in memory, or even before the snapshots.
            base = tables.latest(self._from_disk(upto), self.dataset.key)
        elif self._at == upto:
            return self._base.rows
        else:
            fresh, _ = self._arrivals.between(self._at, upto)
            base = tables.latest(self._base.rows.unionAll(fresh), self.dataset.key)
        settled = tables.CachedRows(base)
        if self._base is not None:
            self._when_free(self._base.drop)
        self._base, self._at = settled, dict(upto)
        return settled.rows

    def _from_disk(self, upto: Positions) -> DataFrame:
        """The newest snapshot not after ``upto``, and all messages after that snapshot."""
        older = self._older(upto)
        self._partial = not older and bool(self._snapshots())
        if not older:
            return self._arrivals.since({}, upto)
        at = older[-1]
        return tables.with_files(self._arrivals.since(at, upto), self._folder, self._path(at).name)

    def _older(self, upto: Positions) -> list[Positions]:
        """Snapshots at or before these positions."""
        return [at for at in self._snapshots() if all(at[stream] <= upto[stream] for stream in upto)]

    def _snapshot_at(self) -> int:
        """The position of the newest snapshot: later rows exist only in the feed's files, which must be kept."""
        return sum(self._snapshots()[-1].values()) if self._snapshots() else 0

    def snapshot(self) -> Callable[[], None] | None:
        """A function that writes a snapshot; None if there is nothing new."""
        if self._base is None or self._path(self._at).exists():
            return None
        rows, path = self._base.rows, self._path(self._at)

        def write() -> None:
            tables.write(rows, path)
            for old in self._snapshots()[:-SNAPSHOTS]:
                shutil.rmtree(self._path(old), ignore_errors=True)

        return write

    def _snapshots(self) -> list[Positions]:
        """Positions of all snapshots, oldest first."""
        positions = []
        for path in self._folder.glob("at-*"):
            numbers = [int(number) for number in path.name.split("-")[1:]]
            if len(numbers) == len(self._arrivals.streams):
                positions.append(dict(zip(self._arrivals.streams, numbers, strict=True)))
        return sorted(positions, key=lambda at: sum(at.values()))

    def _path(self, at: Positions) -> Path:
        return self._folder / f"at-{'-'.join(str(at[stream]) for stream in self._arrivals.streams)}"


def _within(after: Mapping[str, int], upto: Mapping[str, int]) -> str:
    return " OR ".join(
        f"({STREAM} = '{stream}' AND {SEQ} > {after.get(stream, 0)} AND {SEQ} <= {high})"
        for stream, high in upto.items()
    )
