"""Publishes results: one message per subscription, or several for a large result, stored at the hub exactly once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet.protocol import subjects
from trimtab.pipeline.nats.jetstream import JetStream
from trimtab.pipeline.sql.share import RANK, SUB

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from trimtab.pipeline.ledger import Execution
    from trimtab.pipeline.nats.wire import Server

MOST_BYTES: Final = 900_000  # most bytes of rows in one message; a larger result is split into parts
SEPARATOR: Final = ", "  # between rows


@dataclass(slots=True)
class Counts:
    """Numbers of messages and rows sent by an execution, or by one of its Spark tasks."""

    subscriptions: int = 0
    messages: int = 0
    repeated: int = 0  # messages that were stored already
    rows: int = 0
    left_out: int = 0  # rows that are too large for a message
    reason: str = ""  # why the last such row was left out

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.subscriptions + other.subscriptions, self.messages + other.messages, self.repeated + other.repeated,
            self.rows + other.rows, self.left_out + other.left_out, other.reason or self.reason,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parts:
    """The rows of one result, by message. There is at least one message, also if all rows are left out."""

    rows: list[list[str]]
    left_out: int = 0
    reason: str = ""

    @classmethod
    def of(cls, rows: Iterable[str]) -> Parts:
        parts: list[list[str]] = [[]]
        size = left_out = 0
        reason = ""
        for row in rows:
            length = len(row.encode()) + len(SEPARATOR)
            if length > MOST_BYTES:
                left_out += 1
                reason = f"a row of {length - len(SEPARATOR):,} bytes is over the limit of {MOST_BYTES:,}"
                continue
            if size + length > MOST_BYTES:
                parts.append([])
                size = 0
            parts[-1].append(row)
            size += length
        return cls(parts, left_out, reason)

    def message(self, part: int, execution: Execution) -> bytes:
        """Encode one message. If there are several, each names the stream position after which the first one lies."""
        last = part == len(self.rows) - 1
        head: dict[str, Any] = {"execution": execution.number, "at": execution.at, "part": part}
        if len(self.rows) > 1:
            head |= {"parts": len(self.rows), "after": execution.results}
        if last and self.left_out:
            head |= {"left_out": self.left_out, "reason": self.reason}
        return f'{json.dumps(head)[:-1]}, "rows": [{SEPARATOR.join(self.rows[part])}]}}'.encode()


def grouped(sql: str, columns: Sequence[str]) -> str:
    """A query for ``_sub`` and its rows as JSON texts, in the order of ``_rank``; equal ranks are ordered by text."""
    named = ", ".join(f"`{name.replace('`', '``')}`" for name in columns)
    row = f"to_json(struct({named}), map('ignoreNullFields', 'false'))"
    rows = f"transform(array_sort(collect_list(struct({RANK}, {row} AS row))), each -> each.row)"
    return f"SELECT {SUB}, {rows} AS rows FROM ({sql}) GROUP BY {SUB}"


def publisher(
    server: Server, channel: str, execution: Execution, stored: Collection[str] = ()
) -> Callable[[Iterable[Any]], Iterator[Counts]]:
    """A function for Spark tasks that publishes results, except messages that are ``stored``, and returns counts.

    Equal results make equal messages, also where a result is split into parts.
    """

    def publish(results: Iterable[Any]) -> Iterator[Counts]:
        counts = Counts()

        def messages() -> Iterator[tuple[str, bytes, str]]:
            for sub, rows in results:
                counts.subscriptions += 1
                parts = Parts.of(rows)
                counts.left_out += parts.left_out
                counts.reason = parts.reason or counts.reason
                for part, part_rows in enumerate(parts.rows):
                    identity = f"{channel}/{execution.number}/{sub}/{part}"
                    if identity in stored:
                        continue
                    counts.messages += 1
                    counts.rows += len(part_rows)
                    yield subjects.result(channel, sub), parts.message(part, execution), identity

        with JetStream(server) as jetstream:
            counts.repeated = jetstream.publish(messages())
        yield counts

    return publish


def stored_identities(jetstream: JetStream, stream: str, after: int, channel: str, execution: int) -> set[str]:
    """Identities of this execution's messages that are already in the stream after position ``after``."""
    identities = set()
    last = jetstream.info(stream).last
    if last > after:
        prefix = f"{channel}/{execution}/".encode()
        for rows in jetstream.read(stream, after + 1, last):
            for identity in rows.message_id:
                if identity is not None and identity.startswith(prefix):
                    identities.add(identity.decode())
    return identities
