"""Where clients are in the network, as they report it to the agents of the brokers that they use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from trimtab.fleet.protocol.agent_verbs import FoundPosition, GetPosition
from trimtab.observe.best_brokers import gain_needed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from trimtab.fleet.protocol.request import Handler
    from trimtab.observe.report import ClientPosition, Positions

EXPIRE_S: Final = 16.0  # three reports


class ClientPositions:
    """The newest position of each client that reports here. Times are those of the event loop."""

    def __init__(self) -> None:
        self.refused = 0  # positions at brokers that do not exist, or with impossible times
        self._by_client: dict[str, tuple[ClientPosition, float]] = {}
        self._moved: set[str] = set()

    def handlers(self) -> list[Handler]:
        return [GetPosition.answered_by(self._find)]

    async def _find(self, request: GetPosition) -> FoundPosition:
        return FoundPosition(self.get(request.client))

    def update(self, client: str, position: ClientPosition, brokers: Collection[str]) -> None:
        cleaned = position.cleaned(brokers)
        if cleaned is not position:
            self.refused += 1
        if cleaned is not None:
            if not _same(self.get(client), cleaned):
                self._moved.add(client)
            self._by_client[client] = cleaned, asyncio.get_running_loop().time()

    def take_moved(self) -> set[str]:
        """Clients whose position has changed since the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def get(self, client: str) -> ClientPosition | None:
        known = self._by_client.get(client)
        return None if known is None else known[0]

    def expire(self) -> None:
        limit = asyncio.get_running_loop().time() - EXPIRE_S
        for client in [client for client, (_, at) in self._by_client.items() if at < limit]:
            del self._by_client[client]

    def of(self, clients: Iterable[str]) -> Positions:
        """The positions of these clients, of those that have reported one."""
        return {client: self._by_client[client][0] for client in clients if client in self._by_client}


def _same(one: ClientPosition | None, other: ClientPosition) -> bool:
    """Whether a position is the same but for changes of times that are worth no move."""
    if one is None or (one.gateway, one.rtts.keys()) != (other.gateway, other.rtts.keys()):
        return False
    times = [(one.access_ms, other.access_ms), *((one.rtts[name], other.rtts[name]) for name in one.rtts)]
    return all(abs(before - now) <= gain_needed(before) for before, now in times)
