"""Datasets as Spark sees them: files, everything that has come by a feed, and the latest row per key."""

from __future__ import annotations

import math
import shutil
import time
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as SparkFrame

from trimtab.errors import BadManifest
from trimtab.fleet.protocol.types import schema_ddl
from trimtab.pipeline.feeds import SEQ, STREAM, TIME
from trimtab.pipeline.manifest import file_format

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from trimtab.pipeline.manifest import Dataset


ABOUT: Final = "streams"  # file that says what others in its folder are about


def static(spark: SparkSession, dataset: Dataset) -> DataFrame:
    """The rows of a file, all of them read once, so that a file that does not match its schema is found out now."""
    from pyspark.errors import PySparkException

    assert dataset.file is not None
    kind = file_format(dataset.file)
    reader = spark.read.schema(schema_ddl(dataset.schema)).option("mode", "FAILFAST")
    if kind == "csv":
        reader = reader.option("header", True).option("enforceSchema", False)
    try:
        rows = reader.format(kind).load(str(dataset.file))
        if kind == "parquet":
            rows = spark.read.parquet(str(dataset.file)).select(*(f"`{name}`" for name in dataset.schema))
            rows = rows.to(rows.sparkSession.createDataFrame([], schema_ddl(dataset.schema)).schema)
        rows = rows.cache()
        rows.count()
    except PySparkException as error:
        raise BadManifest(
            dataset.place, f"dataset '{dataset.name}': {dataset.file} does not match its schema: {_reason(error)}"
        ) from None
    return rows


def latest(rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Of all rows with one key, the one that came last; rows without a key are left out."""
    newest = F.max_by(F.struct("*"), F.struct(TIME, STREAM, SEQ)).alias("_newest")
    known = [F.col(f"`{name}`").isNotNull() for name in key]
    kept = rows
    for condition in known:
        kept = kept.where(condition)
    return kept.groupBy(*(F.col(f"`{name}`") for name in key)).agg(newest).select("_newest.*")


def with_files(
    rows: DataFrame, folder: Path, pattern: str, younger_s: float = math.inf, before: int | None = None
) -> DataFrame:
    """These rows and those in Parquet files of a folder.

    Folders are named by positions, as in ``after-17-4``; with ``before``, those that add up to less. What begins later
    is being written just now, or was when a run was cut off: nobody has taken note of it, and its rows are elsewhere.
    """
    found = [
        str(path)
        for path in sorted(folder.glob(pattern))
        if age_s(path) <= younger_s and (before is None or begins(path) < before)
    ]
    return rows.sparkSession.read.schema(rows.schema).parquet(*found).unionAll(rows) if found else rows


def is_about(folder: Path, streams: Iterable[str]) -> bool:
    """Whether the files of a folder, whose names are positions, are about just these streams, in this order."""
    note = folder / ABOUT
    return note.exists() and note.read_text().split("\n") == list(streams)


def make_about(folder: Path, streams: Iterable[str]) -> None:
    """An empty folder for files about these, unless it is one already."""
    if not is_about(folder, streams):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / ABOUT).write_text("\n".join(streams))


def begins(path: Path) -> int:
    """The positions in its name added up; they grow from one to the next."""
    return sum(map(int, path.name.split("-")[1:]))


def write(rows: DataFrame, path: Path) -> None:
    """As a folder of Parquet files, all or nothing."""
    part = path.with_name(f".{path.name}")
    # No dictionaries: most columns of a stream have a value of their own in every row, and to find that out costs as
    # much as to write them; what repeats, zstd finds.
    options = {"parquet.enable.dictionary": "false", "compression": "zstd"}
    rows.write.mode("overwrite").options(**options).parquet(str(part))
    shutil.rmtree(path, ignore_errors=True)
    part.rename(path)


def age_s(path: Path) -> float:
    """Endless if it is gone, which a process that keeps no more than it must may have seen to just now."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


class Kept:
    """Rows that stay in memory once somebody has needed them, until they are dropped.

    Cut from what they were made of: where that came from this process, every task of every execution would carry it,
    and the plan of a table that is updated again and again would grow with it.
    """

    def __init__(self, rows: DataFrame) -> None:
        self.frame = rows.localCheckpoint(eager=False)
        self.rows = self.frame._jdf.queryExecution().analyzed().rdd()
        self.schema = self.frame._jdf.schema()

    def settle(self) -> None:
        """Compute them now."""
        self.rows.count()

    def drop(self) -> None:
        self.rows.unpersist(False)


def stacked(spark: SparkSession, parts: Sequence[Kept]) -> DataFrame:
    """All rows of some parts of the same schema.

    A union that Spark does not look into. It would plan every part of it anew, at every execution: with twenty parts,
    that takes longer than to execute it (docs/decisions/0010).
    """
    context, jvm = spark.sparkContext._jsc.sc(), spark.sparkContext._jvm
    assert jvm is not None
    rows = context.union(jvm.PythonUtils.toSeq([part.rows for part in parts]), parts[0].rows.elementClassTag())
    return SparkFrame(spark._jsparkSession.internalCreateDataFrame(rows, parts[0].schema, False), spark)


class Settled:
    """Rows that are computed and in memory; cached besides, so that Spark knows how large they are when it joins."""

    def __init__(self, rows: DataFrame) -> None:
        self._kept = Kept(rows)
        self.rows = self._kept.frame.cache()
        self.count = self.rows.count()

    def drop(self) -> None:
        self.rows.unpersist()
        self._kept.drop()


def _reason(error: Exception) -> str:
    """What Spark says at the bottom of all it says."""
    said = str(error)
    for line in reversed(said.split("Caused by: ")):
        text = line.split("\n")[0].strip()
        if text:
            return text.removeprefix("java.lang.").split(": ", 1)[-1].rstrip(". ")
    return said.split("\n")[0]
