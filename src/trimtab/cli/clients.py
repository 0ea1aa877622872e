"""``trimtab clients``: clients and their homes."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator
from trimtab.fleet.protocol import coding


@click.command()
@home_option
@output.json_option
def clients(home: str | None, as_json: bool) -> None:
    """Clients with their homes and positions."""
    table = with_operator(home, lambda operator: operator.clients())
    if as_json:
        output.print_json(coding.plain(table))
        return
    rows = []
    for row in table:
        position = row.position
        rows.append((row.client, row.home, f"{position[0]:.4f}, {position[1]:.4f}" if position else ""))
    output.print_table(f"{len(rows)} clients", ["client", "home", "position"], rows, left=range(2))
