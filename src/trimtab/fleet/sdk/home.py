"""A client's home broker: changes of the home, failover to another broker, and the return."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import TYPE_CHECKING, Any, Final

import nats.errors

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet.protocol import names
from trimtab.fleet.protocol.agent_verbs import RefuseMove
from trimtab.fleet.sdk.wires import CONNECT_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.fleet.sdk.base import Base
    from trimtab.fleet.sdk.channels import ChannelClient
    from trimtab.fleet.sdk.routes import Routes
    from trimtab.fleet.sdk.wires import Wire, Wires

log = logging.getLogger("trimtab.client")
REFUGE_S: Final = 0.3  # limit for connecting to one of the other brokers


class Home:
    """The client's home. One change at a time: each finds the connection that the previous one has made.

    ``start`` runs a coroutine as a background task.
    """

    def __init__(
        self,
        client: str,
        wires: Wires,
        base: Base,
        routes: Routes,
        channels: ChannelClient,
        start: Callable[[Any], asyncio.Task[Any]],
    ) -> None:
        self.broker = ""
        self._client = client
        self._wires = wires
        self._base = base
        self._routes = routes
        self._channels = channels
        self._start = start
        self._use: object = None  # the user of the base connection, which stays open while it has users
        self._changing = asyncio.Lock()

    @property
    def changing(self) -> bool:
        return self._changing.locked()

    async def enter(self, first: Wire, home: str) -> None:
        """Connect to the home, over the ``first`` connection if it leads there or the home is unreachable."""
        self.broker, self._use = home, object()
        first.users.add(self._use)
        if home != first.broker:
            with contextlib.suppress(Unreachable):  # any agent answers requests
                better = await self._wires.to(home, self._use)
                await self._wires.let_go(first, self._use)
                first = better
        await self._base.settle(first, ())

    async def change(self, home: str) -> None:
        """Change to another home, or return to the home. If it is unreachable, the connection stays as it is."""
        async with self._changing:
            old = self._base.wire
            if home == self.broker == old.broker and old.nats.is_connected:
                return
            try:
                if home not in self._wires.addresses:
                    await self._routes.learn()
                await self._go(home)
                self.broker = home
            except (BadInput, nats.errors.Error, OSError) as error:
                reason = f"client '{self._client}' cannot reach '{home}': {error}"
                await old.tell(RefuseMove(self._client, "", reason))

    async def take_refuge(self) -> None:
        """Fail over to another broker until the home is back or the client is given another home."""
        async with self._changing:
            if self._base.nats.is_connected:
                return
            away = self._base.wire.broker
            others = [broker for broker in self._wires.addresses if broker != away]
            random.shuffle(others)  # spreads the clients of the lost broker over the others
            for broker in others:
                with contextlib.suppress(BadInput, nats.errors.Error, OSError):
                    await self._go(broker, REFUGE_S)
                    log.info("client %s: %s is away; served by %s meanwhile", self._client, away, broker)
                    return

    async def mend(self) -> None:
        """Connect to the home again if the base connection is lost for good."""
        if self._changing.locked() or not self._wires.is_gone(self._base.wire):
            return
        async with self._changing:
            try:
                await self._go(self.broker)
            except (BadInput, nats.errors.Error, OSError) as error:  # tried again at the next report
                level = logging.DEBUG if isinstance(error, Unreachable) else logging.WARNING
                log.log(level, "client %s: home %s: %r", self._client, self.broker, error)

    async def _go(self, broker: str, wait_s: float = CONNECT_S) -> None:
        """Make the connection to a broker the base connection. If that fails, nothing has changed."""
        old, left, use = self._base.wire, self._use, object()
        new = await self._wires.to(broker, use, wait_s)
        ended: asyncio.Task[None] | None = None
        try:
            if new is not old:
                if not new.nats.is_connected:
                    raise Unreachable(f"'{broker}' does not answer")
                ended = await self._base.settle(new, [names.HUB, *self._wires.addresses])
        except BaseException:
            await self._wires.let_go(new, use)
            raise
        self._use = use
        # Not awaited: these wait for callbacks, and the next change must not.
        if ended is not None and self._channels:
            self._start(self._channels.recover())
        self._start(self._leave(old, left, broker, ended))

    async def _leave(self, old: Wire, use: object, broker: str, ended: asyncio.Task[None] | None) -> None:
        """Move the routes of topics placed by client to the broker, and leave the previous base connection."""
        try:
            await self._routes.follow_home(broker)
            if ended is not None:
                await ended
        finally:
            await self._wires.let_go(old, use)
