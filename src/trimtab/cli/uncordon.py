"""``trimtab uncordon``: allows placements at a broker again."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator


@click.command()
@click.argument("broker")
@home_option
@output.json_option
def uncordon(broker: str, home: str | None, as_json: bool) -> None:
    """Use BROKER again after trimtab cordon or trimtab drain."""
    with_operator(home, lambda operator: operator.uncordon(broker))
    if as_json:
        output.print_json({"broker": broker, "cordoned": False})
    else:
        click.echo(f"{broker} is used again: topics, clients and links may be placed there")
