"""What the commands that talk to a running fleet share."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from trimtab.fleet.protocol import wire
from trimtab.fleet.sdk.client_file import DEFAULT_HOME, HOME_VARIABLE, fleet_home
from trimtab.fleet.site.credentials import FLEET_FILE, Fleet
from trimtab.fleet.site.launch import admin_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from trimtab.fleet.protocol.request import Request

    T = TypeVar("T")
    R = TypeVar("R")

    class Ask(Protocol):
        """Asks the keeper, or whoever else answers the request."""

        def __call__(self, request: Request[R], wait_s: float = 10.0) -> Coroutine[Any, Any, R]: ...


home_option = click.option(
    "--home",
    type=click.Path(file_okay=False),
    help=f"The fleet's folder [default: ${HOME_VARIABLE}, else {DEFAULT_HOME}].",
)


def home_of(home: str | None) -> Path:
    return Path(home) if home else fleet_home()


def with_fleet(home: str | None, work: Callable[[Ask], Coroutine[Any, Any, T]]) -> T:
    """Run ``work(ask)``, where ``ask(request)`` asks the fleet in ``home``."""

    async def run() -> T:
        connection = await admin_connection(Fleet.load(home_of(home) / FLEET_FILE))

        async def ask(request: Request[R], wait_s: float = 10.0) -> R:
            return await wire.ask(connection, request, wait_s)

        try:
            return await work(ask)
        finally:
            await connection.close()

    return asyncio.run(run())


def answer(home: str | None, request: Request[R], wait_s: float = 10.0) -> R:
    """The reply of the fleet in ``home`` to one request."""
    return with_fleet(home, lambda ask: ask(request, wait_s))
