"""``trimtab topics``: topics with their broker, rates and delivery times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator
from trimtab.fleet.protocol import coding

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.fleet.operator.tables import TopicRow


@click.command()
@home_option
@output.json_option
def topics(home: str | None, as_json: bool) -> None:
    """Topics with their broker, kind, rates and delivery times over the last second."""
    rows = with_operator(home, lambda operator: operator.topics())
    if as_json:
        output.print_json(coding.plain(rows))
        return
    output.print_table(
        f"{len(rows)} topics", list(TOPIC_COLUMNS), [[show(row) for show in TOPIC_COLUMNS.values()] for row in rows],
        left=range(3),
    )  # fmt: skip


def _broker(row: TopicRow) -> str:
    if row.waits_for is not None:
        return f"waits for {row.waits_for}"
    return row.broker if row.unit == "topic" else f"by {row.unit}"


TOPIC_COLUMNS: dict[str, Callable[[TopicRow], str]] = {
    "topic": lambda row: row.topic,
    "broker": _broker,
    "kind": lambda row: ", ".join(
        part for part in (row.processor, "persistent" if row.persistent else "") if part
    ) or "plain",
    "pubs": lambda row: f"{row.publishers:,}",
    "subs": lambda row: f"{row.subscribers:,}",
    "in/s": lambda row: f"{row.in_per_s:,.0f}",
    "out/s": lambda row: f"{row.out_per_s:,.0f}",
    "processing": lambda row: f"{row.processing_ms:.1f} ms" if row.processing_ms is not None else "",
    "bound": lambda row: f"{row.latency_ms:g} ms" if row.latency_ms is not None else "",
    "network": lambda row: f"{row.network_ms:.1f} ms" if row.network_ms is not None else "",
    "best": lambda row: row.best_broker or "",
    "p50": lambda row: f"{row.p50_ms:.1f} ms" if row.p50_ms is not None else "",
    "p90": lambda row: f"{row.p90_ms:.1f} ms" if row.p90_ms is not None else "",
    "p99": lambda row: f"{row.p99_ms:.1f} ms" if row.p99_ms is not None else "",
}  # fmt: skip
