"""``trimtab brokers``: who carries what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import answer, home_option
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import ListBrokers
from trimtab.observe.report import BrokerReport

if TYPE_CHECKING:
    from trimtab.fleet.protocol.admin_verbs import Entries
    from trimtab.fleet.protocol.entries import BrokerEntry


@click.command()
@home_option
@output.json_option
def brokers(home: str | None, as_json: bool) -> None:
    """Brokers with their load over the last second."""
    rows = broker_rows(answer(home, ListBrokers(reports=True)))
    if as_json:
        output.print_json(rows)
        return
    output.print_table(f"{len(rows)} brokers", list(BROKER_COLUMNS), [broker_cells(row) for row in rows], left=range(3))


BROKER_COLUMNS = ("broker", "is", "clients at", "connections", "stock", "in/s", "out/s", "in", "out", "CPU", "memory")


def broker_cells(row: dict[str, Any]) -> list[str]:
    return [
        row["broker"], "up" if row["alive"] else "away", row["urls"][0], f"{row['connections']:,}", f"{row['stock']:,}",
        f"{row['in_per_s']:,.0f}", f"{row['out_per_s']:,.0f}", f"{row['in_bytes_per_s'] / 1e3:,.0f} kB/s",
        f"{row['out_bytes_per_s'] / 1e3:,.0f} kB/s", f"{100 * row['cpu']:.0f} %",
        f"{row['memory_bytes'] / 1e6:,.0f} MB",
    ]  # fmt: skip


def broker_rows(found: Entries[BrokerEntry]) -> list[dict[str, Any]]:
    rows = []
    for name, about in sorted(found.entries.items()):
        report = found.reports.get(name) or BrokerReport(name, 0.0, 1.0)
        period = report.period_s or 1.0
        rows.append(
            {
                "broker": name, "alive": name in found.alive, **coding.plain(about), "connections": report.connections,
                "stock": report.stock, "cpu": report.cpu, "memory_bytes": report.memory_bytes,
                "in_per_s": report.in_msgs / period, "out_per_s": report.out_msgs / period,
                "in_bytes_per_s": report.in_bytes / period, "out_bytes_per_s": report.out_bytes / period,
            }
        )  # fmt: skip
    return rows
