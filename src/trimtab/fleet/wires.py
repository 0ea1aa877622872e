"""A client's connections: one per broker it has a route to, opened when needed, closed when nobody uses it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trimtab.errors import Unreachable
from trimtab.fleet import wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from nats.aio.client import Client as Nats

log = logging.getLogger("trimtab.client")
CONNECT_S: Final = 3.0
PROBE_AGAIN_S: Final = 0.25
PROBE_S: Final = 2.0  # a server that has not answered by then is taken to be gone


@dataclass(slots=True, eq=False)
class Wire:
    """One connection."""

    broker: str
    nats: Nats
    urls: list[str] = field(default_factory=list)  # where the broker was when this was made
    users: set[object] = field(default_factory=set)
    _inbox: str = ""
    _markers: dict[str, set[str]] = field(default_factory=dict)  # marker -> servers still to be heard of
    _heard: dict[str, asyncio.Event] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def open(self) -> None:
        self._inbox = self.nats.new_inbox()
        await self.nats.subscribe(f"{self._inbox}.*", cb=self._on_marker)

    async def _on_marker(self, message: object) -> None:
        subject, server = message.subject, message.data.decode()  # type: ignore[attr-defined]
        waiting = self._markers.get(subject)
        if waiting is not None:
            waiting.discard(server)
            if not waiting:
                self._heard[subject].set()

    async def emptied(self, new: Wire, servers: Iterable[str]) -> bool:
        """Until whatever was sent over this wire before ``new`` took over has arrived; see ``Agent._probe``."""
        subject = f"{self._inbox}.{next(self._numbers)}"
        self._markers[subject] = set(servers)
        self._heard[subject] = heard = asyncio.Event()
        try:
            for _ in range(int(PROBE_S / PROBE_AGAIN_S)):
                await new.nats.publish("ask.all.probe", subject.encode())
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(heard.wait(), PROBE_AGAIN_S)
                    return True
            log.debug("%s: no sign of %s", self.broker, self._markers[subject])
            return False
        finally:
            del self._markers[subject], self._heard[subject]


class Wires:
    """The connections of one client by broker."""

    def __init__(
        self, client: str, user: str, password: str, ca: str | None, on_error: Callable[[Exception], Awaitable[None]]
    ) -> None:
        self._client = client
        self._login = (user, password, ca)
        self._on_error = on_error
        self._open: dict[str, Wire] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def first(self, urls: list[str]) -> Wire:
        """To whichever of the brokers answers first in the list."""
        nats = await self._connect(urls)
        reached = nats.connected_url
        new = Wire(wire.server_name(nats), nats, [reached.geturl()] if reached else [])
        await new.open()
        self._open[new.broker] = new
        return new

    async def to(self, broker: str, urls: list[str], user: object, wait_s: float = CONNECT_S) -> Wire:
        """The connection to ``broker``, made if need be; ``user`` keeps it open until it lets go."""
        async with self._opening.setdefault(broker, asyncio.Lock()):
            known = self._open.get(broker)
            if known is None or known.nats.is_closed or (urls != known.urls and not known.nats.is_connected):
                if not urls:
                    raise Unreachable(f"no address of broker '{broker}' is known")
                if known is not None:
                    await wire.close(known.nats)
                known = Wire(broker, await self._connect(urls, wait_s), urls)
                await known.open()
                self._open[broker] = known
            known.users.add(user)
            return known

    def get(self, broker: str) -> Wire | None:
        """The connection to ``broker``, if there is one."""
        return self._open.get(broker)

    async def _connect(self, urls: list[str], wait_s: float = CONNECT_S) -> Nats:
        user, password, ca = self._login
        name = f"trimtab:{self._client}"
        return await wire.connect(urls, user, password, name=name, ca=ca, wait_s=wait_s, on_error=self._on_error)

    async def let_go(self, old: Wire, user: object) -> None:
        old.users.discard(user)
        async with self._opening.setdefault(old.broker, asyncio.Lock()):
            if not old.users and self._open.get(old.broker) is old:
                del self._open[old.broker]
                await _close(old)

    async def close(self) -> None:
        for each in list(self._open.values()):
            await _close(each)
        self._open.clear()

    def __iter__(self) -> Iterator[Wire]:
        return iter(list(self._open.values()))


async def _close(old: Wire) -> None:
    with contextlib.suppress(Exception):  # a broker that is gone cannot be left politely
        if old.nats.is_connected:
            await asyncio.wait_for(old.nats.flush(), 2.0)
    await wire.close(old.nats)
