"""``trimtab pause``: pauses the controller."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, reason_option, with_operator


@click.command()
@reason_option
@home_option
@output.json_option
def pause(reason: str, home: str | None, as_json: bool) -> None:
    """Pause the controller: it moves only topics, clients and links whose broker is not alive.

    Plans that an operator starts are still carried out.
    """
    paused = with_operator(home, lambda operator: operator.pause(reason))
    if as_json:
        output.print_json({"paused": paused})
    else:
        click.echo(
            "paused: nothing moves by itself but topics, clients and links whose broker is not alive; go on with "
            "trimtab resume"
        )
