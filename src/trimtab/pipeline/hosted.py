"""Samples for latency models, from the history of telemetry: which topics a broker processed together, and their p90.

Every window of every broker is one co-location. It is used if the p90 of each of its topics is known: enough messages
were delivered, and no other broker processed the topic in that window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyspark.sql import functions as F

from trimtab.errors import BadInput
from trimtab.pipeline import history, telemetry
from trimtab.predict.samples import Samples
from trimtab.predict.sets import Sets

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from trimtab.model.hardware import Hardware

WINDOW_S: Final = 60.0
LEAST_MESSAGES: Final = 20  # behind a percentile
MOST: Final = 1000  # windows that are used, the newest
HOSTED: Final = "begin double, broker string, topic string, rate double, processing_ms double, p90_ms double"


def hosted_windows(rows: DataFrame, every_s: float = WINDOW_S) -> DataFrame:
    """From ``TOPICS``, a ``HOSTED`` row for each topic of each usable co-location.

    The first and the last window are left out, since the history may begin and end in the middle of them. Deliveries
    are reported by the brokers of subscribers, so they are added up over all brokers.
    """
    timed = rows.withColumn("begin", (F.floor(F.col("at") / every_s) * every_s).cast("double"))
    ends = timed.agg(F.min("begin").alias("earliest"), F.max("begin").alias("latest"))
    inner = timed.crossJoin(F.broadcast(ends)).where("begin > earliest AND begin < latest").drop("earliest", "latest")
    latency = telemetry.percentiles(inner, ["begin", "topic"], [0.9])
    processed = inner.groupBy("begin", "broker", "topic").agg(
        (F.sum("processed") / every_s).alias("rate"),
        F.expr("try_divide(1000 * sum(busy_s), sum(processed))").alias("processing_ms"),
    )
    hosts = processed.where("rate > 0").groupBy("begin", "topic").agg(F.count("*").alias("hosts"))
    known = (
        processed.where("rate > 0 AND processing_ms > 0").join(hosts, ["begin", "topic"])
        .join(latency, ["begin", "topic"], "left")
        .withColumn("known", F.expr(f"hosts = 1 AND deliveries >= {LEAST_MESSAGES} AND p90_ms > 0"))
    )  # fmt: skip
    usable = known.groupBy("begin", "broker").agg(F.bool_and(F.coalesce("known", F.lit(False))).alias("usable"))
    return known.join(usable.where("usable"), ["begin", "broker"]).select(
        "begin", "broker", "topic", "rate", "processing_ms", "p90_ms"
    )


def read_samples(
    spark: SparkSession, folder: Path, hardware: Hardware, every_s: float = WINDOW_S, **provenance: Any
) -> Samples:
    """The samples of a history. ``hardware``: what is assumed of the brokers' machines before anything is fitted."""
    history.check_folders(folder)
    with history.readable(folder):
        rows = hosted_windows(history.read(spark, folder, "topics"), every_s).toArrow()
    return samples_of(rows, hardware, every_s, source="telemetry", **provenance)


def samples_of(rows: pa.Table, hardware: Hardware, every_s: float, **provenance: Any) -> Samples:
    if not rows.num_rows:
        raise BadInput(
            f"the history has no window of {every_s:g} s in which a broker processed topics with {LEAST_MESSAGES} "
            "deliveries each: wait for more traffic, or run trimtab profile without --history"
        )
    rows = rows.sort_by([("begin", "ascending"), ("broker", "ascending"), ("topic", "ascending")])
    begin = rows["begin"].to_numpy()
    _, broker = np.unique(rows["broker"].to_numpy(zero_copy_only=False).astype(str), return_inverse=True)
    change = np.flatnonzero((np.diff(begin) != 0.0) | (np.diff(broker) != 0)) + 1
    edges = np.concatenate([[0], change, [len(begin)]])[-(MOST + 1) :]
    part = slice(int(edges[0]), int(edges[-1]))
    rate, processing, p90 = (rows[name].to_numpy()[part] for name in ("rate", "processing_ms", "p90_ms"))
    sets = Sets(edges - edges[0], rate, processing)
    return Samples(hardware, sets, p90, np.full(len(sets), np.nan), every_s, provenance)
