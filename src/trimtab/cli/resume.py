"""``trimtab resume``: resumes the controller after a pause."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator


@click.command()
@home_option
@output.json_option
def resume(home: str | None, as_json: bool) -> None:
    """Resume the controller after a pause."""
    with_operator(home, lambda operator: operator.resume())
    if as_json:
        output.print_json({"paused": ""})
    else:
        click.echo("the controller goes on")
