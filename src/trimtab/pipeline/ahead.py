"""Messages of a feed, read while executions run, so that none has to wait for them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from trimtab.pipeline.nats.jetstream import JetStream
from trimtab.pipeline.nats.source import COLUMNS, as_batch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.pipeline.nats.wire import Server

PAUSE_S: Final = 0.5
FEW: Final = 20_000  # messages that this process reads sooner than Spark would
MOST: Final = 200_000  # messages that wait for an execution


class Ahead:
    """A thread follows the streams, and whoever takes what it has reads the rest: what is taken is never old."""

    def __init__(self, server: Server, after: Mapping[str, int]) -> None:
        self._jetstream = JetStream(server)
        self._upto = dict(after)
        self._batches: list[tuple[str, pa.RecordBatch]] = []
        self._count = 0
        self._turn = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="ahead", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._jetstream.close()

    def _follow(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            with self._turn:
                try:
                    self._fetch()
                except Exception:  # whoever takes next meets it too, and tells of it
                    continue

    def take(self) -> tuple[dict[str, int], pa.Table]:
        """Up to where, and the messages with their ``stream``; no more of them once a stream is far ahead.

        Spark reads that sooner then, and ``skip`` tells of it.
        """
        with self._turn:
            self._fetch()
            batches, self._batches, self._count = self._batches, [], 0
            upto = dict(self._upto)
        streams = [stream for stream, batch in batches for _ in range(batch.num_rows)]
        whole = pa.Table.from_batches([batch for _, batch in batches], COLUMNS).drop_columns(["message_id"])
        return upto, whole.add_column(0, "stream", pa.array(streams, pa.string()))

    def skip(self, upto: Mapping[str, int]) -> None:
        """Spark has read up to here."""
        with self._turn:
            self._upto = dict(upto)

    def _fetch(self) -> None:
        last = {stream: self._jetstream.info(stream).last for stream in self._upto}
        if self._count >= MOST or any(last[stream] - at > FEW for stream, at in self._upto.items()):
            return
        for stream, at in self._upto.items():
            if last[stream] > at:
                # All of them or none: what was read of a range before it failed must not be there twice.
                found = [(stream, as_batch(rows)) for rows in self._jetstream.read(stream, at + 1, last[stream])]
                self._batches += found
                self._count += last[stream] - at
                self._upto[stream] = last[stream]
