"""``trimtab add-broker``: adds a broker on the machine where the fleet was started."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator


@click.command("add-broker")
@click.argument("name")
@home_option
@output.json_option
def add_broker(name: str, home: str | None, as_json: bool) -> None:
    """Start broker NAME on the machine of trimtab up. The controller moves topics, clients and links to it.

    To add a broker on another machine, use trimtab broker --join there.
    """
    urls = with_operator(home, lambda operator: operator.add_broker(name))
    if as_json:
        output.print_json({"urls": urls})
    else:
        click.echo(f"{name} is up at {', '.join(urls)}")
