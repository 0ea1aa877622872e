"""What has come by a feed: in memory while channels need it, on disk for good, and the latest row per key of it."""

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
SMALL: Final = 20_000  # publications that one task deals with sooner than two would
LAST_LOOK_S: Final = 120.0  # that a file stays for a query that found it before it was too old
SNAPSHOTS: Final = 3  # an execution that is repeated may need an earlier one
HIDDEN: Final = (STREAM, SEQ, TIME)


@dataclass(frozen=True, slots=True)
class Segment:
    """Messages of a feed between two positions, parsed and in memory."""

    feed: str
    after: Positions
    upto: Positions
    rows: tables.Kept
    count: int


@dataclass(frozen=True, slots=True)
class Writing:
    """Messages of a feed on their way to disk."""

    feed: Feed
    upto: Positions
    rows: DataFrame | None
    good: Path
    bad: Path
    needed: float  # what is on disk from there on is not forgotten

    def write(self) -> int:
        """How many do not fit the feed's schema; they are written too, elsewhere."""
        if self.rows is None:
            return 0
        seen = Observation()
        watched = self.rows.observe(seen, F.expr(f"count({feeds.BAD}) AS bad"))
        self._write(feeds.good(watched, self.feed.schema), self.good)
        bad: int = seen.get["bad"]
        if bad:
            self._write(feeds.rejects(self.rows, self.feed.schema), self.bad)
        return bad

    def _write(self, rows: DataFrame, path: Path) -> None:
        """All or nothing, in place of what a run may have written that was cut off right after; and forget the old."""
        tables.write(rows, path)
        known = sorted(path.parent.glob("after-*"), key=tables.begins)
        for old, following in itertools.pairwise(known):
            if tables.age_s(old) > self.feed.retention_s + LAST_LOOK_S and tables.begins(following) <= self.needed:
                shutil.rmtree(old, ignore_errors=True)


class Arrivals:
    """The publications of one feed."""

    def __init__(self, spark: SparkSession, server: Server, feed: Feed, app: str, folder: Path) -> None:
        self.feed = feed
        self.streams = feeds.streams_of(feed, app)
        self.upto: Positions = dict.fromkeys(self.streams, 0)  # what has been read
        self.stored: Positions = dict.fromkeys(self.streams, 0)  # what is on disk
        self.rejected = 0  # messages, of those that are on disk
        self._spark = spark
        self._server = server
        self._folder = folder / "feeds" / feed.name
        self._rejects = folder / "rejects" / feed.name
        self._segments: list[Segment] = []
        self.needed_by: list[Callable[[], int]] = []  # who needs all files from some position on, however old

    @property
    def is_new_here(self) -> bool:
        """Whether nothing of it was ever on this machine, or only of other topics."""
        return not tables.is_about(self._folder, self.streams)

    def start(self, after: Positions, stored: Positions) -> None:
        """Begin after these positions."""
        self.upto = {stream: after.get(stream, 0) for stream in self.streams}
        self.stored = {stream: stored.get(stream, 0) for stream in self.streams}
        tables.make_about(self._folder, self.streams)

    def last(self, jetstream: JetStream) -> Positions:
        return {stream: jetstream.info(stream).last for stream in self.streams}

    def segment(self, after: Positions, upto: Positions, messages: pa.Table | None) -> Segment:
        """What comes next: these messages, or what Spark reads. In any thread; ``add`` makes it part of the rest."""
        if messages is None:
            raw = feeds.read(self._spark, self._server, after, upto)
        else:
            raw = self._spark.createDataFrame(messages)
            if messages.num_rows <= SMALL:
                raw = raw.coalesce(1)
        rows = tables.Kept(feeds.parsed(raw, self.feed.schema))
        rows.settle()
        return Segment(self.feed.name, after, upto, rows, sum(at - after[stream] for stream, at in upto.items()))

    def add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self.upto = segment.upto

    def between(self, after: Positions, upto: Positions) -> tuple[DataFrame, int]:
        """Publications after and up to these positions, and about how many."""
        rows, count = self._parsed(after, upto)
        return (feeds.good(rows, self.feed.schema), count) if rows is not None else (self._nothing(), 0)

    def _parsed(self, after: Positions, upto: Positions) -> tuple[DataFrame | None, int]:
        """In one task if they are few, or else in as many as there are cores."""
        found = [
            each
            for each in self._segments
            if any(each.upto[s] > after.get(s, 0) and each.after[s] < upto[s] for s in self.streams)
        ]
        if not found:
            return None, 0
        count = sum(segment.count for segment in found)
        rows = tables.stacked(self._spark, [segment.rows for segment in found])
        rows = rows.coalesce(1 if count <= SMALL else self._spark.sparkContext.defaultParallelism)
        if any(each.after[s] < after.get(s, 0) or each.upto[s] > upto[s] for each in found for s in self.streams):
            rows = rows.where(_within(after, upto))
        return rows, count

    @property
    def unstored(self) -> int:
        """Messages that are not on disk."""
        return sum(at - self.stored[stream] for stream, at in self.upto.items())

    @property
    def begins(self) -> Positions:
        """What is in memory comes after this."""
        return next((segment.after for segment in self._segments), self.upto)

    def _nothing(self) -> DataFrame:
        return self._spark.createDataFrame(
            [], f"{schema_ddl(self.feed.schema)}, {STREAM} STRING, {SEQ} LONG, {TIME} TIMESTAMP"
        )

    def history(self, upto: Positions) -> DataFrame:
        """Everything up to these positions: from disk, as far as that is kept, and what is not there yet."""
        return self._whole(upto, {}, self.feed.retention_s)

    def since(self, after: Positions, upto: Positions) -> DataFrame:
        """Everything after and up to these positions, however old."""
        return self._whole(upto, after, math.inf)

    def _whole(self, upto: Positions, after: Mapping[str, int], younger_s: float) -> DataFrame:
        rows, _ = self.between(self.stored, upto)
        stored = sum(self.stored.values())
        return tables.with_files(rows, self._folder, "after-*", younger_s, before=stored).where(_within(after, upto))

    def unwritten(self) -> Writing | None:
        """What is not on disk yet, if anything."""
        # A driver that has just begun may read again what is on disk already.
        upto = {stream: max(at, self.stored[stream]) for stream, at in self.upto.items()}
        if self.stored == upto:
            return None
        rows, _ = self._parsed(self.stored, upto)
        name = f"after-{'-'.join(str(at) for at in self.stored.values())}"
        return Writing(self.feed, upto, rows, self._folder / name, self._rejects / name, self._needed())

    def _needed(self) -> float:
        return min((each() for each in self.needed_by), default=math.inf)

    def written(self, part: Writing, bad: int) -> None:
        """That is on disk now."""
        self.stored = part.upto
        self.rejected += bad
        if bad:
            log.warning("feed %s: %d messages do not fit its schema; they are in 'rejects'", self.feed.name, bad)

    def forget(self, consumed: Sequence[Positions]) -> None:
        """Drop what every channel has had and what is on disk."""
        floors = [*consumed, self.stored]
        kept = []
        for segment in self._segments:
            if all(segment.upto[s] <= floor.get(s, 0) for floor in floors for s in self.streams):
                segment.rows.drop()
            else:
                kept.append(segment)
        self._segments = kept


