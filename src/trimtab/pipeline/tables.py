"""Datasets as Spark tables: files, all messages of a feed, and the latest row per key."""

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


ABOUT: Final = "streams"  # name of the file that lists the streams stored in its folder


def static(spark: SparkSession, dataset: Dataset) -> DataFrame:
    """The rows of a file. All rows are read once, so that a file that does not match its schema is refused now."""
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
    """The latest row of every key; rows without a key are left out."""
    newest = F.max_by(F.struct("*"), F.struct(TIME, STREAM, SEQ)).alias("_newest")
    with_key = [F.col(f"`{name}`").isNotNull() for name in key]
    keyed = rows
    for condition in with_key:
        keyed = keyed.where(condition)
    return keyed.groupBy(*(F.col(f"`{name}`") for name in key)).agg(newest).select("_newest.*")


def with_files(
    rows: DataFrame, folder: Path, pattern: str, younger_s: float = math.inf, before: int | None = None
) -> DataFrame:
    """These rows and the rows in Parquet files of a folder.

    Folders are named by positions, as in ``after-17-4``. With ``before``, only folders whose positions add up to less
    are read: a later folder is being written now, or is left from an interrupted run. The ledger does not list it, and
    its rows are still in memory or at the hub.
    """
    paths = [
        str(path)
        for path in sorted(folder.glob(pattern))
        if age_s(path) <= younger_s and (before is None or begins(path) < before)
    ]
    return rows.sparkSession.read.schema(rows.schema).parquet(*paths).unionAll(rows) if paths else rows


def is_about(folder: Path, streams: Iterable[str]) -> bool:
    """Whether the folder stores exactly these streams in this order, so that positions in its file names apply."""
    note = folder / ABOUT
    return note.exists() and note.read_text().split("\n") == list(streams)


def make_about(folder: Path, streams: Iterable[str]) -> None:
    """Create an empty folder for files of these streams, unless the folder already stores them."""
    if not is_about(folder, streams):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / ABOUT).write_text("\n".join(streams))


def begins(path: Path) -> int:
    """The sum of the positions in a folder's name, which grows from one folder to the next."""
    return sum(map(int, path.name.split("-")[1:]))


def write(rows: DataFrame, path: Path) -> None:
    """Write a folder of Parquet files, all or nothing."""
    part = path.with_name(f".{path.name}")
    # No dictionaries: most columns of a stream have a different value in every row, and the attempt to build one costs
    # as much as writing the column. zstd compresses repeated values anyway.
    options = {"parquet.enable.dictionary": "false", "compression": "zstd"}
    rows.write.mode("overwrite").options(**options).parquet(str(part))
    shutil.rmtree(path, ignore_errors=True)
    part.rename(path)


def age_s(path: Path) -> float:
    """The age of a file; infinite if it is gone, since another process may just have deleted it."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


class RowsInMemory:
    """Rows that stay in memory from their first use until they are dropped.

    They are detached from their lineage. Otherwise data from this process would be sent with every task of every
    execution, and the plan of a table would grow with each update.
    """

    def __init__(self, rows: DataFrame) -> None:
        self.frame = rows.localCheckpoint(eager=False)
        self.rows = self.frame._jdf.queryExecution().analyzed().rdd()
        self.schema = self.frame._jdf.schema()

    def settle(self) -> None:
        """Compute the rows now."""
        self.rows.count()

    def drop(self) -> None:
        self.rows.unpersist(False)


def stacked(spark: SparkSession, parts: Sequence[RowsInMemory]) -> DataFrame:
    """The union of parts with the same schema, as one RDD that Spark's planner does not look into.

    Spark would plan every part again at every execution: with twenty parts, that takes longer than the execution
    itself (docs/decisions/0010).
    """
    context, jvm = spark.sparkContext._jsc.sc(), spark.sparkContext._jvm
    assert jvm is not None
    rows = context.union(jvm.PythonUtils.toSeq([part.rows for part in parts]), parts[0].rows.elementClassTag())
    return SparkFrame(spark._jsparkSession.internalCreateDataFrame(rows, parts[0].schema, False), spark)


class CachedRows:
    """Rows computed and held in memory. They are also cached, so that Spark knows their size when it plans joins."""

    def __init__(self, rows: DataFrame) -> None:
        self._memory = RowsInMemory(rows)
        self.rows = self._memory.frame.cache()
        self.count = self.rows.count()

    def drop(self) -> None:
        self.rows.unpersist()
        self._memory.drop()


def _reason(error: Exception) -> str:
    """The root cause in a Spark error."""
    message = str(error)
    for cause in reversed(message.split("Caused by: ")):
        text = cause.split("\n")[0].strip()
        if text:
            return text.removeprefix("java.lang.").split(": ", 1)[-1].rstrip(". ")
    return message.split("\n")[0]
