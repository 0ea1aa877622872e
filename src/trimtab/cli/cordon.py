"""``trimtab cordon``: excludes a broker from new placements."""

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
    """Place nothing at BROKER from now on. Its topics, clients and links stay; trimtab drain moves them off."""
    with_operator(home, lambda operator: operator.cordon(broker, reason))
    if as_json:
        output.print_json({"broker": broker, "cordoned": True})
    else:
        click.echo(cordoned(broker))


def cordoned(broker: str) -> str:
    return f"{broker} is cordoned: nothing is placed there until trimtab uncordon {broker}"
