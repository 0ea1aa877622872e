"""``trimtab decisions``: the controller's decision log."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator
from trimtab.fleet.protocol import coding
from trimtab.model.key import counted

if TYPE_CHECKING:
    from trimtab.fleet.protocol.plans import Decision

MOST: Final = 80  # most characters of the reasons; trimtab why shows them in full


@click.command()
@click.option("--most", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, newest last.")
@home_option
@output.json_option
def decisions(most: int, home: str | None, as_json: bool) -> None:
    """Show the decision log. For details of a decision, see trimtab why NUMBER."""
    records = with_operator(home, lambda operator: operator.decisions(most))
    if as_json:
        output.print_json([as_json_value(record) for record in records])
        return
    columns = ["", "at", "because", "moved", "spread", "helped"]
    output.print_table("decisions", columns, [_cells(record) for record in records], left=range(4))


def as_json_value(decision: Decision) -> dict[str, Any]:
    """The decision as JSON, without the data that it was based on."""
    return {name: coding.plain(getattr(decision, name)) for name in ("question", "plan", "why_not", "outcome")}


def _cells(decision: Decision) -> list[str]:
    question, plan, outcome = decision.question, decision.plan, decision.outcome
    states = outcome.states if outcome else []
    helped = outcome.helped if outcome else None
    moved = "-"
    if plan is not None:
        moved = f"{states.count('moved')} of {counted(step.key for step in plan.steps)}" if plan.steps else ""
        if plan.links:
            moved += (", " if moved else "") + f"{counted(link.key for link in plan.links)} placed"
    return [
        f"{question.number}", time.strftime("%H:%M:%S", time.localtime(question.at)),
        textwrap.shorten("; ".join(question.reasons), MOST, placeholder=" ..."), moved,
        f"{plan.before.spread:.2f} -> {plan.predicted.spread:.2f}" if plan else "",
        "yes" if helped is True else "no" if helped is False else "",
    ]  # fmt: skip
