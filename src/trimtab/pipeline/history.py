"""Telemetry history as a workload folder, or as time windows for people; one pass over each table."""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from trimtab.errors import BadInput
from trimtab.pipeline import telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

PIECE_S: Final = 5.0  # gap in reports that counts as not measured; brokers report every second
KINDS: Final = {
    "a number": (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    "text": (pa.types.is_string, pa.types.is_large_string), "a map": (pa.types.is_map,),
}  # fmt: skip
WINDOWS: Final = ("topic", "broker", "client", "pair")


def write_workload(
    spark: SparkSession, history: Path, out: Path, since: float | None = None, until: float | None = None,
    step: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """Write mean rates and links between ``since`` and ``until`` as a workload folder; returns counts and times."""
    began = time.monotonic()
    with readable(history):
        rows, (first, last, events) = _within(spark, history, since, until, step)
        measured = _measured_s(rows["brokers"], first, last)
        rates = telemetry.rates(rows["topics"], first, last, measured)
        links = rows["links"].where("client IS NOT NULL").select("client", "topic", "role").distinct()
        counts = _write(telemetry.workload(rates, links, rows["brokers"]), out, step)
    return {
        "rows": counts, "events": events, "span_s": last - first, "measured_s": measured, "since": first,
        "until": last, "seconds": time.monotonic() - began,
    }  # fmt: skip


@contextmanager
def readable(history: Path) -> Iterator[None]:
    """Turn Spark's errors about the files into ``BadInput``."""
    try:
        yield
    except PySparkException as error:
        raise BadInput(f"{history} cannot be read: {str(error).strip().splitlines()[0]}") from None


def windows(
    spark: SparkSession, history: Path, by: str, every_s: float | None = None, since: float | None = None,
    until: float | None = None, step: Callable[[str], None] = lambda text: None,
) -> DataFrame:  # fmt: skip
    """Figures per window of ``every_s`` seconds, or of the whole time: by topic, by broker, by client, or by pair of
    clients (the number of common subscriptions)."""
    rows, (first, last, _) = _within(spark, history, since, until, step)
    if by == "pair":
        return telemetry.shared(rows["links"].select("client", "topic", "role").distinct())
    single = every_s is None  # one window that begins with the first report
    if every_s is None:
        every_s = _measured_s(rows["brokers"], first, last)
        rows = {name: frame.withColumn("at", F.lit(0.0)) for name, frame in rows.items()}
    if by == "topic":
        table = telemetry.topic_windows(rows["topics"], every_s)
    elif by == "broker":
        table = telemetry.broker_windows(rows["brokers"], rows["topics"], every_s)
    else:
        table = telemetry.client_windows(rows["links"], rows["topics"], every_s)
    return table.withColumn("begin", F.lit(first)) if single else table


def topic_rates(
    spark: SparkSession, history: Path, every_s: float, since: float, step: Callable[[str], None] = lambda text: None
) -> tuple[tuple[str, ...], Any]:  # fmt: skip
    """Topics, and (T, n) messages/s published in windows of ``every_s`` seconds, the newest last; NaN where the fleet
    was not measured. The first and the last window count only if they are complete."""
    rows, (first, last, _) = _within(spark, history, since, None, step)
    step("adding up")
    table = telemetry.topic_windows(rows["topics"], every_s).select("begin", "topic", "in_msgs_per_s").toArrow()
    seen = rows["brokers"].select((F.floor(F.col("at") / every_s) * every_s).alias("begin")).distinct().toArrow()
    low, high = math.ceil(first / every_s), math.floor(last / every_s)
    measured = {round(begin / every_s) - low for begin in seen["begin"].to_pylist()}
    names = tuple(sorted(set(table["topic"].to_pylist())))
    place = {name: row for row, name in enumerate(names)}
    rates = np.full((len(names), max(high - low, 0)), np.nan)
    rates[:, [window for window in measured if 0 <= window < rates.shape[1]]] = 0.0
    for begin, name, rate in zip(*(table[column].to_pylist() for column in table.column_names), strict=True):
        window = round(begin / every_s) - low
        if 0 <= window < rates.shape[1]:
            rates[place[name], window] = rate
    return names, rates


def _within(
    spark: SparkSession, history: Path, since: float | None, until: float | None, step: Callable[[str], None]
) -> tuple[dict[str, DataFrame], tuple[float, float, int]]:
    """All tables restricted to a time span; the ends of that span, and the number of rows of topics in it."""
    step("reading the schema")
    rows = {name: read(spark, history, name) for name in telemetry.TABLES}
    step("finding the time span")
    first, last, events = _span(rows["topics"], since, until)
    in_span = (F.col("at") > first) & (F.col("at") <= last)
    return {name: frame.where(in_span) for name, frame in rows.items()}, (first, last, events)


def _measured_s(brokers: DataFrame, first: float, last: float) -> float:
    """Seconds covered by reports, without times in which the pipeline or the whole fleet was down."""
    pieces = brokers.select(F.floor(F.col("at") / PIECE_S)).distinct().count()
    return max(min(last - first, PIECE_S * pieces), 1e-9)


def check_folders(history: Path) -> None:
    """Check before a long start that every file has the required columns and types; an error names the first fault."""
    for name, ddl in telemetry.TABLES.items():
        files = sorted((history / name).glob("**/*.parquet"))
        if not files:
            raise BadInput(
                f"{history} has no Parquet files in '{name}'; history has the folders {', '.join(telemetry.TABLES)}, "
                "as in pipeline/history of the fleet's folder"
            )
        for file in files:
            _check(file, ddl)


def _check(file: Path, ddl: str) -> None:
    try:
        schema = pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{file} is no Parquet file: {str(error).splitlines()[0]}") from None
    for column, kind in (column_ddl.split(" ", 1) for column_ddl in ddl.replace("MAP<INT, LONG>", "MAP").split(", ")):
        expected = {"STRING": "text", "MAP": "a map"}.get(kind, "a number")
        if column not in schema.names and column in telemetry.ADDED:
            continue
        if column not in schema.names:
            columns = ", ".join(sorted(schema.names))
            raise BadInput(
                f"{file} has no column '{column}' ({expected}); it has {columns}: is it history of telemetry?"
            )
        actual = schema.field(column).type
        if not any(fits(actual) for fits in KINDS[expected]):
            raise BadInput(f"{file}: column '{column}' is {actual}, but must be {expected}")


def read(spark: SparkSession, history: Path, name: str) -> DataFrame:
    """A table of history."""
    options: dict[str, bool | str] = {"recursiveFileLookup": True, "pathGlobFilter": "*.parquet", "mergeSchema": True}
    frame = spark.read.options(**options).parquet(str(history / name))
    expected = dict(spark.createDataFrame([], telemetry.TABLES[name]).dtypes)
    for column in set(telemetry.ADDED) & set(expected) - set(frame.columns):  # older history lacks these columns
        frame = frame.withColumn(column, F.lit(0))
    rows = frame.fillna(0, [column for column in telemetry.ADDED if column in expected])
    return rows.select(*(F.col(column).cast(kind).alias(column) for column, kind in expected.items()))


def _span(rows: DataFrame, since: float | None, until: float | None) -> tuple[float, float, int]:
    """The first and last time, and the number of rows in between."""
    within = rows
    if since is not None:
        within = within.where(F.col("at") > since)
    if until is not None:
        within = within.where(F.col("at") <= until)
    row = within.agg(F.min(F.col("at") - F.col("period_s")), F.max("at"), F.count("*")).first()
    assert row is not None
    if not row[2]:
        raise BadInput("there is no history between these times; leave --since and --until out to see all of it")
    return float(row[0] if since is None else since), float(row[1] if until is None else until), int(row[2])


def write_table(frame: DataFrame, out: Path) -> int:
    """Write one Parquet file; returns the number of rows."""
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=".history-") as folder:
        frame.coalesce(1).write.mode("overwrite").parquet(folder)
        (file,) = Path(folder).glob("part-*.parquet")
        shutil.move(file, out)
    return int(pq.read_metadata(out).num_rows)


def _write(frames: Mapping[str, DataFrame], out: Path, step: Callable[[str], None]) -> dict[str, int]:
    """Write all four tables or none."""
    out.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory(dir=out, prefix=".workload-") as folder:
        for name, frame in frames.items():
            step(f"writing {name}")
            counts[name] = write_table(frame, Path(folder) / f"{name}.parquet")
            if not counts[name]:
                raise BadInput(f"history has no {name} in that time, so there is no workload to plan on")
        for name in frames:
            shutil.move(Path(folder) / f"{name}.parquet", out / f"{name}.parquet")
            (out / f"{name}.csv").unlink(missing_ok=True)
    return counts
