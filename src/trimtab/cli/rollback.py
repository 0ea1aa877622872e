"""``trimtab rollback``: a plan taken back."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, reason_option
from trimtab.cli.rebalance import carry_out


@click.command()
@click.argument("plan", type=int, required=False)
@reason_option
@home_option
@output.json_option
def rollback(plan: int | None, reason: str, home: str | None, as_json: bool) -> None:
    """Move all that PLAN has moved back to where it was; the last plan, if none is named."""
    carry_out(home, lambda operator: operator.roll_back(plan, reason), wait=True, as_json=as_json)
