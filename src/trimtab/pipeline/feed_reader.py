"""Messages of feeds, read and parsed while executions run, so that none has to wait for them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import pyarrow as pa

from trimtab.pipeline.nats.jetstream import JetStream
from trimtab.pipeline.nats.source import COLUMNS, as_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trimtab.pipeline.ledger import Positions
    from trimtab.pipeline.nats.wire import Server

PAUSE_S: Final = 0.2  # between two looks; as long as the last one took, if that is more,
LONGEST_PAUSE_S: Final = 0.5  # up to this: on a machine that is full, fewer and larger pieces are less work
FEW: Final = 20_000  # messages that this process reads sooner than Spark would
AT_ONCE: Final = 200_000  # messages of a stream that Spark reads in one go
MOST: Final = 400_000  # messages that wait to be taken

Piece = TypeVar("Piece")


class Ahead(Generic[Piece]):
    """A thread follows the streams of feeds and makes pieces of what it reads; who takes them has each once, in order.

    ``make`` is given the feed, where the piece begins and ends, and its messages; none of those if there are so many
    that Spark is to read them. What is made together is taken together. A feed is looked at before those named after
    it: who had published to one of these and then to that one is found in both, or not in that one.
    """

    def __init__(
        self, server: Server, after: Mapping[str, Positions],
        make: Callable[[str, Positions, Positions, pa.Table | None], Piece],
    ) -> None:  # fmt: skip
        self._jetstream = JetStream(server)
        self._make = make
        self._upto = {feed: dict(at) for feed, at in after.items()}
        self._made: list[Piece] = []
        self._waiting = 0  # messages
        self._trouble: Exception | None = None
        self._turn = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="ahead", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._jetstream.close()

    def take(self, wait_s: float = 0.0) -> list[Piece]:
        """All that has been made since the last time; waits for the first. What went wrong is told here."""
        with self._turn:
            self._turn.wait_for(lambda: self._made or self._trouble, wait_s)
            made, self._made, self._waiting = self._made, [], 0
            trouble, self._trouble = self._trouble, None
        if trouble is not None and not made:
            raise trouble
        return made

    def _follow(self) -> None:
        pause_s = PAUSE_S
        while not self._stopping.wait(pause_s):
            if self._waiting >= MOST:
                continue
            began = time.monotonic()
            try:
                self._step()
            except Exception as trouble:  # and once more, until somebody hears of it
                with self._turn:
                    self._trouble = trouble
                    self._turn.notify_all()
            pause_s = min(max(PAUSE_S, time.monotonic() - began), LONGEST_PAUSE_S)

    def _step(self) -> None:
        last = {feed: {stream: self._jetstream.info(stream).last for stream in at} for feed, at in self._upto.items()}
        made, upto = [], {}
        for feed, after in reversed(self._upto.items()):
            if last[feed] == after:
                continue
            if any(last[feed][stream] - at > FEW for stream, at in after.items()):
                upto[feed] = {stream: min(last[feed][stream], at + AT_ONCE) for stream, at in after.items()}
                made.append(self._make(feed, after, upto[feed], None))
            else:
                upto[feed] = last[feed]
                made.append(self._make(feed, after, upto[feed], self._read(after, upto[feed])))
            if upto[feed] != last[feed]:  # those before it wait until it has been read as far as they have
                break
        with self._turn:
            self._made += made
            for feed, places in upto.items():
                self._waiting += sum(places[stream] - at for stream, at in self._upto[feed].items())
                self._upto[feed] = places
            self._turn.notify_all()

    def _read(self, after: Positions, upto: Positions) -> pa.Table:
        """Messages with their ``stream``."""
        batches = {
            stream: [as_batch(rows) for rows in self._jetstream.read(stream, at + 1, upto[stream])]
            for stream, at in after.items()
            if upto[stream] > at
        }
        streams = [stream for stream, some in batches.items() for batch in some for _ in range(batch.num_rows)]
        whole = pa.Table.from_batches([batch for some in batches.values() for batch in some], COLUMNS)
        return whole.drop_columns(["message_id"]).add_column(0, "stream", pa.array(streams, pa.string()))
