"""A client's connections: at most one per broker, opened when needed, closed when it has no more users."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import nats.errors

from trimtab.errors import Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.protocol import subjects, wire

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from nats.aio.client import Client as Nats

    from trimtab.fleet.protocol.request import AgentRequest
    from trimtab.fleet.sdk.addresses import Addresses

    R = TypeVar("R")

log = logging.getLogger("trimtab.client")
CONNECT_S: Final = 3.0
FLUSH_S: Final = 2  # limit for one confirmation
LAST_S: Final = 2.0  # limit for the confirmation of the last messages over a connection that is closed
FLUSH_AGAIN_S: Final = 0.05
PROBE_AGAIN_S: Final = 0.25
PING_S: Final = 5.0  # limit for the answer of a broker whose distance is measured
PINGS: Final = 3  # over a connection that is made for a measurement; the quickest counts
PROBE_S: Final = 2.0  # limit for the answers to a probe; a server that has not answered by then counts as dead


@dataclass(slots=True, eq=False)
class Wire:
    """One connection of a client to a broker."""

    client: str
    broker: str
    nats: Nats
    urls: list[str] = field(default_factory=list)  # the broker's addresses when the connection was opened
    users: set[object] = field(default_factory=set)
    _inbox: str = ""
    _markers: dict[str, set[str]] = field(default_factory=dict)  # reply subject of a probe -> servers yet to answer
    _heard: dict[str, asyncio.Event] = field(default_factory=dict)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    async def open(self) -> None:
        self._inbox = self.nats.new_inbox()
        await self.nats.subscribe(f"{self._inbox}.*", cb=self._on_marker)

    async def ask(self, request: AgentRequest[R], timeout_s: float = 5.0) -> R:
        """Send a request to the broker's agent and return the reply."""
        return await wire.ask(self.nats, request, timeout_s, broker=self.broker)

    async def tell(self, request: AgentRequest[Any]) -> None:
        """Send a request to the broker's agent without waiting for a reply; the next report repeats its content."""
        with contextlib.suppress(Exception):
            await wire.tell(self.nats, request, broker=self.broker)

    async def flushed(self) -> bool:
        """Whether the broker confirms that it has all messages that were published over this wire.

        ``nats.flush`` alone does not tell: it returns at once while the connection is lost.
        """
        with contextlib.suppress(nats.errors.Error, OSError):
            await wire.ping(self.nats, FLUSH_S)
            return True
        return False

    async def rtt_ms(self) -> float | None:
        """The time of a PING and its answer; None if another broker's server answers."""
        return 1000.0 * await wire.ping(self.nats, PING_S) if wire.server_name(self.nats) == self.broker else None

    async def _on_marker(self, message: object) -> None:
        subject, server = message.subject, message.data.decode()  # type: ignore[attr-defined]
        waiting = self._markers.get(subject)
        if waiting is not None:
            waiting.discard(server)
            if not waiting:
                self._heard[subject].set()

    async def emptied(self, new: Wire, servers: Iterable[str]) -> bool:
        """Wait until all messages that were routed over this wire before ``new`` took over have arrived.

        Return False if some of the ``servers`` do not answer the probe. ``Agent._probe`` explains the method.
        """
        subject = f"{self._inbox}.{next(self._numbers)}"
        self._markers[subject] = set(servers)
        self._heard[subject] = heard = asyncio.Event()
        try:
            for _ in range(int(PROBE_S / PROBE_AGAIN_S)):
                await new.nats.publish(subjects.PROBE, subject.encode())
                if await tasks.happens(heard, PROBE_AGAIN_S):
                    return True
            log.debug("%s: no sign of %s", self.broker, self._markers[subject])
            return False
        finally:
            del self._markers[subject], self._heard[subject]


class Wires:
    """The connections of one client by broker."""

    def __init__(
        self,
        client: str,
        addresses: Addresses,
        login: tuple[str, str, str | None],
        on_error: Callable[[Exception], Awaitable[None]],
    ) -> None:
        self._client = client
        self.addresses = addresses
        self._login = login  # user, password, authority
        self._on_error = on_error
        self._open: dict[str, Wire] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def first(self, wanted: str | None) -> Wire:
        """Connect to the ``wanted`` broker, or else to any broker that answers."""
        order = sorted(self.addresses, key=lambda broker: broker != wanted)
        urls = [url for broker in order for url in self.addresses[broker]]
        if not urls:
            raise Unreachable("the client file names no broker: start one with trimtab broker")
        nats = await self._connect(urls)
        reached = nats.connected_url
        new = Wire(self._client, wire.server_name(nats), nats, [reached.geturl()] if reached else [])
        await new.open()
        self._open[new.broker] = new
        return new

    async def to(self, broker: str, user: object, wait_s: float = CONNECT_S) -> Wire:
        """The connection to ``broker``, opened if needed. It stays open until ``user`` calls ``let_go``."""
        async with self._opening.setdefault(broker, asyncio.Lock()):
            opened = self._open.get(broker)
            if opened is None or self.is_gone(opened):
                urls = self.addresses[broker]
                if not urls:
                    raise Unreachable(f"no address of broker '{broker}' is known")
                if opened is not None:
                    await wire.close(opened.nats)
                opened = Wire(self._client, broker, await self._connect(urls, wait_s), urls)
                await opened.open()
                self._open[broker] = opened
            opened.users.add(user)
            return opened

    def get(self, broker: str) -> Wire | None:
        """The connection to ``broker``, if there is one."""
        return self._open.get(broker)

    def is_gone(self, opened: Wire) -> bool:
        """Whether a connection is lost for good.

        nats-py closes a connection for good on some errors of a restarting server. A server may also have restarted
        at another address.
        """
        elsewhere = self.addresses[opened.broker] not in ([], opened.urls)
        return opened.nats.is_closed or (elsewhere and not opened.nats.is_connected)

    async def _connect(self, urls: list[str], wait_s: float = CONNECT_S) -> Nats:
        user, password, ca = self._login
        name = f"trimtab:{self._client}"
        return await wire.connect(urls, user, password, name=name, ca=ca, wait_s=wait_s, on_error=self._on_error)

    async def try_rtt_ms(self, broker: str) -> float | None:
        """The round-trip time to a broker over a connection of its own; None if another broker answers there."""
        nats = await self._connect(self.addresses[broker], 0.0)
        try:
            if wire.server_name(nats) != broker:
                return None
            return 1000.0 * min([await wire.ping(nats, PING_S) for _ in range(PINGS)])
        finally:
            await wire.close(nats)

    async def let_go(self, old: Wire, user: object) -> None:
        old.users.discard(user)
        async with self._opening.setdefault(old.broker, asyncio.Lock()):
            if not old.users and self._open.get(old.broker) is old:
                del self._open[old.broker]
                await _close(old)

    async def flush(self) -> None:
        """Wait until the brokers have all messages, also if one is away for a while. A connection that is replaced
        meanwhile is left out."""
        for opened in self:
            while self._open.get(opened.broker) is opened and not await opened.flushed():
                await asyncio.sleep(FLUSH_AGAIN_S)

    async def close(self) -> None:
        for opened in list(self._open.values()):
            await _close(opened)
        self._open.clear()

    def __iter__(self) -> Iterator[Wire]:
        return iter(list(self._open.values()))


async def _close(old: Wire) -> None:
    with contextlib.suppress(Exception):  # the broker may be gone
        await wire.ping(old.nats, LAST_S)
    await wire.close(old.nats)
