"""``trimtab stop``: the rest of a plan is not carried out."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import answer, home_option
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import StopPlan


@click.command()
@click.option("--reason", default="", help="Why, for the record.")
@home_option
@output.json_option
def stop(reason: str, home: str | None, as_json: bool) -> None:
    """Drop what is left of the plan that is under way, and stay with brokers that were to be removed.

    Moves that have begun come to their end.
    """
    said = answer(home, StopPlan(reason))
    if as_json:
        output.print_json(coding.plain(said))
    else:
        if said.plan is not None:
            click.echo(f"plan {said.plan} stops: {said.moved} have moved, {said.moving} are moving still")
        for broker in said.stay:
            click.echo(f"{broker} was to be removed, and stays")
