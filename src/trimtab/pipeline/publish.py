"""Results on their way out: one message per subscription, stored at the hub exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet.protocol import subjects
from trimtab.pipeline.nats.jetstream import JetStream
from trimtab.pipeline.sql.share import RANK, SUB

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from trimtab.pipeline.nats.wire import Server

COUNTS: Final = ("subscriptions", "messages", "repeated", "rows", "too_large")
MOST_BYTES: Final = 900_000  # of rows in one message; a result with more comes in parts


def grouped(sql: str, columns: Sequence[str]) -> str:
    """``_sub`` and its rows as JSON texts, in their order; rows without an order are in that of their text."""
    named = ", ".join(f"`{name.replace('`', '``')}`" for name in columns)
    row = f"to_json(struct({named}), map('ignoreNullFields', 'false'))"
    rows = f"transform(array_sort(collect_list(struct({RANK}, {row} AS row))), each -> each.row)"
    return f"SELECT {SUB}, {rows} AS rows FROM ({sql}) GROUP BY {SUB}"


def publisher(
    server: Server, channel: str, execution: int, at: str, known: Collection[str] = ()
) -> Callable[[Iterable[Any]], Iterator[dict[str, int]]]:
    """What a Spark task does with its share of the results, but for messages that are ``known``; answers with counts.

    The same results make the same messages, also where one is so large that it comes in parts.
    """

    def publish(results: Iterable[Any]) -> Iterator[dict[str, int]]:
        counts = dict.fromkeys(COUNTS, 0)

        def messages() -> Iterator[tuple[str, bytes, str]]:
            for sub, rows in results:
                counts["subscriptions"] += 1
                for part, some in enumerate(_parts(rows, counts)):
                    identity = f"{channel}/{execution}/{sub}/{part}"
                    if identity in known:
                        continue
                    counts["messages"] += 1
                    counts["rows"] += len(some)
                    head = f'{{"execution": {execution}, "at": "{at}", "part": {part}, "rows": ['
                    data = f"{head}{', '.join(some)}]}}".encode()
                    yield subjects.result(channel, sub), data, identity

        with JetStream(server) as jetstream:
            counts["repeated"] = jetstream.publish(messages())
        yield counts

    return publish


def _parts(rows: list[str], counts: dict[str, int]) -> Iterator[list[str]]:
    some: list[str] = []
    size = 0
    for row in rows:
        length = len(row.encode())
        if length > MOST_BYTES:
            counts["too_large"] += 1
            continue
        if size + length > MOST_BYTES:
            yield some
            some, size = [], 0
        some.append(row)
        size += length
    if some:
        yield some


def already(jetstream: JetStream, stream: str, after: int, channel: str, execution: int) -> set[str]:
    """Messages of this execution that are stored, found by reading what came after ``after``."""
    found = set()
    last = jetstream.info(stream).last
    if last > after:
        wanted = f"{channel}/{execution}/".encode()
        for rows in jetstream.read(stream, after + 1, last):
            for identity in rows.message_id:
                if identity is not None and identity.startswith(wanted):
                    found.add(identity.decode())
    return found


def total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    whole = dict.fromkeys(COUNTS, 0)
    for each in counts:
        for name, value in each.items():
            whole[name] += value
    return whole
