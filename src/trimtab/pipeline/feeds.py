"""Reads publications of a feed from their streams and parses them; messages that do not fit the schema are rejects."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from trimtab.fleet.protocol import names, subjects
from trimtab.fleet.protocol.types import ddl_name, schema_ddl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, SparkSession

    from trimtab.pipeline.manifest import Feed
    from trimtab.pipeline.nats.wire import Server

    Positions = Mapping[str, int]  # stream -> sequence of the last message included

MESSAGES: Final = "stream string, seq long, time timestamp, subject string, data binary"
REJECTS: Final = "stream string, seq long, time timestamp, subject string, data string, reason string"
# Origin columns of a row, hidden from channels: stream, sequence, and time of storage.
STREAM: Final = "_stream"
SEQ: Final = "_seq"
TIME: Final = "_time"
BAD: Final = "_bad"  # column with the text of a message that does not fit the schema


def streams_of(feed: Feed, app: str) -> dict[str, str]:
    """Streams at the hub that hold a feed's publications -> subject that each stores."""
    if feed.topics:  # a stream per topic, shared by its feeds: NATS allows a subject in one stream only
        return {f"feed={names.stream(topic)}": subjects.deliver(topic) for topic in feed.topics}
    return {f"feed@{app}@{feed.name}": subjects.feed(app, feed.name)}


def read(spark: SparkSession, server: Server, after: Positions, upto: Positions) -> DataFrame:
    """``MESSAGES`` with after < seq <= upto of every stream."""
    parts = []
    for stream, high in upto.items():
        low = after.get(stream, 0) + 1
        if low <= high:
            options = {"stream": stream, "low": str(low), "high": str(high), **connection(server)}
            rows = spark.read.format("nats").options(**options).load()
            parts.append(rows.select(F.lit(stream).alias("stream"), "seq", "time", "subject", "data"))
    return reduce(lambda left, right: left.unionAll(right), parts) if parts else spark.createDataFrame([], MESSAGES)


def connection(server: Server) -> dict[str, str]:
    """Options of the source that connect it to a server."""
    options = {
        "url": server.url,
        "user": server.user,
        "password": server.password,
        "ca": server.ca,
        "domain": server.domain,
    }
    return {name: value for name, value in options.items() if value}


def parsed(messages: DataFrame, schema: Mapping[str, str]) -> DataFrame:
    """Messages parsed by the schema; ``_bad`` holds the text of messages that do not fit it."""
    # A SQL text is one call to Spark; column objects would be about sixty calls at every read.
    text = "CAST(data AS STRING)"
    readable = messages.selectExpr(
        f"stream AS {STREAM}", f"seq AS {SEQ}", f"time AS {TIME}", "subject", f"make_valid_utf8({text}) AS _text",
        f"{text} AS _as_it_came",
    )  # fmt: skip
    fields = f"{schema_ddl(schema)}, {BAD} STRING"
    options = f"map('mode', 'PERMISSIVE', 'columnNameOfCorruptRecord', '{BAD}')"
    row = readable.selectExpr("*", f"from_json(_text, '{fields}', {options}) AS _row")
    # from_json returns null for a text that is no object, and reports no error for an empty text.
    bad = f"IF(_row IS NULL OR _text != _as_it_came OR trim(_text) = '', _text, _row.{BAD}) AS {BAD}"
    return row.selectExpr(*(f"_row.`{name}`" for name in schema), STREAM, SEQ, TIME, "subject", bad)


def good(rows: DataFrame, schema: Mapping[str, str]) -> DataFrame:
    """Rows that fit the schema: the feed's columns and the origin columns."""
    return rows.where(f"{BAD} IS NULL").selectExpr(*(f"`{name}`" for name in schema), STREAM, SEQ, TIME)


def rejects(rows: DataFrame, schema: Mapping[str, str]) -> DataFrame:
    """``REJECTS``: messages that do not fit the schema, with the reason."""
    fields = F.from_json(BAD, "map<string, string>")
    reasons: list[Column] = [F.when(fields.isNull(), F.lit("it is not a JSON object"))]
    for name, kind in schema.items():
        value = fields[name]
        misfit = value.isNotNull() & F.expr(f"try_cast(_fields['{name}'] AS {ddl_name(kind)})").isNull()
        text = F.concat(F.lit(f"'{name}' must be {kind}, but is "), F.substring(value, 1, 60))
        reasons.append(F.when(misfit, text))
    with_fields = rows.where(F.col(BAD).isNotNull()).withColumn("_fields", fields)
    reason = F.coalesce(*reasons, F.lit("a value is not of the type in the feed's schema"))
    return with_fields.select(
        F.col(STREAM).alias("stream"), F.col(SEQ).alias("seq"), F.col(TIME).alias("time"), "subject",
        F.col(BAD).alias("data"), reason.alias("reason"),
    )  # fmt: skip
