"""``trimtab remove-broker``: everybody off a broker, then it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_fleet
from trimtab.cli.move import carry_out
from trimtab.cli.rebalance import follow
from trimtab.errors import BadInput, UnknownName, Unreachable

if TYPE_CHECKING:
    from trimtab.cli.fleet import Ask


@click.command("remove-broker")
@click.argument("name")
@click.option("--reason", default="", help="Why, for the record.")
@home_option
@output.json_option
def remove_broker(name: str, reason: str, home: str | None, as_json: bool) -> None:
    """Move every client of broker NAME to where there is room, then its topics; then stop it and forget it.

    One that is away for good is only forgotten.
    """
    about = with_fleet(home, lambda ask: ask("admin.state", {"kind": "broker"}))
    if name not in about["entries"]:
        raise UnknownName("broker", name, sorted(about["entries"]))
    alive = name in about["alive"]
    moved = _empty(name, reason, home, as_json) if alive else _refuse_if_needed(name, home)
    ended = _end(name, home)
    if not ended and not alive:
        with_fleet(home, lambda ask: ask("admin.forget", {"broker": name}))
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
    asked, moved = {"verb": "empty", "broker": name, "reason": reason}, 0
    answer = with_fleet(home, lambda ask: ask("admin.control", asked))
    if answer["applied"]:
        moved = follow(home, answer["plan"]["number"], quiet=quiet).count("moved")
        if name not in with_fleet(home, lambda ask: ask("admin.control", {"verb": "status"}))["leaving"]:
            raise BadInput(f"somebody has stopped that; '{name}' goes on")
    left = carry_out(home, "admin.drain", {"broker": name}, quiet=quiet)  # topics, and whoever came meanwhile
    if stuck := [each for each in left if each["phase"] == "rolled back"]:
        raise BadInput(f"{len(stuck)} topics or clients cannot leave '{name}', which goes on: {stuck[0]['reason']}")
    return moved


def _refuse_if_needed(name: str, home: str | None) -> int:
    """A broker that is away may be forgotten only if nothing is there."""
    kinds = {"client": "home", "topic": "broker"}

    async def known(ask: Ask) -> dict[str, Any]:
        return {kind: (await ask("admin.state", {"kind": kind}))["entries"] for kind in kinds}

    for kind, entries in with_fleet(home, known).items():
        key = kinds[kind]
        here = [each for each, said in entries.items() if said[key] == name and said.get("unit", "topic") == "topic"]
        if here:
            way = f"trimtab move {kind} {here[0]} --to BROKER, or trimtab controller" if kind == "client" else (
                f"trimtab move topic {here[0]} --to BROKER"
            )  # fmt: skip
            raise BadInput(f"'{name}' is away and has {len(here):,} {kind}s still, such as '{here[0]}': {way}")
    return 0


def _end(name: str, home: str | None) -> bool:
    """Whether whoever has started it could end it."""
    try:
        with_fleet(home, lambda ask: ask("admin.host", {"verb": "remove", "name": name}, 40.0))
    except Unreachable:
        return False
    except BadInput as error:
        if "was started here" in str(error):
            return False
        raise
    return True
