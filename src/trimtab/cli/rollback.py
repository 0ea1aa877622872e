"""``trimtab rollback``: moves back what a plan has moved."""

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
    """Move all keys that PLAN has moved back to their previous brokers. Without PLAN, roll back the last plan."""
    carry_out(home, lambda operator: operator.roll_back(plan, reason), wait=True, as_json=as_json)
