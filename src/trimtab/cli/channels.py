"""``trimtab channels``: channels and their parameters."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator
from trimtab.fleet.protocol import coding


@click.command()
@home_option
@output.json_option
def channels(home: str | None, as_json: bool) -> None:
    """Channels with their application, parameters, period, and rows that were too large to be sent."""
    table = with_operator(home, lambda operator: operator.channels())
    if as_json:
        output.print_json(coding.plain(table))
        return
    rows = [
        (
            row.channel,
            row.app,
            ", ".join(f"{parameter}: {kind}" for parameter, kind in row.parameters.items()),
            f"{row.period_s:g} s" if row.period_s else "continuous",
            f"{row.left_out:,}",
        )
        for row in table
    ]
    columns = ["channel", "application", "parameters", "period", "rows left out"]
    reasons = [f"{row.channel}: {row.reason}" for row in table if row.left_out]
    output.print_table(f"{len(rows)} channels", columns, rows, left=range(3), note="\n".join(reasons) or None)
