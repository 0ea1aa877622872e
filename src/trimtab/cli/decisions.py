"""``trimtab decisions``: what the controller has decided."""

from __future__ import annotations

import textwrap
import time
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option
from trimtab.cli.why import with_record

if TYPE_CHECKING:
    from trimtab.control.record import Record

MOST: Final = 80  # characters of what it was because of; trimtab why tells all


@click.command()
@click.option("--most", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many, newest last.")
@home_option
@output.json_option
def decisions(most: int, home: str | None, as_json: bool) -> None:
    """The decision log. More about one of them: trimtab why NUMBER."""

    async def look(record: Record) -> list[dict[str, Any]]:
        return [await record.decision(number) for number in (await record.numbers())[-most:]]

    found = with_record(home, look)
    if as_json:
        output.print_json([{name: each[name] for name in ("question", "plan", "why_not", "outcome")} for each in found])
        return
    rows = []
    for each in found:
        question, plan, outcome = each["question"], each["plan"], each["outcome"] or {}
        moved = outcome.get("states", []).count("moved") if plan else 0
        spread = f"{plan['before']['spread']:.2f} -> {plan['predicted']['spread']:.2f}" if plan else ""
        helped = {True: "yes", False: "no", None: ""}[outcome.get("helped")]
        because = textwrap.shorten("; ".join(question["reasons"]), MOST, placeholder=" ...")
        rows.append(
            (f"{question['number']}", time.strftime("%H:%M:%S", time.localtime(question["at"])), because,
             f"{moved} of {len(plan['steps'])}" if plan else "-", spread, helped)
        )  # fmt: skip
    output.print_table("decisions", ["", "at", "because", "moved", "spread", "helped"], rows, left=(0, 1, 2))
