"""``trimtab moves``: the moves so far, with their times."""

from __future__ import annotations

import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator
from trimtab.fleet.protocol import coding
from trimtab.migrate.move import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.fleet.operator import Operator
    from trimtab.fleet.operator.tables import MoveRow


@click.command()
@click.option("--most", type=click.IntRange(1, 10_000), default=30, show_default=True, help="How many, newest last.")
@home_option
@output.json_option
def moves(most: int, home: str | None, as_json: bool) -> None:
    """List the moves so far, with the time of each phase."""

    async def read(operator: Operator) -> tuple[list[MoveRow], int]:
        return await operator.moves(most), await operator.moves_under_way()

    rows, under_way = with_operator(home, read)
    show(rows, as_json, title=f"moves, {under_way} under way")


def show(rows: Sequence[MoveRow], as_json: bool, title: str = "") -> None:
    if as_json:
        output.print_json(coding.plain(rows))
        return
    cells = []
    for row in rows:
        began = datetime.datetime.fromtimestamp(row.phases[0][1]).strftime("%H:%M:%S")
        steps = [f"{name} {1000 * (after - at):.0f}" for (name, at), (_, after) in pairwise(row.phases)]
        cells.append(
            (began, row.unit, row.key.name, row.source, row.target, row.phase, f"{row.ms:.0f} ms",
             ", ".join(steps[1:]), row.reason)
        )  # fmt: skip
    columns = ["began", "unit", "key", "from", "to", "phase", "took", "phases, ms", "reason"]
    output.print_table(
        title or (f"{len(rows)} moves" if len(rows) != 1 else "1 move"), columns, cells, left=range(6), wrap=(7, 8)
    )


def exit_if_rolled_back(rows: Sequence[MoveRow]) -> None:
    """Exit with code 1 if a move was rolled back."""
    if any(row.phase == Phase.ROLLED_BACK for row in rows):
        raise SystemExit(1)
