"""What the commands that talk to a running fleet share."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trimtab.fleet.protocol import wire
from trimtab.fleet.sdk.client_file import DEFAULT_HOME, HOME_VARIABLE, fleet_home
from trimtab.fleet.site.credentials import FLEET_FILE, Fleet
from trimtab.fleet.site.launch import admin_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    T = TypeVar("T")
    Ask = Callable[..., Coroutine[Any, Any, dict[str, Any]]]  # subject, question, and seconds to wait

home_option = click.option(
    "--home",
    type=click.Path(file_okay=False),
    help=f"The fleet's folder [default: ${HOME_VARIABLE}, else {DEFAULT_HOME}].",
)


def home_of(home: str | None) -> Path:
    return Path(home) if home else fleet_home()


def with_fleet(home: str | None, work: Callable[[Ask], Coroutine[Any, Any, T]]) -> T:
    """Run ``work(ask)``, where ``ask(subject, question)`` asks the keeper of the fleet in ``home``."""

    async def run() -> T:
        connection = await admin_connection(Fleet.load(home_of(home) / FLEET_FILE))
        try:
            return await work(lambda subject, question, wait_s=10.0: wire.ask(connection, subject, question, wait_s))
        finally:
            await connection.close()

    return asyncio.run(run())


def state(home: str | None, kind: str) -> dict[str, Any]:
    """The registry's entries of a kind, with the newest reports."""
    return with_fleet(home, lambda ask: ask("admin.state", {"kind": kind, "reports": True}))
