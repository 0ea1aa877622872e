"""``trimtab move``: moves a topic, a client or a link to another broker, live."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, steps_bar, with_operator
from trimtab.cli.moves import exit_if_rolled_back, show
from trimtab.errors import LinkRefused
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import MoveOrder, PlacedLink
from trimtab.model.key import Key


@click.group()
def move() -> None:
    """Move a topic, a client or a link to another broker while messages flow."""


to_option = click.option("--to", required=True, metavar="BROKER", help="Target of the move.")


@move.command("topic")
@click.argument("topic")
@to_option
@home_option
@output.json_option
def move_topic(topic: str, to: str, home: str | None, as_json: bool) -> None:
    """Move TOPIC with its processor, its stored messages and all its clients."""
    _finish(home, Key("topic", topic, ""), to, as_json)


@move.command("client")
@click.argument("client")
@to_option
@home_option
@output.json_option
def move_client(client: str, to: str, home: str | None, as_json: bool) -> None:
    """Move CLIENT to a new home, with its links to topics that are placed by client."""
    _finish(home, Key("client", "", client), to, as_json)


@move.command("link")
@click.argument("client")
@click.argument("topic")
@to_option
@home_option
@output.json_option
def move_link(client: str, topic: str, to: str, home: str | None, as_json: bool) -> None:
    """Move the link of CLIENT to TOPIC, a topic that is placed by link; a link without a broker is admitted."""
    try:
        _finish(home, Key("link", topic, client), to, as_json)
    except LinkRefused:
        link = PlacedLink(client, topic, to)
        with_operator(home, lambda operator: operator.place_links([link]))
        if as_json:
            output.print_json({"admitted": coding.plain(link)})
        else:
            click.echo(f"the link of {client} to {topic} is admitted at {to}")


def _finish(home: str | None, key: Key, to: str, as_json: bool) -> None:
    """Start the move, show its progress and its outcome. Exit code 1 if the move was rolled back."""
    with steps_bar("moving", quiet=as_json) as progress:
        rows = with_operator(home, lambda operator: operator.move([MoveOrder(key, to)], progress))
    show(rows, as_json)
    exit_if_rolled_back(rows)
