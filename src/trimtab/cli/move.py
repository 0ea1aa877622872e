"""``trimtab move``: a topic or a client to another broker, live."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_fleet
from trimtab.cli.moves import show
from trimtab.fleet.protocol.admin_verbs import ListMoves, MoveOrder, StartMoves
from trimtab.migrate.move import Phase
from trimtab.model.key import Key

if TYPE_CHECKING:
    from trimtab.cli.fleet import Ask
    from trimtab.fleet.protocol.admin_verbs import Begun
    from trimtab.fleet.protocol.entries import MoveRecord
    from trimtab.fleet.protocol.request import AdminRequest


@click.group()
def move() -> None:
    """Move a topic, a client or a link to another broker while messages flow."""


to_option = click.option("--to", required=True, metavar="BROKER", help="Where it should be.")


@move.command("topic")
@click.argument("topic")
@to_option
@home_option
@output.json_option
def move_topic(topic: str, to: str, home: str | None, as_json: bool) -> None:
    """TOPIC with its processor, its stored messages and all its clients."""
    finish(home, StartMoves([MoveOrder(Key("topic", topic, ""), to)]), as_json)


@move.command("client")
@click.argument("client")
@to_option
@home_option
@output.json_option
def move_client(client: str, to: str, home: str | None, as_json: bool) -> None:
    """CLIENT to a new home, with its links to topics that are placed by client."""
    finish(home, StartMoves([MoveOrder(Key("client", "", client), to)]), as_json)


@move.command("link")
@click.argument("client")
@click.argument("topic")
@to_option
@home_option
@output.json_option
def move_link(client: str, topic: str, to: str, home: str | None, as_json: bool) -> None:
    """The link of CLIENT to TOPIC, of a topic that is placed by link."""
    finish(home, StartMoves([MoveOrder(Key("link", topic, client), to)]), as_json)


def finish(home: str | None, order: AdminRequest[Begun], as_json: bool) -> None:
    """Start moves, show how they go, and say how they ended; exit code 1 if one was rolled back."""
    records = carry_out(home, order, quiet=as_json)
    show(records, as_json, title=f"{len(records)} moves" if len(records) != 1 else "1 move")
    if any(record.phase == Phase.ROLLED_BACK for record in records):
        raise SystemExit(1)


def carry_out(home: str | None, order: AdminRequest[Begun], *, quiet: bool) -> list[MoveRecord]:
    """Until all of them are over, with a bar; their records."""

    async def work(ask: Ask) -> list[MoveRecord]:
        ids = (await ask(order)).moves
        with output.progress(quiet=quiet) as bar:
            step = bar.add_task("moving", total=len(ids))
            while True:
                records: list[MoveRecord] = []
                for at in range(0, len(ids), 200):
                    records += (await ask(ListMoves(ids[at : at + 200]))).moves
                over = sum(Phase(record.phase).over for record in records)
                bar.update(step, completed=over)
                if over == len(ids):
                    return records
                await asyncio.sleep(0.02)

    return with_fleet(home, work)
