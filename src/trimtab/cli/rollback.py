"""``trimtab rollback``: a plan taken back."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_fleet
from trimtab.cli.rebalance import follow, show


@click.command()
@click.argument("plan", type=int, required=False)
@click.option("--reason", default="", help="Why, for the record.")
@home_option
@output.json_option
def rollback(plan: int | None, reason: str, home: str | None, as_json: bool) -> None:
    """Move everybody that PLAN has moved back to where they were; the last plan, if none is named."""
    asked = {"verb": "rollback", "plan": plan, "reason": reason}
    answer = with_fleet(home, lambda ask: ask("admin.control", asked))
    answer["outcome"] = follow(home, answer["plan"]["number"], quiet=as_json)
    if as_json:
        output.print_json(answer)
    else:
        show(answer)
