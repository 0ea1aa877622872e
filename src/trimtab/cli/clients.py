"""``trimtab clients``: who has come, and where they are at home."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import answer, home_option
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import ListClients


@click.command()
@home_option
@output.json_option
def clients(home: str | None, as_json: bool) -> None:
    """Clients with their homes and positions."""
    entries = answer(home, ListClients()).entries
    if as_json:
        output.print_json([{"client": name, **coding.plain(entry)} for name, entry in sorted(entries.items())])
        return
    rows = []
    for name, entry in sorted(entries.items()):
        position = entry.position
        rows.append((name, entry.home, f"{position[0]:.4f}, {position[1]:.4f}" if position else ""))
    output.print_table(f"{len(rows)} clients", ["client", "home", "position"], rows, left=range(2))
