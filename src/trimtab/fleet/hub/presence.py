"""Which brokers are there: those whose agents have called not long ago, as far as the keeper could have heard them.

A keeper that slept, or whose hub hung, has not heard anybody; that says nothing about the brokers. So time counts only
while it listens. Else the first broker to call after such a pause would be the only one that is there, and everybody
would be sent to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

ALIVE_S: Final = 3.5  # a broker that has not called for so long is away
TICK_S: Final = 0.5  # between two looks whether the keeper can hear
DEAF_S: Final = 2.0  # between two such looks: it must have slept


@dataclass(slots=True)
class Presence:
    """``tick`` twice a second; ``called`` whenever an agent does. No clock in it."""

    _at: float  # of the last tick
    _listened: float = 0.0  # seconds, all in all
    _deaf: bool = False
    _heard: dict[str, float] = field(default_factory=dict)  # broker -> seconds listened when it called last

    def tick(self, now: float, *, hears: bool) -> None:
        """``hears``: a message to the hub and back has just come through."""
        away = not hears or now - self._at > DEAF_S
        if away and not self._deaf:  # whoever was there gets the whole time to call again
            self._heard.update(dict.fromkeys(self._recent(), self._listened))
        elif not away and not self._deaf:
            self._listened += now - self._at
        self._deaf, self._at = not hears, now

    def called(self, broker: str) -> None:
        self._heard[broker] = self._listened

    def forget(self, broker: str) -> None:
        self._heard.pop(broker, None)

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
        return [name for name, at in self._heard.items() if self._listened - at < ALIVE_S]
