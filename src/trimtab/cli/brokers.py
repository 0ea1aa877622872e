"""``trimtab brokers``: brokers and their load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator
from trimtab.fleet.protocol import coding

if TYPE_CHECKING:
    from trimtab.fleet.operator.tables import BrokerRow


@click.command()
@home_option
@output.json_option
def brokers(home: str | None, as_json: bool) -> None:
    """Brokers with their load over the last second, and whether they are cordoned."""
    rows = with_operator(home, lambda operator: operator.brokers())
    if as_json:
        output.print_json(coding.plain(rows))
        return
    cordons = [f"{row.broker} is cordoned: {row.cordoned}" for row in rows if row.cordoned is not None]
    output.print_table(
        f"{len(rows)} brokers", list(BROKER_COLUMNS), [broker_cells(row) for row in rows], left=range(3),
        note="\n".join([*cordons, *(["end it with trimtab uncordon BROKER"] if cordons else [])]) or None,
    )  # fmt: skip


BROKER_COLUMNS = ("broker", "is", "clients at", "connections", "stock", "in/s", "out/s", "in", "out", "CPU", "memory")


def broker_cells(row: BrokerRow) -> list[str]:
    return [
        row.broker, ("up" if row.alive else "away") + (", cordoned" if row.cordoned is not None else ""), row.urls[0],
        f"{row.connections:,}", f"{row.stock:,}", f"{row.in_per_s:,.0f}", f"{row.out_per_s:,.0f}",
        f"{row.in_bytes_per_s / 1e3:,.0f} kB/s", f"{row.out_bytes_per_s / 1e3:,.0f} kB/s", f"{100 * row.cpu:.0f} %",
        f"{row.memory_bytes / 1e6:,.0f} MB",
    ]  # fmt: skip
