"""``trimtab remove-broker``: everybody off a broker, then it ends."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_fleet
from trimtab.cli.move import carry_out
from trimtab.cli.rebalance import follow
from trimtab.errors import BadInput


@click.command("remove-broker")
@click.argument("name")
@click.option("--reason", default="", help="Why, for the record.")
@home_option
@output.json_option
def remove_broker(name: str, reason: str, home: str | None, as_json: bool) -> None:
    """Move every client of broker NAME to where there is room, then its topics; then stop it and forget it."""
    asked = {"verb": "empty", "broker": name, "reason": reason}
    answer = with_fleet(home, lambda ask: ask("admin.control", asked))
    if answer["applied"]:
        with_fleet(home, lambda ask: follow(ask, answer["plan"]["number"], quiet=as_json))
        if name not in with_fleet(home, lambda ask: ask("admin.control", {"verb": "status"}))["leaving"]:
            raise BadInput(f"somebody has stopped that; '{name}' goes on")
    left = carry_out(home, "admin.drain", {"broker": name}, quiet=as_json)  # topics, and whoever came meanwhile
    if stuck := [each for each in left if each["phase"] == "rolled back"]:
        raise BadInput(f"{len(stuck)} topics or clients cannot leave '{name}', which goes on: {stuck[0]['reason']}")
    with_fleet(home, lambda ask: ask("admin.host", {"verb": "remove", "name": name}, 40.0))
    steps = len(answer["plan"]["steps"]) if answer["plan"] else 0
    if as_json:
        output.print_json({"removed": name, "clients": steps, "plan": answer["plan"]})
    else:
        click.echo(f"{name} is removed; {steps:,} clients have moved")
