"""Clients that do not come back: they are forgotten, or the registry and the subscriptions would grow for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trimtab.fleet.hub.settings import HubSettings
    from trimtab.fleet.protocol.entries import ClientEntry


class Absent:
    """Who is away since when, on the monotonic clock. It begins anew with every keeper: nobody is forgotten early."""

    def __init__(self, settings: HubSettings) -> None:
        self._settings = settings
        self._seen: dict[str, float] = {}

    def there(self, clients: Iterable[str], now: float) -> None:
        for name in clients:
            self._seen[name] = now

    def overdue(self, clients: Mapping[str, ClientEntry], alive: Iterable[str], now: float) -> list[str]:
        """Those to be forgotten. While its broker is away, nobody can say whether a client is there."""
        up = set(alive)
        seen = {name: self._seen.get(name, now) if each.home in up else now for name, each in clients.items()}
        self._seen = seen
        limits = {True: self._settings.forget_s, False: self._settings.forget_unnamed_s}
        return [name for name, each in clients.items() if now - seen[name] > limits[each.returns]]
