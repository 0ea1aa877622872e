"""``trimtab add-broker``: one more, on the machine where the fleet was started."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator


@click.command("add-broker")
@click.argument("name")
@home_option
@output.json_option
def add_broker(name: str, home: str | None, as_json: bool) -> None:
    """Start broker NAME beside those that trimtab up has started. The controller fills it.

    On another machine, start it there: trimtab broker --join.
    """
    urls = with_operator(home, lambda operator: operator.add_broker(name))
    if as_json:
        output.print_json({"urls": urls})
    else:
        click.echo(f"{name} is up at {', '.join(urls)}")
