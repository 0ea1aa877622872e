"""Spark's data source "nats": the messages of a JetStream stream as rows, in batches and as a stream.

A stream's sequence numbers are its offsets. The sender of a message is known only from its message id
(``trimtab.fleet.protocol.message.stamped``): JetStream does not store the reply subject, which carries other stamps.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from trimtab.errors import BadInput, BadKnob, UnknownName
from trimtab.pipeline.nats.jetstream import BATCH, JetStream
from trimtab.pipeline.nats.wire import Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trimtab.pipeline.nats.reading import Rows

SCHEMA: Final = "seq long, time timestamp, subject string, data binary, message_id string"
MICROS: Final = pa.timestamp("us", "UTC")
COLUMNS: Final = pa.schema(
    [("seq", pa.int64()), ("time", MICROS), ("subject", pa.string()), ("data", pa.binary()),
     ("message_id", pa.string())]
)  # fmt: skip
SMALL: Final = 2_000  # most sequences that one task reads before two tasks would start
KNOWN: Final = (
    "url", "user", "password", "ca", "domain", "stream", "partitions", "batch", "low", "high", "start", "max_rows",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Options:
    """The checked options of the source."""

    server: Server
    stream: str
    partitions: int = 2
    batch: int = BATCH
    low: int | None = None  # sequences of a batch read, inclusive
    high: int | None = None
    start: int | None = None  # sequence of the first message of a stream read
    max_rows: int | None = None  # most rows of a micro-batch

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Options:
        for name in options:
            if name.lower() not in KNOWN:
                raise UnknownName("option of the source 'nats'", name, KNOWN)
        for name in ("url", "stream"):
            if not options.get(name):
                raise BadInput(f"the source 'nats' needs the option '{name}'")
        server = Server(
            options["url"],
            options.get("user", ""),
            options.get("password", ""),
            options.get("ca"),
            options.get("domain"),
        )
        return cls(
            server, options["stream"], _number(options, "partitions") or 2, _number(options, "batch") or BATCH,
            _number(options, "low"), _number(options, "high", least=0), _number(options, "start"),
            _number(options, "max_rows"),
        )  # fmt: skip


def _number(options: Mapping[str, str], name: str, least: int = 1) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < least:
        raise BadKnob("source 'nats'", name, text, f"a whole number, at least {least}")
    return int(text)


class Range(InputPartition):
    """Sequences of one task, both ends included."""

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high


def cut(low: int, high: int, partitions: int) -> list[Range]:
    """Ranges of the same size, in order, from ``low`` to ``high``; a single range if there are few sequences."""
    count = high - low + 1
    if count <= 0:
        return []
    parts = min(partitions, count) if count >= SMALL else 1
    bounds = [low + count * part // parts for part in range(parts + 1)]
    return [Range(this, following - 1) for this, following in itertools.pairwise(bounds)]


class NatsSource(DataSource):
    """Register it with ``spark.dataSource.register(NatsSource)``."""

    @classmethod
    def name(cls) -> str:
        return "nats"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> NatsReader:
        return NatsReader(Options.of(self.options))

    def streamReader(self, schema: Any) -> NatsStreamReader:
        return NatsStreamReader(Options.of(self.options))


class NatsReader(DataSourceReader):
    """Reads the messages that exist when the query is planned."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def partitions(self) -> list[Range]:
        options = self.options
        with JetStream(options.server) as jetstream:
            state = jetstream.info(options.stream)
        low = max(state.first, options.low or 0)
        high = state.last if options.high is None else min(state.last, options.high)
        return cut(low, high, options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition)


class NatsStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches; the offset {"seq": n} says that everything up to n has been read.

    Each request opens its own connection. That takes a millisecond or two, while Spark takes a hundred or more for the
    smallest batch, and no connection is left open to a server that has stopped.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._first = 0  # first sequence of the stream at the last request
        self._last: int | None = None
        self._until: int | None = None  # last sequence of a query with the trigger availableNow

    def initialOffset(self) -> dict[str, int]:
        with JetStream(self.options.server) as jetstream:
            state = jetstream.info(self.options.stream)
        start = state.first if self.options.start is None else self.options.start
        if start > state.last + 1:
            raise BadInput(
                f"start is {start}, but the last message of stream '{self.options.stream}' is {state.last}: start may "
                f"be {state.last + 1} at most"
            )
        return {"seq": start - 1}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.max_rows) if self.options.max_rows else ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        done = start["seq"]
        with JetStream(self.options.server) as jetstream:
            state = jetstream.info(self.options.stream)
        if state.last < done:
            raise BadInput(
                f"stream '{self.options.stream}' ends at {state.last}, but was read up to {done} before: it was "
                "deleted and created again; read it with a new checkpoint"
            )
        self._first, self._last = state.first, state.last
        end = state.last if self._until is None else min(state.last, self._until)
        if isinstance(limit, ReadMaxRows):
            # Purged messages do not count as rows; messages deleted in between do, so there may be fewer rows.
            end = min(end, max(done, state.first - 1) + limit.max_rows)
        return {"seq": max(done, end)}

    def reportLatestOffset(self) -> dict[str, int] | None:
        return None if self._last is None else {"seq": self._last}

    def prepareForTriggerAvailableNow(self) -> None:
        with JetStream(self.options.server) as jetstream:
            self._until = jetstream.info(self.options.stream).last

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Range]:
        return cut(max(start["seq"] + 1, self._first), end["seq"], self.options.partitions)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, partition)


def _read(options: Options, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, Range):  # without partitions, Spark passes one of another type
        with JetStream(options.server) as jetstream:
            for rows in jetstream.read(options.stream, partition.low, partition.high, options.batch):
                yield as_batch(rows)


def as_batch(rows: Rows) -> pa.RecordBatch:
    """The rows as an Arrow batch."""
    columns = [
        pa.array(rows.seq, pa.int64()),
        pa.array(rows.time_us, MICROS),
        _texts(rows.subject),
        pa.array(rows.data, pa.binary()),
        _texts(rows.message_id),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMNS)


def _texts(column: list[bytes] | list[bytes | None]) -> pa.Array:
    try:
        return pa.array(column, pa.string())
    except pa.ArrowInvalid:  # NATS takes any bytes
        return pa.array([None if text is None else text.decode(errors="replace") for text in column], pa.string())
