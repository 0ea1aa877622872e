"""``trimtab channels``: what can be subscribed to."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import answer, home_option
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import ListChannels


@click.command()
@home_option
@output.json_option
def channels(home: str | None, as_json: bool) -> None:
    """Channels with their application, parameters, period, and rows that were too large to be sent."""
    known = answer(home, ListChannels()).entries
    if as_json:
        output.print_json([{"channel": name, **coding.plain(value)} for name, value in sorted(known.items())])
        return
    rows = [
        (
            name,
            value.app,
            ", ".join(f"{parameter}: {kind}" for parameter, kind in value.parameters.items()),
            f"{value.period_s:g} s" if value.period_s else "continuous",
            f"{value.left_out:,}",
        )
        for name, value in sorted(known.items())
    ]
    columns = ["channel", "application", "parameters", "period", "rows left out"]
    reasons = [f"{name}: {value.reason}" for name, value in sorted(known.items()) if value.left_out]
    output.print_table(f"{len(rows)} channels", columns, rows, left=range(3), note="\n".join(reasons) or None)
