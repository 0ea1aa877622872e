"""The process of a controller: ``python -m trimtab.control.process SETTINGS.json``, or ``trimtab controller``."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

from trimtab.control.controller import Controller
from trimtab.control.settings import Settings
from trimtab.fleet import tasks
from trimtab.fleet.protocol import wire
from trimtab.fleet.site.credentials import FLEET_FILE, Fleet
from trimtab.fleet.site.launch import admin_connection
from trimtab.fleet.site.processes import ControllerProcess, begin


def run(process: ControllerProcess) -> None:
    """Run until SIGINT or SIGTERM; prints a line whenever the status changes."""
    from trimtab.config import load

    settings = load().control if process.settings is None else Settings(**process.settings)
    tasks.run(_run(Path(process.home), settings, process.paused))


async def _run(home: Path, settings: Settings, paused: bool) -> None:
    connection = await admin_connection(Fleet.load(home / FLEET_FILE))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await tasks.run_until(stop, Controller(connection, settings, _print_status, paused=paused).run())
    finally:
        await wire.close(connection)


def _print_status(sentence: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {sentence}", flush=True)


if __name__ == "__main__":
    begin(ControllerProcess, run)
