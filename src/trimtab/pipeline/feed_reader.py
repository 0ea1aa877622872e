"""Reads and parses messages of feeds in a thread, so that executions do not wait for the reading."""

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

PAUSE_S: Final = 0.2  # shortest pause between two reads; a read that took longer is followed by as long a pause
LONGEST_PAUSE_S: Final = 0.5  # longest pause; on a busy machine, fewer and larger pieces are less work
FEW: Final = 20_000  # most messages that this process reads faster than Spark would
AT_ONCE: Final = 200_000  # most messages of a stream that Spark reads in one piece
MOST: Final = 400_000  # most messages in pieces that have not been taken; beyond that, reading stops

Piece = TypeVar("Piece")


class FeedReader(Generic[Piece]):
    """A thread that follows the streams of feeds and makes pieces of them; ``take`` returns each piece once, in order.

    ``make`` gets the feed, the positions where the piece begins and ends, and its messages, or None instead of the
    messages if there are so many that Spark should read them. Pieces made in one step are taken together. Feeds are
    read in the order of ``after``. If a client publishes to a later feed and then to an earlier one, a step that
    contains the second message, or a step before it, also contains the first.
    """

    def __init__(
        self, server: Server, after: Mapping[str, Positions],
        make: Callable[[str, Positions, Positions, pa.Table | None], Piece],
    ) -> None:  # fmt: skip
        self._jetstream = JetStream(server)
        self._make = make
        self._upto = {feed: dict(at) for feed, at in after.items()}
        self._pieces: list[Piece] = []
        self._waiting = 0  # messages in pieces that have not been taken
        self._error: Exception | None = None
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="feed-reader", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._jetstream.close()

    def take(self, wait_s: float = 0.0) -> list[Piece]:
        """The pieces made since the last call; waits up to ``wait_s`` for the first.

        If there are none, an exception of the thread is raised here.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._pieces or self._error, wait_s)
            pieces, self._pieces, self._waiting = self._pieces, [], 0
            error, self._error = self._error, None
        if error is not None and not pieces:
            raise error
        return pieces

    def _follow(self) -> None:
        pause_s = PAUSE_S
        while not self._stopping.wait(pause_s):
            if self._waiting >= MOST:
                continue
            began = time.monotonic()
            try:
                self._step()
            except Exception as error:  # ``take`` raises it; the step is tried again
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
            pause_s = min(max(PAUSE_S, time.monotonic() - began), LONGEST_PAUSE_S)

    def _step(self) -> None:
        last = {feed: {stream: self._jetstream.info(stream).last for stream in at} for feed, at in self._upto.items()}
        pieces, upto = [], {}
        for feed, after in reversed(self._upto.items()):
            if last[feed] == after:
                continue
            if any(last[feed][stream] - at > FEW for stream, at in after.items()):
                upto[feed] = {stream: min(last[feed][stream], at + AT_ONCE) for stream, at in after.items()}
                pieces.append(self._make(feed, after, upto[feed], None))
            else:
                upto[feed] = last[feed]
                pieces.append(self._make(feed, after, upto[feed], self._read(after, upto[feed])))
            if upto[feed] != last[feed]:  # earlier feeds wait until this one has caught up
                break
        with self._changed:
            self._pieces += pieces
            for feed, positions in upto.items():
                self._waiting += sum(positions[stream] - at for stream, at in self._upto[feed].items())
                self._upto[feed] = positions
            self._changed.notify_all()

    def _read(self, after: Positions, upto: Positions) -> pa.Table:
        """The messages between these positions, with a ``stream`` column."""
        batches = {
            stream: [as_batch(rows) for rows in self._jetstream.read(stream, at + 1, upto[stream])]
            for stream, at in after.items()
            if upto[stream] > at
        }
        streams = [stream for stream, parts in batches.items() for batch in parts for _ in range(batch.num_rows)]
        messages = pa.Table.from_batches([batch for parts in batches.values() for batch in parts], COLUMNS)
        return messages.drop_columns(["message_id"]).add_column(0, "stream", pa.array(streams, pa.string()))
