"""``trimtab stop``: stops the current plan."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, reason_option, with_operator
from trimtab.fleet.protocol import coding


@click.command()
@reason_option
@home_option
@output.json_option
def stop(reason: str, home: str | None, as_json: bool) -> None:
    """Drop the remaining steps of the current plan, and keep brokers that were to be removed.

    Moves that have begun are finished.
    """
    stopped = with_operator(home, lambda operator: operator.stop(reason))
    if as_json:
        output.print_json(coding.plain(stopped))
    else:
        if stopped.plan is not None:
            click.echo(f"plan {stopped.plan} stops: {stopped.moved} have moved, {stopped.moving} are moving still")
        for broker in stopped.stay:
            click.echo(f"{broker} was to be removed, and stays")
