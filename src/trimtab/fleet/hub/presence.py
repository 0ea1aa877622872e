"""Which brokers are there: those whose agents have called not long ago, as far as the keeper could have heard them.

A keeper that slept, or whose hub hung, has not heard anybody; that says nothing about the brokers. So time counts only
while it listens. Else the first broker to call after such a pause would be the only one that is there, and everybody
would be sent to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

ALIVE_S: Final = 3.5  # a broker that has not called for so long is dead
GONE_S: Final = 1.0  # the same for one whose server is not connected to the hub's server either
TICK_S: Final = 0.25  # between two looks whether the keeper can hear
DEAF_S: Final = 2.0  # between two such looks: it must have slept


@dataclass(slots=True)
class Presence:
    """``tick`` twice a second; ``called`` whenever an agent does. No clock in it."""

    _at: float  # of the last tick
    _listened: float = 0.0  # seconds, all in all
    _deaf: bool = False
    _heard: dict[str, float] = field(default_factory=dict)  # broker -> seconds listened when it called last
    _connected: dict[str, float] = field(default_factory=dict)  # the same, when its server was connected last

    def tick(self, now: float, *, hears: bool, connected: Collection[str] | None = None) -> None:
        """``hears``: a message to the hub and back has just come through. ``connected``: brokers whose servers are
        connected to the hub's server, if that is known."""
        away = not hears or now - self._at > DEAF_S
        if away and not self._deaf:  # whoever was there gets the whole time to call again
            self._heard.update(dict.fromkeys(self._recent(), self._listened))
        elif not away and not self._deaf:
            self._listened += now - self._at
        self._deaf, self._at = not hears, now
        for broker in self._connected if connected is None else connected:
            self._connected[broker] = self._listened

    def called(self, broker: str) -> None:
        self._heard[broker] = self._listened

    def forget(self, broker: str) -> None:
        self._heard.pop(broker, None)
        self._connected.pop(broker, None)

    @property
    def sure(self) -> bool:
        """Whether it has listened so long that whoever is there has called."""
        return self._listened >= ALIVE_S

    def heard(self) -> list[str]:
        return sorted(self._recent())

    def alive(self, known: Iterable[str]) -> list[str]:
        """Those of ``known`` that are there; until it is sure, also those of whom nothing was heard yet."""
        recent = set(self._recent())
        return sorted(name for name in known if name in recent or (not self.sure and name not in self._heard))

    def _recent(self) -> list[str]:
        return [name for name, at in self._heard.items() if self._listened - at < self._patience(name)]

    def _patience(self, broker: str) -> float:
        """Shorter for a broker whose server was connected and is not: it did not merely forget to call."""
        gone_s = self._listened - self._connected.get(broker, self._listened)
        return GONE_S if gone_s >= GONE_S else ALIVE_S
