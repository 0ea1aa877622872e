"""``trimtab top``: the fleet, live."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.cli.brokers import BROKER_COLUMNS, broker_cells, broker_rows
from trimtab.cli.fleet import home_option, with_fleet
from trimtab.cli.topics import TOPIC_COLUMNS, topic_rows
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import ListBrokers, ListMoves, ListTopics

if TYPE_CHECKING:
    from rich.console import Group

    from trimtab.cli.fleet import Ask


@click.command()
@click.option("--every", type=click.FloatRange(min=0.2), default=1.0, show_default=True, metavar="S", help="Seconds.")
@click.option("--rounds", type=click.IntRange(min=1), help="Stop after so many [default: at Ctrl-C].")
@home_option
@output.json_option
def top(every: float, rounds: int | None, home: str | None, as_json: bool) -> None:
    """Brokers, busiest topics and moves under way, every second. With --json, a line per round."""
    with_fleet(home, lambda ask: _watch(ask, every, rounds, as_json))


async def _watch(ask: Ask, every: float, rounds: int | None, as_json: bool) -> None:
    import json

    from rich.live import Live

    async def look() -> tuple[list, list, list]:  # type: ignore[type-arg]
        found = await ask(ListBrokers(reports=True))
        topics = (await ask(ListTopics())).entries
        moves = (await ask(ListMoves(most=5))).moves
        return broker_rows(found), topic_rows(topics, found.reports), [coding.plain(each) for each in moves]

    done = 0
    if as_json:
        while rounds is None or done < rounds:
            brokers, topics, moves = await look()
            click.echo(json.dumps({"at": time.time(), "brokers": brokers, "topics": topics, "moves": moves}))
            done += 1
            if done != rounds:
                await asyncio.sleep(every)
        return
    with Live(_screen(*await look()), refresh_per_second=4, screen=False) as live:
        while rounds is None or done < rounds:
            live.update(_screen(*await look()))
            done += 1
            if done != rounds:
                await asyncio.sleep(every)


def _screen(brokers: list, topics: list, moves: list) -> Group:  # type: ignore[type-arg]
    from rich.console import Group

    busiest = sorted(topics, key=lambda row: -(row["in_per_s"] + row["out_per_s"]))[:15]
    last = [
        f"{m['unit']} {m['topic'] or m['client']}: {m['source']} -> {m['target']}, {m['phase']} {m['reason']}"
        for m in moves
    ]
    return Group(
        output.table(f"{len(brokers)} brokers", BROKER_COLUMNS, [broker_cells(row) for row in brokers], left=range(3)),
        output.table(
            f"busiest of {len(topics)} topics", list(TOPIC_COLUMNS),
            [[show(row) for show in TOPIC_COLUMNS.values()] for row in busiest], left=range(3),
        ),
        "last moves\n" + ("\n".join(last) or "none"),
    )  # fmt: skip
