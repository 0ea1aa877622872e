"""History of telemetry into a workload folder: one pass over each table, whatever its size."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from trimtab.errors import BadInput
from trimtab.pipeline import telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

NUMBERS: Final = ("tinyint", "smallint", "int", "bigint", "float", "double")


def write_workload(
    spark: SparkSession, history: Path, out: Path, since: float | None = None, until: float | None = None,
    step: Callable[[str], None] = lambda what: None,
) -> dict[str, Any]:  # fmt: skip
    """Mean rates between ``since`` and ``until``, and who had to do with what; how many rows that are."""
    began = time.monotonic()
    step("reading the schema")
    rows = {name: read(spark, history, name) for name in telemetry.TABLES}
    step("looking for the time")
    first, last, events = _span(rows["topics"], since, until)
    within = {name: frame.where(F.col("at").between(first, last)) for name, frame in rows.items()}
    known = telemetry.rates(rows["topics"], first, last)
    linked = within["links"].where("client IS NOT NULL").select("client", "topic", "role").distinct()
    return {
        "rows": _write(telemetry.workload(known, linked, within["brokers"]), out, step), "events": events,
        "span_s": last - first, "since": first, "until": last, "seconds": time.monotonic() - began,
    }  # fmt: skip


def check_folders(history: Path) -> None:
    """Before a long start."""
    for name in telemetry.TABLES:
        if next((history / name).glob("**/*.parquet"), None) is None:
            raise BadInput(
                f"{history} has no Parquet files in '{name}'; history has the folders {', '.join(telemetry.TABLES)}, "
                "as the pipeline keeps it in pipeline/history of the fleet's folder"
            )


def read(spark: SparkSession, history: Path, name: str) -> DataFrame:
    """A table of history, with the columns that it should have, or an error that says which it has not."""
    found = spark.read.option("recursiveFileLookup", True).option("pathGlobFilter", "*.parquet").parquet(
        str(history / name)
    )  # fmt: skip
    has = dict(found.dtypes)
    wanted = dict(spark.createDataFrame([], telemetry.TABLES[name]).dtypes)
    for column, kind in wanted.items():
        if column not in has:
            raise BadInput(
                f"{history / name} has no column '{column}' ({kind}); it has {', '.join(sorted(has))}: is it history "
                "of telemetry?"
            )
        if has[column] != kind and not (has[column] in NUMBERS and kind in NUMBERS):
            raise BadInput(f"{history / name}: column '{column}' is {has[column]}, but must be {kind}")
    return found.select(*(F.col(column).cast(kind).alias(column) for column, kind in wanted.items()))


def _span(rows: DataFrame, since: float | None, until: float | None) -> tuple[float, float, int]:
    """From when to when, and how many rows there are in between."""
    within = rows
    if since is not None:
        within = within.where(F.col("at") > since)
    if until is not None:
        within = within.where(F.col("at") <= until)
    found = within.agg(F.min(F.col("at") - F.col("period_s")), F.max("at"), F.count("*")).first()
    assert found is not None
    if not found[2]:
        raise BadInput("there is no history between these times; leave --since and --until out to see all of it")
    return float(found[0] if since is None else since), float(found[1] if until is None else until), int(found[2])


def _write(frames: Mapping[str, DataFrame], out: Path, step: Callable[[str], None]) -> dict[str, int]:
    """All four tables or none."""
    out.mkdir(parents=True, exist_ok=True)
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory(dir=out, prefix=".workload-") as folder:
        for name, frame in frames.items():
            step(f"writing {name}")
            part = Path(folder) / name
            frame.coalesce(1).write.parquet(str(part))
            counts[name] = frame.sparkSession.read.parquet(str(part)).count()
            if not counts[name]:
                raise BadInput(f"history has no {name} in that time, so there is no workload to plan on")
        for name in frames:
            (found,) = (Path(folder) / name).glob("part-*.parquet")
            shutil.move(found, out / f"{name}.parquet")
            (out / f"{name}.csv").unlink(missing_ok=True)
    return counts
