"""``trimtab resume``: the controller goes on."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import answer, home_option
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import Resume


@click.command()
@home_option
@output.json_option
def resume(home: str | None, as_json: bool) -> None:
    """The controller goes on where it was paused."""
    said = answer(home, Resume())
    if as_json:
        output.print_json(coding.plain(said))
    else:
        click.echo("the controller goes on")
