"""``trimtab decisions``: what the controller has decided."""

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

MOST: Final = 80  # characters of the reasons; trimtab why shows all


@click.command()
@click.option("--most", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, newest last.")
@home_option
@output.json_option
def decisions(most: int, home: str | None, as_json: bool) -> None:
    """The decision log. More about one of them: trimtab why NUMBER."""
    found = with_operator(home, lambda operator: operator.decisions(most))
    if as_json:
        output.print_json([as_json_value(each) for each in found])
        return
    columns = ["", "at", "because", "moved", "spread", "helped"]
    output.print_table("decisions", columns, [_cells(each) for each in found], left=range(4))


def as_json_value(decision: Decision) -> dict[str, Any]:
    """Without the data it was made from."""
    return {name: coding.plain(getattr(decision, name)) for name in ("question", "plan", "why_not", "outcome")}


def _cells(decision: Decision) -> list[str]:
    question, plan, outcome = decision.question, decision.plan, decision.outcome
    states = outcome.states if outcome else []
    helped = outcome.helped if outcome else None
    moved = f"{states.count('moved')} of {counted(step.key for step in plan.steps)}" if plan else "-"
    return [
        f"{question.number}", time.strftime("%H:%M:%S", time.localtime(question.at)),
        textwrap.shorten("; ".join(question.reasons), MOST, placeholder=" ..."), moved,
        f"{plan.before.spread:.2f} -> {plan.predicted.spread:.2f}" if plan else "",
        "yes" if helped is True else "no" if helped is False else "",
    ]  # fmt: skip
