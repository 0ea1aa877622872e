"""``trimtab controller``: keeps a running fleet in balance."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from trimtab.cli.fleet import home_of, home_option
from trimtab.fleet import tasks

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.control.settings import Settings


@click.command()
@click.option("--policy", help="Of the family client [default: [control] of trimtab.toml, else trim].")
@click.option("--period", type=click.FloatRange(min=0.5), metavar="S", help="Seconds between looks [default: 5].")
@click.option("--paused", is_flag=True, help="Only look and say, until trimtab resume; unless it was paused already.")
@home_option
def controller(policy: str | None, period: float | None, paused: bool, home: str | None) -> None:
    """Watch the fleet of --home and move clients when it is out of balance, until Ctrl-C.

    It plans on what the pipeline measures (trimtab pipeline). A second one stands by, and takes over should the first
    one be gone. Its settings are under [control] of trimtab.toml.
    """
    from trimtab.config import load

    settings = load().control
    settings = replace(settings, policy=policy or settings.policy, period_s=period or settings.period_s)
    tasks.run(_run(home_of(home), settings, paused))


async def _run(home: Path, settings: Settings, paused: bool) -> None:
    from trimtab.control.controller import Controller
    from trimtab.fleet.site.credentials import FLEET_FILE, Fleet
    from trimtab.fleet.site.launch import admin_connection

    connection = await admin_connection(Fleet.load(home / FLEET_FILE))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await tasks.run_until(stop, Controller(connection, settings, _say, paused=paused).run())
    finally:
        await connection.close()


def _say(sentence: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {sentence}")
