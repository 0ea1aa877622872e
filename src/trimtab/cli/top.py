"""``trimtab top``: shows the fleet live."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.cli.brokers import BROKER_COLUMNS, broker_cells
from trimtab.cli.fleet import home_option, with_operator
from trimtab.cli.numbers import Number
from trimtab.cli.topics import TOPIC_COLUMNS
from trimtab.fleet.protocol import coding

if TYPE_CHECKING:
    from rich.console import Group

    from trimtab.fleet.operator import Operator
    from trimtab.fleet.operator.tables import Overview


@click.command()
@click.option("--every", type=Number(min=0.2), default=1.0, show_default=True, metavar="S", help="Interval in seconds.")
@click.option("--rounds", type=click.IntRange(min=1), help="Stop after this number of rounds [default: at Ctrl-C].")
@home_option
@output.json_option
def top(every: float, rounds: int | None, home: str | None, as_json: bool) -> None:
    """Show brokers, the busiest topics and the last moves, every second. With --json, print a line per round."""
    with_operator(home, lambda operator: _watch(operator, every, rounds, as_json))


async def _watch(operator: Operator, every: float, rounds: int | None, as_json: bool) -> None:
    from rich.live import Live

    done = 0
    if as_json:
        while rounds is None or done < rounds:
            click.echo(json.dumps({"at": time.time(), **coding.plain(await operator.overview())}))
            done += 1
            if done != rounds:
                await asyncio.sleep(every)
        return
    with Live(_screen(await operator.overview()), refresh_per_second=4, screen=False) as live:
        while rounds is None or done < rounds:
            live.update(_screen(await operator.overview()))
            done += 1
            if done != rounds:
                await asyncio.sleep(every)


def _screen(overview: Overview) -> Group:
    from rich.console import Group

    brokers, topics = overview.brokers, overview.topics
    busiest = sorted(topics, key=lambda row: -(row.in_per_s + row.out_per_s))[:15]
    last = [f"{move.key}: {move.source} -> {move.target}, {move.phase} {move.reason}" for move in overview.moves]
    return Group(
        output.table(f"{len(brokers)} brokers", BROKER_COLUMNS, [broker_cells(row) for row in brokers], left=range(3)),
        output.table(
            f"busiest of {len(topics)} topics", list(TOPIC_COLUMNS),
            [[show(row) for show in TOPIC_COLUMNS.values()] for row in busiest], left=range(3),
        ),
        "last moves\n" + ("\n".join(last) or "none"),
    )  # fmt: skip
