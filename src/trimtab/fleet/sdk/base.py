"""Where a client asks its questions and hears the news: a connection to its home, wherever that is."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client as Nats

    from trimtab.fleet.sdk.wires import Wire

    Heard = Callable[[Any], Awaitable[None]]


class Base:
    """What is heard here goes along when the base changes."""

    def __init__(self) -> None:
        self._wire: Wire | None = None
        self._ears: dict[str, tuple[Heard, Any]] = {}  # subject -> callback, subscription

    @property
    def wire(self) -> Wire:
        assert self._wire is not None, "a client is used inside async with"
        return self._wire

    @property
    def nats(self) -> Nats:
        return self.wire.nats

    async def settle(self, wire: Wire) -> None:
        """From now on it is there."""
        self._wire = wire
        for subject, (heard, _) in list(self._ears.items()):
            await self.hear(subject, heard)

    async def hear(self, subject: str, heard: Heard) -> None:
        self._ears[subject] = (heard, await self.nats.subscribe(subject, cb=heard))

    async def stop_hearing(self, subject: str) -> None:
        _, subscription = self._ears.pop(subject, (None, None))
        if subscription is not None:
            with contextlib.suppress(Exception):  # it may have ended with its connection
                await subscription.unsubscribe()
