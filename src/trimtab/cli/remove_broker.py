"""``trimtab remove-broker``: moves everything off a broker, then stops and removes it."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, reason_option, steps_bar, with_operator
from trimtab.model.key import UNITS, counted


@click.command("remove-broker")
@click.argument("name")
@reason_option
@home_option
@output.json_option
def remove_broker(name: str, reason: str, home: str | None, as_json: bool) -> None:
    """Move every topic, client and link of broker NAME to brokers with room, then stop and remove the broker.

    A broker that is not running is only removed.
    """
    with steps_bar(f"emptying {name}", quiet=as_json) as progress:
        removal = with_operator(home, lambda operator: operator.remove_broker(name, reason, progress))
    if as_json:
        count = {f"{unit}s": sum(key.unit == unit for key in removal.moved) for unit in UNITS}
        output.print_json({"removed": name if removal.ended else None, **count})
    elif removal.ended:
        click.echo(f"{name} is removed; moved: {counted(removal.moved)}")
    else:
        click.echo(
            f"{name} is empty and cordoned; moved: {counted(removal.moved)}. It was not started by trimtab up: stop it "
            "on its machine, then repeat this command to remove it"
        )
