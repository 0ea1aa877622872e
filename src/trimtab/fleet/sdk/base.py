"""A client's base connection, for requests and notifications: to its home, or to another broker after a failover."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from trimtab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client as Nats

    from trimtab.fleet.sdk.wires import Wire

    OnMessage = Callable[[Any], Awaitable[None]]


class Base:
    """The base connection. Its subscriptions are made again when the connection changes."""

    def __init__(self, client: str) -> None:
        self.usable = False  # whether the client is inside its ``async with``
        self._client = client
        self._wire: Wire | None = None
        self._callbacks: dict[str, tuple[OnMessage, Any]] = {}  # subject -> callback, subscription

    @property
    def wire(self) -> Wire:
        if self._wire is None or not self.usable:
            self.check_usable()
        assert self._wire is not None
        return self._wire

    @property
    def nats(self) -> Nats:
        return self.wire.nats

    def check_new(self) -> None:
        """Refuse a client that was entered before."""
        if self._wire is not None:
            raise BadInput(f"client '{self._client}' has been entered before; trimtab.connect makes another one")

    def check_usable(self) -> None:
        if not self.usable:
            when = "before it was entered" if self._wire is None else "after it was closed"
            raise BadInput(f"client '{self._client}' was used {when}; use it inside async with")

    def close(self) -> None:
        """Refuse all further use."""
        self.usable = False

    async def settle(self, wire: Wire) -> None:
        """Use this connection from now on, and subscribe again over it."""
        self._wire = wire
        self.usable = True
        for subject, (callback, _) in list(self._callbacks.items()):
            await self.subscribe(subject, callback)

    async def subscribe(self, subject: str, callback: OnMessage) -> None:
        self._callbacks[subject] = (callback, await self.nats.subscribe(subject, cb=callback))

    async def unsubscribe(self, subject: str) -> None:
        _, subscription = self._callbacks.pop(subject, (None, None))
        if subscription is not None:
            with contextlib.suppress(Exception):  # the subscription may have ended with its connection
                await subscription.unsubscribe()
