"""``trimtab remove-broker``: everybody off a broker, then it ends."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import answer, home_option
from trimtab.cli.move import carry_out
from trimtab.cli.rebalance import follow
from trimtab.errors import BadInput, NoAnswer, NotStartedHere, UnknownName
from trimtab.fleet.protocol.admin_verbs import (
    DrainBroker,
    EmptyBroker,
    ForgetBroker,
    GetStatus,
    ListBrokers,
    ListClients,
    ListTopics,
    RemoveBroker,
)
from trimtab.migrate.move import Phase


@click.command("remove-broker")
@click.argument("name")
@click.option("--reason", default="", help="Why, for the record.")
@home_option
@output.json_option
def remove_broker(name: str, reason: str, home: str | None, as_json: bool) -> None:
    """Move every client of broker NAME to where there is room, then its topics; then stop it and forget it.

    One that is away for good is only forgotten.
    """
    known = answer(home, ListBrokers())
    if name not in known.entries:
        raise UnknownName("broker", name, sorted(known.entries))
    alive = name in known.alive
    moved = _empty(name, reason, home, as_json) if alive else _refuse_if_needed(name, home)
    ended = _end(name, home)
    if not ended and not alive:
        answer(home, ForgetBroker(name))
        ended = True
    if as_json:
        output.print_json({"removed": name if ended else None, "clients": moved})
    elif ended:
        click.echo(f"{name} is removed; {moved:,} clients have moved")
    else:
        click.echo(
            f"{name} is empty, {moved:,} clients have moved, and nobody goes there for a quarter of an hour. It was "
            "not started by trimtab up: end it where it runs, then say this again, and it is forgotten"
        )


def _empty(name: str, reason: str, home: str | None, quiet: bool) -> int:
    """Everybody and everything off it; how many clients that were."""
    reply, moved = answer(home, EmptyBroker(name, reason)), 0
    if reply.applied and reply.plan is not None:
        moved = follow(home, reply.plan["number"], quiet=quiet).count("moved")
        if name not in answer(home, GetStatus()).leaving:
            raise BadInput(f"somebody has stopped that; '{name}' goes on")
    left = carry_out(home, DrainBroker(name), quiet=quiet)  # topics, and whoever came meanwhile
    if stuck := [each for each in left if each.phase == Phase.ROLLED_BACK]:
        raise BadInput(f"{len(stuck)} topics or clients cannot leave '{name}', which goes on: {stuck[0].reason}")
    return moved


def _refuse_if_needed(name: str, home: str | None) -> int:
    """A broker that is away may be forgotten only if nothing is there."""
    clients = answer(home, ListClients()).entries
    topics = answer(home, ListTopics()).entries
    ways = {
        "client": "trimtab move client {} --to BROKER, or trimtab controller",
        "topic": "trimtab move topic {} --to BROKER",
    }
    left = {
        "client": [client for client, entry in clients.items() if entry.home == name],
        "topic": [topic for topic, entry in topics.items() if entry.broker == name and entry.unit == "topic"],
    }
    for kind, here in left.items():
        if here:
            way = ways[kind].format(here[0])
            raise BadInput(f"'{name}' is away and has {len(here):,} {kind}s still, such as '{here[0]}': {way}")
    return 0


def _end(name: str, home: str | None) -> bool:
    """Whether whoever has started it could end it."""
    try:
        answer(home, RemoveBroker(name), 40.0)
    except (NoAnswer, NotStartedHere):
        return False
    return True
