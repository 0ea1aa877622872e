"""A client's base connection, for requests and notifications: to its home, or to another broker after a failover."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import nats.errors

from trimtab.errors import BadInput
from trimtab.fleet.protocol import wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nats.aio.client import Client as Nats
    from nats.aio.subscription import Subscription as NatsSubscription

    from trimtab.fleet.sdk.wires import Wire

    OnMessage = Callable[[Any], Awaitable[None]]

CONFIRM_S: Final = 5.0  # limit for a broker's confirmation of the subscriptions over a new base connection


@dataclass(slots=True, eq=False)
class BaseSubscription:
    """A subscription over the base connection, made again when the connection changes."""

    subject: str
    receive: OnMessage
    current: NatsSubscription


class Base:
    """The base connection. Its subscriptions are made again when the connection changes, and then ended at the old one.

    ``start`` runs a coroutine as a background task.
    """

    def __init__(self, client: str, start: Callable[[Any], asyncio.Task[Any]]) -> None:
        self.usable = False  # whether the client is inside its ``async with``
        self.unfinished = 0  # changes of the connection whose old subscriptions have not ended
        self.changes = 0  # changes of the connection that are finished
        self._client = client
        self._start = start
        self._wire: Wire | None = None
        self._subscriptions: dict[BaseSubscription, None] = {}  # in the order in which they were made
        self._changing = asyncio.Lock()  # held while a subscription or the connection changes

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

    async def settle(self, new: Wire, servers: Sequence[str]) -> asyncio.Task[None]:
        """Subscribe again over this connection, and use it from now on. If that fails, nothing has changed.

        Messages come over both connections until the returned task is done. It asks the ``servers`` that publish them
        to confirm that they know the new subscriptions, and then ends those at the old connection.
        """
        async with self._changing:
            renewed: dict[BaseSubscription, NatsSubscription] = {}
            try:
                for subscription in self._subscriptions:
                    renewed[subscription] = await new.nats.subscribe(subscription.subject, cb=subscription.receive)
                if renewed:
                    await wire.ping(new.nats, CONFIRM_S)
            except BaseException:
                self._start(self._end(list(renewed.values())))
                raise
            old, self._wire, self.usable = self._wire, new, True
            ended = [subscription.current for subscription in renewed]
            for subscription, current in renewed.items():
                subscription.current = current
            self.unfinished += 1
        leaving = self._start(self._leave(old, new, ended, servers))
        leaving.add_done_callback(self._finished)
        return leaving

    async def _leave(self, old: Wire | None, new: Wire, ended: list[NatsSubscription], servers: Sequence[str]) -> None:
        if old is not None and ended:
            # Without the old connection, the answers over the new one show when the servers know of it.
            over = old if old.nats.is_connected else new
            with contextlib.suppress(nats.errors.Error, OSError):  # the new connection is lost as well
                await over.emptied(new, servers)
            await wire.unsubscribe(ended)
            self._start(wire.handled(ended))

    def _finished(self, _: object) -> None:
        self.unfinished -= 1
        self.changes += 1

    async def subscribe(self, subject: str, receive: OnMessage) -> BaseSubscription:
        async with self._changing:
            subscription = BaseSubscription(subject, receive, await self.nats.subscribe(subject, cb=receive))
            self._subscriptions[subscription] = None
            return subscription

    async def unsubscribe(self, subscription: BaseSubscription) -> None:
        """End a subscription in the background; messages that have arrived are still handled."""
        async with self._changing:
            if subscription in self._subscriptions:
                del self._subscriptions[subscription]
                self._start(self._end([subscription.current]))

    async def _end(self, subscriptions: list[NatsSubscription]) -> None:
        await wire.unsubscribe(subscriptions)
        await wire.handled(subscriptions)
