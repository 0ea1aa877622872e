"""``trimtab drain``: moves everything off a broker before it is stopped."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.cordon import cordoned
from trimtab.cli.fleet import home_option, reason_option, steps_bar, with_operator
from trimtab.cli.moves import exit_if_rolled_back, show


@click.command()
@click.argument("broker")
@reason_option
@home_option
@output.json_option
def drain(broker: str, reason: str, home: str | None, as_json: bool) -> None:
    """Cordon BROKER and move every topic, client and link off it, each to the broker that carries fewest.

    The broker stays empty until trimtab uncordon.
    """
    with steps_bar("moving", quiet=as_json) as progress:
        rows = with_operator(home, lambda operator: operator.drain(broker, reason, progress))
    show(rows, as_json)
    if not as_json:
        click.echo(cordoned(broker))
    exit_if_rolled_back(rows)
