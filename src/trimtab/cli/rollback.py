"""``trimtab rollback``: a plan taken back."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import answer, home_option
from trimtab.cli.rebalance import follow, show
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import RollBack


@click.command()
@click.argument("plan", type=int, required=False)
@click.option("--reason", default="", help="Why, for the record.")
@home_option
@output.json_option
def rollback(plan: int | None, reason: str, home: str | None, as_json: bool) -> None:
    """Move everybody that PLAN has moved back to where they were; the last plan, if none is named."""
    reply = coding.plain(answer(home, RollBack(plan, reason)))
    reply["outcome"] = follow(home, reply["plan"]["number"], quiet=as_json)
    if as_json:
        output.print_json(reply)
    else:
        show(reply)
