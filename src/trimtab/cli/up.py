"""``trimtab up``: starts a whole fleet on this machine."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_of, home_option
from trimtab.cli.packed import packed
from trimtab.fleet import tasks

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trimtab.fleet.site.launch import Launch
    from trimtab.fleet.site.supervisor import Child


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of brokers, stores, executors and controllers."""

    brokers: int
    stores: str
    executors: int
    controllers: int


@click.command()
@click.option("--brokers", type=click.IntRange(1, 64), default=4, show_default=True, help="Number of brokers.")
@click.option("--stores", type=click.Choice(["1", "3", "5"]), default="1", show_default=True,
              help="Servers that store persistent topics at each broker's site.")  # fmt: skip
@click.option(
    "--tls/--no-tls", default=None, help="TLS on every connection [default: [tls] of trimtab.toml, else off]."
)
@click.option("--executors", type=click.IntRange(1, 1024), default=16, show_default=True, help="Moves at a time.")
@click.option("--app", type=click.Path(dir_okay=False), help="Manifest of an application, whose pipeline is run, too.")
@click.option("--controllers", type=click.IntRange(0, 8), default=1, show_default=True,
              help="Number of controllers, all but one as standbys. They need --app or --measure.")  # fmt: skip
@click.option("--measure", is_flag=True, help="Run Spark to measure the fleet, also without an application.")
@home_option
@output.json_option
@packed("size", Size)
def up(size: Size, tls: bool | None, app: str | None, measure: bool, home: str | None, as_json: bool) -> None:
    """Start a hub and a number of brokers on free loopback ports, until Ctrl-C.

    Credentials, stored messages and the registry are kept in the fleet's folder, readable by its owner only. The next
    start uses them again.
    """
    tasks.run(_up(home_of(home), size, tls, app, measure, as_json))


async def _up(home: Path, size: Size, tls: bool | None, app: str | None, measure: bool, as_json: bool) -> None:
    from trimtab.config import load
    from trimtab.fleet.site.launch import Launch

    spark = measure or app is not None
    if spark:
        check_application(Path(app) if app else None)
    config = load()
    chosen = config.tls if tls is None else tls
    names = [f"b{number}" for number in range(1, size.brokers + 1)]
    options: dict[str, Any] = {
        "executors": size.executors,
        "on_restart": report_restart,
        "capacity": config.broker,
        "hub_settings": config.hub,
    }
    async with Launch(home, tls=chosen, **options) as launch:
        launch.network = config.network
        with output.progress(quiet=as_json) as bar:
            step = bar.add_task("starting", total=size.brokers + 2 + spark)
            await launch.start_hub()
            bar.advance(step)
            for name in names:
                await launch.start_broker(name, stores=int(size.stores))
                bar.advance(step)
            await launch.ready(names)
            if spark:
                bar.update(step, description="starting Spark")
                await launch.start_pipeline(Path(app) if app else None, config.spark)
        for number in range(size.controllers):
            launch.start_controller(f"controller-{number + 1}", settings=asdict(config.control))
        await launch.serve_hosts()
        stopped = stop_signal()
        show(launch, as_json)
        await stopped()


def check_application(path: Path | None) -> None:
    """Check before the start that the manifest, if there is one, is valid, and that there is a Java."""
    from trimtab.pipeline.java import java_home
    from trimtab.pipeline.manifest import load as load_manifest
    from trimtab.pipeline.plan import compile_channels

    if path is not None:
        compile_channels(load_manifest(path))
    java_home()


def stop_signal() -> Callable[[], Awaitable[None]]:
    """A function that waits for SIGINT or SIGTERM.

    Signals are caught from this call on, since the process may be stopped as soon as it reports that it is up.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    async def stopped() -> None:
        await stop.wait()
        click.echo("stopping", err=True)

    return stopped


def report_restart(child: Child) -> None:
    click.echo(f"{child.name} ended and is started again ({child.log})", err=True)


def show(launch: Launch, as_json: bool) -> None:
    """Print the addresses and process ids of the fleet."""
    if as_json:
        sites = {name: {"urls": site.urls, "mqtt": str(site.mqtt)} for name, site in launch.sites.items()}
        output.print_json({"home": str(launch.home), "hub": launch.fleet.hub, "brokers": sites})
        return
    pids = {child.name: str(child.pid) for child in launch.supervisor.children}
    # The hub is a child of this process under `trimtab up`; a broker that joins has only its address.
    rows = [("hub", launch.fleet.hub, "", pids["hub"])] if "hub" in pids else []
    rows += [(name, site.urls[0], str(site.mqtt), pids[name]) for name, site in launch.sites.items()]
    title = (
        f"the fleet in {launch.home} is up" if "hub" in pids else f"joined the fleet of the hub at {launch.fleet.hub}"
    )
    output.print_table(
        title, ["name", "clients", "MQTT", "server's pid"], rows,
        note=f"applications: trimtab.connect({str(launch.home)!r}); stop with Ctrl-C",
    )  # fmt: skip
