"""``trimtab broker``: starts a broker that joins a fleet."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.cli.numbers import Number
from trimtab.cli.packed import packed
from trimtab.fleet import tasks

if TYPE_CHECKING:
    from trimtab.config import Config


@dataclass(frozen=True, slots=True)
class Door:
    """Addresses at which clients reach the broker."""

    listen: str
    port: int | None
    mqtt_port: int | None


@dataclass(frozen=True, slots=True)
class Limits:
    """Options of the broker's capacity and position."""

    bandwidth: float | None
    cores: float | None
    speed: float | None
    memory: float | None
    position: tuple[float, float] | None


@click.command()
@click.option("--name", required=True, help="Name of the broker, unique in the fleet.")
@click.option("--join", required=True, type=click.Path(dir_okay=False), help="The fleet file that the hub wrote.")
@click.option("--listen", default="127.0.0.1", show_default=True, metavar="HOST", help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port for clients [default: a free one].")
@click.option("--mqtt-port", type=click.IntRange(1, 65535), help="Port for MQTT clients [default: a free one].")
@click.option("--area", default="area", show_default=True, help="Brokers of one area reach each other directly.")
@click.option("--stores", type=click.Choice(["1", "3", "5"]), default="1", show_default=True,
              help="Servers that store persistent topics.")  # fmt: skip
@click.option(
    "--bandwidth", type=Number(infinite=True), metavar="BYTES/S", help="Limit of data in and out [default: none]."
)
@click.option(
    "--cores", type=Number(infinite=True), metavar="N", help="Cores that it may use [default: all of the machine]."
)
@click.option("--speed", type=Number(infinite=True), metavar="FACTOR",
              help="Speed of one of its cores, relative to the hardware profile [default: 1].")  # fmt: skip
@click.option(
    "--memory",
    type=Number(infinite=True),
    metavar="BYTES",
    help="Memory that it may use [default: all of the machine].",
)
@click.option("--position", type=(Number(), Number()), metavar="LAT LON", help="Its position, in degrees.")
@click.option("--home", type=click.Path(file_okay=False), help="Its folder [default: the fleet file's folder].")
@output.json_option
@packed("door", Door)
@packed("limits", Limits)
def broker(
    name: str, join: str, door: Door, area: str, stores: str, limits: Limits, home: str | None, as_json: bool
) -> None:  # fmt: skip
    """Start a broker that joins a fleet, until Ctrl-C.

    Its capacity is also read from [broker] of trimtab.toml.
    """
    from trimtab.config import load

    options = {name: value for name, value in asdict(limits).items() if value is not None}
    config = load()
    config = replace(config, broker=replace(config.broker, **options))
    tasks.run(_broker(name, Path(join), door, area, int(stores), config, home, as_json))


async def _broker(
    name: str, join: Path, door: Door, area: str, stores: int, config: Config, home: str | None, as_json: bool
) -> None:  # fmt: skip
    from trimtab.cli.up import report_restart, show, stop_signal
    from trimtab.fleet.site.launch import Launch

    folder = Path(home) if home else join.parent
    async with Launch(folder, host=door.listen, area=area, on_restart=report_restart, capacity=config.broker) as launch:
        launch.network = config.network
        launch.join(join)
        await launch.start_broker(name, port=door.port, mqtt_port=door.mqtt_port, stores=stores)
        await launch.ready([name])
        stopped = stop_signal()
        show(launch, as_json)
        await stopped()
