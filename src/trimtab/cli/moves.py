"""``trimtab moves``: what has moved, when, and how long it took."""

from __future__ import annotations

import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.cli.fleet import answer, home_option
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import ListMoves

if TYPE_CHECKING:
    from trimtab.fleet.protocol.entries import MoveRecord


@click.command()
@click.option("--most", type=click.IntRange(1, 10_000), default=30, show_default=True, help="How many, newest last.")
@home_option
@output.json_option
def moves(most: int, home: str | None, as_json: bool) -> None:
    """The history of moves, with the time each phase took."""
    found = answer(home, ListMoves(most=most))
    show(found.moves, as_json, title=f"moves, {found.under_way} under way")


def show(records: list[MoveRecord], as_json: bool, title: str) -> None:
    if as_json:
        output.print_json([coding.plain(record) | {"ms": round(_took(record), 3)} for record in records])
        return
    rows = []
    for record in records:
        phases = record.phases
        began = datetime.datetime.fromtimestamp(phases[0][1]).strftime("%H:%M:%S")
        steps = [f"{name} {1000 * (after - at):.0f}" for (name, at), (_, after) in pairwise(phases)]
        rows.append(
            (began, record.unit, record.key.name, record.source, record.target, record.phase,
             f"{_took(record):.0f} ms", ", ".join(steps[1:]), record.reason)
        )  # fmt: skip
    columns = ["began", "unit", "what", "from", "to", "is", "took", "phases, ms", "said"]
    output.print_table(title, columns, rows, left=range(6))


def _took(record: MoveRecord) -> float:
    return 1000.0 * (record.phases[-1][1] - record.phases[0][1])
