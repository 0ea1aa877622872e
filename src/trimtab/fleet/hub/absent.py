"""Clients that do not come back: they are forgotten, or the registry and the subscriptions would grow for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trimtab.errors import BadKnob

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trimtab.fleet.protocol.entries import ClientEntry

LISTED_S: Final = 5.0  # agents list who is there every two seconds; one list may be late
YEARS_S: Final = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client may be away: one that has a name to come back under, and one that has none."""

    forget_s: float = 7 * 86_400.0
    forget_unnamed_s: float = 600.0

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not LISTED_S <= value <= YEARS_S:
                raise BadKnob("hub", name, value, "from five seconds to ten years")


class Absent:
    """Who is away since when, on the monotonic clock. It begins anew with every keeper: nobody is forgotten early."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._seen: dict[str, float] = {}

    def there(self, clients: Iterable[str], now: float) -> None:
        for name in clients:
            self._seen[name] = now

    def overdue(self, clients: Mapping[str, ClientEntry], alive: Iterable[str], now: float) -> list[str]:
        """Those to be forgotten. While its broker is away, nobody can say whether a client is there."""
        up = set(alive)
        seen = {name: self._seen.get(name, now) if each.home in up else now for name, each in clients.items()}
        self._seen = seen
        limits = {True: self._patience.forget_s, False: self._patience.forget_unnamed_s}
        return [name for name, each in clients.items() if now - seen[name] > limits[each.returns]]
