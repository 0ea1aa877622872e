"""``trimtab hub``: starts the hub of a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_of, home_option
from trimtab.fleet import tasks

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.option("--listen", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port for clients and agents [default: a free one].")
@click.option("--leaf-port", type=click.IntRange(1, 65535), help="Port for brokers [default: a free one].")
@click.option("--executors", type=click.IntRange(1, 1024), default=16, show_default=True, help="Moves at a time.")
@home_option
@output.json_option
def hub(listen: str, port: int | None, leaf_port: int | None, executors: int, home: str | None, as_json: bool) -> None:
    """Start the hub of a fleet, until Ctrl-C.

    It writes the fleet file. To start a broker on another machine, copy the fleet file there.
    """
    tasks.run(_hub(home_of(home), listen, port, leaf_port, executors, as_json))


async def _hub(home: Path, listen: str, port: int | None, leaf: int | None, executors: int, as_json: bool) -> None:
    from trimtab.cli.up import report_restart, stop_signal
    from trimtab.config import load
    from trimtab.fleet.site.launch import Launch

    config = load()
    options: dict[str, Any] = {
        "tls": config.tls,
        "executors": executors,
        "on_restart": report_restart,
        "hub_settings": config.hub,
    }
    async with Launch(home, host=listen, **options) as launch:
        await launch.start_hub(port, leaf)
        await launch.ready([])
        stopped = stop_signal()
        fleet_file = launch.home / "fleet.json"  # an absolute path: a broker may be started from another folder
        if as_json:
            output.print_json({"hub": launch.fleet.hub, "leaf": launch.fleet.hub_leaf, "fleet": str(fleet_file)})
        else:
            click.echo(f"the hub is up at {launch.fleet.hub}")
            click.echo(f"brokers: trimtab broker --name NAME --join {fleet_file}; stop with Ctrl-C")
        await stopped()
