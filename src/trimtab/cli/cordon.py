"""``trimtab cordon``: nothing is placed at a broker any more."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, reason_option, with_operator


@click.command()
@click.argument("broker")
@reason_option
@home_option
@output.json_option
def cordon(broker: str, reason: str, home: str | None, as_json: bool) -> None:
    """Place nothing at BROKER from now on. What is there stays; trimtab drain moves it off."""
    with_operator(home, lambda operator: operator.cordon(broker, reason))
    if as_json:
        output.print_json({"broker": broker, "cordoned": True})
    else:
        click.echo(cordoned(broker))


def cordoned(broker: str) -> str:
    return f"{broker} is cordoned: nothing is placed there until trimtab uncordon {broker}"