class Keyed:
    """The latest row per key of a feed. A snapshot is kept on disk, for a row may stay longer than its feed does."""

    def __init__(
        self, dataset: Dataset, arrivals: Arrivals, folder: Path, when_free: Callable[[Callable[[], None]], None]
    ) -> None:
        self.dataset = dataset
        self._when_free = when_free  # of executions that may still read what is to be dropped
        self._arrivals = arrivals
        self._folder = folder / "keyed" / dataset.name
        self._base: tables.Settled | None = None
        self._at: Positions = {}
        self._partial = False  # made of less than there once was
        tables.make_about(self._folder, arrivals.streams)
        arrivals.needed_by.append(self._snapshot_at)

    def rows(self, upto: Positions) -> DataFrame:
        """As of these positions."""
        begins = self._arrivals.begins
        whole = self._partial and bool(self._older(upto))
        if self._base is None or whole or any(self._at[s] > upto[s] or self._at[s] < begins[s] for s in upto):
            # An execution that is repeated may have gone back, further than the memory does, or than snapshots do.
            base = tables.latest(self._from_disk(upto), self.dataset.key)
        elif self._at == upto:
            return self._base.rows
        else:
            fresh, _ = self._arrivals.between(self._at, upto)
            base = tables.latest(self._base.rows.unionAll(fresh), self.dataset.key)
        made = tables.Settled(base)
        if self._base is not None:
            self._when_free(self._base.drop)
        self._base, self._at = made, dict(upto)
        return made.rows

    def _from_disk(self, upto: Positions) -> DataFrame:
        """The newest snapshot that is not too new, and all that came after it."""
        older = self._older(upto)
        self._partial = not older and bool(self._snapshots())
        if not older:
            return self._arrivals.since({}, upto)
        at = older[-1]
        return tables.with_files(self._arrivals.since(at, upto), self._folder, self._path(at).name)

    def _older(self, upto: Positions) -> list[Positions]:
        """Snapshots of that or an earlier time."""
        return [at for at in self._snapshots() if all(at[stream] <= upto[stream] for stream in upto)]

    def _snapshot_at(self) -> int:
        """What came after the newest snapshot is nowhere but in the feed's files."""
        return sum(self._snapshots()[-1].values()) if self._snapshots() else 0

    def snapshot(self) -> Callable[[], None] | None:
        """What writes one, if there is anything new."""
        if self._base is None or self._path(self._at).exists():
            return None
        rows, path = self._base.rows, self._path(self._at)

        def write() -> None:
            tables.write(rows, path)
            for old in self._snapshots()[:-SNAPSHOTS]:
                shutil.rmtree(self._path(old), ignore_errors=True)

        return write

    def _snapshots(self) -> list[Positions]:
        """The oldest first."""
        found = []
        for path in self._folder.glob("at-*"):
            places = [int(each) for each in path.name.split("-")[1:]]
            if len(places) == len(self._arrivals.streams):
                found.append(dict(zip(self._arrivals.streams, places, strict=True)))
        return sorted(found, key=lambda at: sum(at.values()))

    def _path(self, at: Positions) -> Path:
        return self._folder / f"at-{'-'.join(str(at[stream]) for stream in self._arrivals.streams)}"


def _within(after: Mapping[str, int], upto: Mapping[str, int]) -> str:
    return " OR ".join(
        f"({STREAM} = '{stream}' AND {SEQ} > {after.get(stream, 0)} AND {SEQ} <= {high})"
        for stream, high in upto.items()
    )
