"""``trimtab topics``: what there is, where, and how busy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import answer, home_option
from trimtab.fleet.protocol.admin_verbs import ListTopics
from trimtab.observe.report import TopicReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.fleet.protocol.entries import Topic
    from trimtab.observe.report import BrokerReport


@click.command()
@home_option
@output.json_option
def topics(home: str | None, as_json: bool) -> None:
    """Topics with their broker, kind, rates and delivery times over the last second."""
    found = answer(home, ListTopics(reports=True))
    rows = topic_rows(found.entries, found.reports)
    if as_json:
        output.print_json(rows)
        return
    output.print_table(
        f"{len(rows)} topics", list(TOPIC_COLUMNS), [[show(row) for show in TOPIC_COLUMNS.values()] for row in rows],
        left=range(3),
    )  # fmt: skip


TOPIC_COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "topic": lambda row: row["topic"],
    "broker": lambda row: row["broker"] if row["unit"] == "topic" else f"by {row['unit']}",
    "kind": lambda row: ", ".join(
        part for part in (row["processor"], "persistent" if row["persistent"] else "") if part
    ) or "plain",
    "pubs": lambda row: f"{row['publishers']:,}",
    "subs": lambda row: f"{row['subscribers']:,}",
    "in/s": lambda row: f"{row['in_per_s']:,.0f}",
    "out/s": lambda row: f"{row['out_per_s']:,.0f}",
    "processing": lambda row: f"{row['processing_ms']:.1f} ms" if row["processing_ms"] is not None else "",
    "p50": lambda row: f"{row['p50_ms']:.1f} ms" if row["p50_ms"] is not None else "",
    "p99": lambda row: f"{row['p99_ms']:.1f} ms" if row["p99_ms"] is not None else "",
}  # fmt: skip


def topic_rows(topics: dict[str, Topic], reports: dict[str, BrokerReport]) -> list[dict[str, Any]]:
    """A row per topic: its settings, and the reports of all brokers added up."""
    total: dict[str, TopicReport] = {}
    period = 1.0
    for report in reports.values():
        period = report.period_s or period
        for name, of_topic in report.topics.items():
            total.setdefault(name, TopicReport()).add(of_topic)
    rows = []
    for name, topic in sorted(topics.items()):
        settings = {"broker": topic.broker} | topic.settings()
        del settings["name"]
        counted = total.get(name, TopicReport())
        known = counted.latency.total > 0
        rows.append(
            {
                "topic": name, **settings, "publishers": counted.publishers, "subscribers": counted.subscribers,
                "in_per_s": counted.in_msgs / period, "out_per_s": counted.out_msgs / period,
                "in_bytes_per_s": counted.in_bytes / period, "out_bytes_per_s": counted.out_bytes / period,
                "processing_ms": 1000 * counted.busy_s / counted.processed if counted.processed else None,
                "dead": counted.dead,
                **{f"p{p}_ms": 1000 * counted.latency.percentile(p / 100) if known else None for p in (50, 90, 99)},
            }
        )  # fmt: skip
    return rows
