"""Clients that stay away: they are removed, so that the registry and the subscriptions do not grow without limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trimtab.fleet.hub.settings import HubSettings
    from trimtab.fleet.protocol.entries import ClientEntry


class Absent:
    """When each client was last seen, on the monotonic clock.

    A restarted keeper starts from scratch, so no client is removed too early.
    """

    def __init__(self, settings: HubSettings) -> None:
        self._settings = settings
        self._seen: dict[str, float] = {}

    def there(self, clients: Iterable[str], now: float) -> None:
        for name in clients:
            self._seen[name] = now

    def overdue(self, clients: Mapping[str, ClientEntry], alive: Iterable[str], now: float) -> list[str]:
        """Clients to be removed. A client whose home is not alive counts as present, because it cannot be observed."""
        up = set(alive)
        seen = {name: self._seen.get(name, now) if entry.home in up else now for name, entry in clients.items()}
        self._seen = seen
        limits = {True: self._settings.forget_s, False: self._settings.forget_unnamed_s}
        return [name for name, entry in clients.items() if now - seen[name] > limits[entry.returns]]
