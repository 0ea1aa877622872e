"""``trimtab drain``: everything off a broker, before it is taken down."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option
from trimtab.cli.move import finish
from trimtab.fleet.protocol.admin_verbs import DrainBroker


@click.command()
@click.argument("broker")
@home_option
@output.json_option
def drain(broker: str, home: str | None, as_json: bool) -> None:
    """Move every topic and client off BROKER, each to the broker that carries fewest."""
    finish(home, DrainBroker(broker), as_json)
