"""A feed from any streaming source of Spark (files, Kafka with its package): its rows go to the feed's own stream.

The stream makes it a feed like any other, with positions by which executions can be repeated.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F

from trimtab.errors import BadManifest
from trimtab.fleet.protocol.types import schema_ddl
from trimtab.pipeline.feeds import streams_of
from trimtab.pipeline.nats.jetstream import JetStream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from trimtab.pipeline.manifest import App, Feed
    from trimtab.pipeline.nats.wire import Server

NEEDS_SCHEMA: Final = ("csv", "json", "parquet", "orc", "text", "xml")  # files; other sources have their own


def start(spark: SparkSession, server: Server, app: App, feed: Feed, folder: Path) -> StreamingQuery:
    from pyspark.errors import PySparkException

    options = dict(feed.spark)
    kind = options.pop("format")
    if "path" in options and "://" not in options["path"]:
        options["path"] = str((app.path.parent / options["path"]).resolve())
    reader = spark.readStream.format(kind).options(**options)
    if kind in NEEDS_SCHEMA:
        reader = reader.schema(schema_ddl(feed.schema))
    try:
        rows = reader.load()
        missing = [name for name in feed.schema if name not in rows.columns]
        if missing:
            raise BadManifest(feed.place, f"feed '{feed.name}': its source has no column '{missing[0]}'")
        text = rows.select(F.to_json(F.struct(*(F.col(f"`{name}`") for name in feed.schema))).alias("data"))
        send = _sender(server, feed, app.name, folder / "bridges" / feed.name)
        checkpoint = str(folder / "bridges" / feed.name / "checkpoint")
        return text.writeStream.foreachBatch(send).option("checkpointLocation", checkpoint).start()
    except PySparkException as error:
        reason = str(error).split("\n")[0]
        raise BadManifest(feed.place, f"feed '{feed.name}': {reason}") from None


def _sender(server: Server, feed: Feed, app: str, folder: Path) -> Any:
    ((stream, subject),) = streams_of(feed, app).items()
    epoch = _epoch(folder)

    def send(batch: DataFrame, number: int) -> None:
        stored = _sent(server, stream, folder / "batch", number, f"{epoch}/{number}/".encode())

        def publish(partition: int, rows: Iterable[Any]) -> Iterator[int]:
            def messages() -> Iterator[tuple[str, bytes, str]]:
                for row_number, row in enumerate(rows):
                    identity = f"{epoch}/{number}/{partition}/{row_number}"
                    if identity.encode() not in stored:
                        yield subject, row[0].encode(), identity

            with JetStream(server) as jetstream:
                yield jetstream.publish(messages())

        batch.rdd.mapPartitionsWithIndex(publish).collect()

    return send


def _sent(server: Server, stream: str, note: Path, number: int, prefix: bytes) -> set[bytes]:
    """Message ids of a batch that are stored already: Spark repeats an interrupted batch, however long ago it began."""
    with JetStream(server) as jetstream:
        state = jetstream.info(stream)
        words = note.read_text().split() if note.exists() else []  # batch number, position before the batch
        if len(words) != 2 or int(words[0]) != number:
            fresh = note.with_suffix(".new")
            fresh.write_text(f"{number} {state.last}")
            fresh.replace(note)
            return set()
        batches = jetstream.read(stream, int(words[1]) + 1, state.last)
        ids = (message_id for rows in batches for message_id in rows.message_id)
        return {message_id for message_id in ids if message_id is not None and message_id.startswith(prefix)}


def _epoch(folder: Path) -> str:
    """An identifier of this checkpoint, which distinguishes its batches from those of a lost checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "epoch"
    if not (folder / "checkpoint").exists() or not path.exists():
        path.write_text(secrets.token_hex(8))
    return path.read_text()
