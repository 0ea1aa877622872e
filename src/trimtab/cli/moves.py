"""``trimtab moves``: what has moved, when, and how long it took."""

from __future__ import annotations

import datetime
from itertools import pairwise
from typing import Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_fleet


@click.command()
@click.option("--most", type=click.IntRange(1, 10_000), default=30, show_default=True, help="How many, newest last.")
@home_option
@output.json_option
def moves(most: int, home: str | None, as_json: bool) -> None:
    """The history of moves, with the time each phase took."""
    answer = with_fleet(home, lambda ask: ask("admin.moves", {"most": most}))
    show(answer["moves"], as_json, title=f"moves, {answer['under_way']} under way")


def show(records: list[dict[str, Any]], as_json: bool, title: str) -> None:
    if as_json:
        output.print_json([record | {"ms": round(_took(record), 3)} for record in records])
        return
    rows = []
    for record in records:
        began = datetime.datetime.fromtimestamp(record["phases"][0][1]).strftime("%H:%M:%S")
        phases = record["phases"]
        steps = [f"{name} {1000 * (after - at):.0f}" for (name, at), (_, after) in pairwise(phases)]
        what = " ".join(part for part in (record["topic"], record["client"]) if part)
        rows.append(
            (began, record["unit"], what, record["source"], record["target"], record["phase"],
             f"{_took(record):.0f} ms", ", ".join(steps[1:]), record["reason"])
        )  # fmt: skip
    columns = ["began", "unit", "what", "from", "to", "is", "took", "phases, ms", "said"]
    output.print_table(title, columns, rows, left=range(6))


def _took(record: dict[str, Any]) -> float:
    return 1000.0 * float(record["phases"][-1][1] - record["phases"][0][1])
