"""``trimtab pause``: paused."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import answer, home_option
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import Pause


@click.command()
@click.option("--reason", default="", help="Why, for the record.")
@home_option
@output.json_option
def pause(reason: str, home: str | None, as_json: bool) -> None:
    """Nothing moves by itself from now on, but for clients whose broker is away. Plans by hand still do."""
    said = answer(home, Pause(reason))
    if as_json:
        output.print_json(coding.plain(said))
    else:
        click.echo("paused: nothing moves by itself but clients whose broker is away; go on with trimtab resume")
