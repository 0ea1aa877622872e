"""Which brokers are alive: those whose agents have called recently, by the time during which the keeper could receive.

A keeper that was suspended, or whose server hung, has received no calls, and this says nothing about the brokers. So
time counts only while the keeper can receive messages. Otherwise the first broker to call after such a pause would
be the only one alive, and all clients would be sent to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

ALIVE_S: Final = 3.5  # time without a call after which a broker counts as dead
GONE_S: Final = 1.0  # the same for a broker whose server is not connected to the hub's server either
TICK_S: Final = 0.25  # interval of the check whether the keeper can receive messages
DEAF_S: Final = 2.0  # time between two checks that shows that the keeper was suspended


@dataclass(slots=True)
class Presence:
    """Tracks the brokers' calls. The keeper calls ``tick`` regularly with the time, and ``called`` at every call."""

    _at: float  # time of the last tick
    _listened: float = 0.0  # total seconds during which the keeper could receive
    _deaf: bool = False
    _heard: dict[str, float] = field(default_factory=dict)  # broker -> ``_listened`` at its last call
    _connected: dict[str, float] = field(default_factory=dict)  # broker -> ``_listened`` when last connected

    def tick(self, now: float, *, hears: bool, connected: Collection[str] | None = None) -> None:
        """``hears``: whether a message to the hub's server and back has just arrived.

        ``connected``: brokers whose servers are connected to the hub's server; None if unknown.
        """
        away = not hears or now - self._at > DEAF_S
        if away and not self._deaf:  # brokers that were alive get the full time to call again
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
        """Whether the keeper has received long enough for every live broker to have called."""
        return self._listened >= ALIVE_S

    def heard(self) -> list[str]:
        return sorted(self._recent())

    def alive(self, brokers: Iterable[str]) -> list[str]:
        """The live ones of these brokers; until ``sure``, also those that have not called yet."""
        recent = set(self._recent())
        return sorted(name for name in brokers if name in recent or (not self.sure and name not in self._heard))

    def _recent(self) -> list[str]:
        return [name for name, at in self._heard.items() if self._listened - at < self._patience(name)]

    def _patience(self, broker: str) -> float:
        """Time without a call after which a broker counts as dead; shorter if its server has disconnected too."""
        gone_s = self._listened - self._connected.get(broker, self._listened)
        return GONE_S if gone_s >= GONE_S else ALIVE_S
