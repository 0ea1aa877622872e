"""First placements: the broker of a new client or topic, whose traffic has not been measured yet.

``nearest``, ``round-robin`` and ``random`` are the initial placements of Nguyen (DEBS'19, 5.1: NR, RR, RND).
``roomiest`` is the broker with the least load relative to its strength.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trimtab.errors import UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

RULES: Final = ("roomiest", "nearest", "round-robin", "random")
SHOWS_S: Final = 10.0  # time after which a newcomer's traffic is part of its broker's reported load


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker that takes newcomers."""

    name: str
    load: float = 0.0  # bytes/s in and out
    strength: float = 1.0  # its bandwidth, or another measure that all candidates have
    keys: int = 0  # number of its clients, topics and links
    position: tuple[float, float] | None = None  # latitude and longitude


@dataclass(slots=True)
class FirstPlacement:
    """Chooses brokers by a rule. It remembers its recent choices, whose traffic is not in the loads yet."""

    rule: str = "roomiest"
    seed: int = 0
    _turn: int = 0
    _recent: deque[tuple[float, str]] = field(default_factory=deque)  # time and broker of recent choices, oldest first
    _lately: Counter[str] = field(default_factory=Counter)  # number of recent choices of each broker
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise UnknownName("rule of first placement", self.rule, RULES)
        self._random = random.Random(self.seed)

    def choose(
        self, now: float, candidates: Sequence[Candidate], position: tuple[float, float] | None = None
    ) -> str | None:
        """A broker for a newcomer at that position, if there is any broker."""
        if not candidates:
            return None
        while self._recent and self._recent[0][0] <= now - SHOWS_S:
            self._lately[self._recent.popleft()[1]] -= 1
        chosen = self._by_rule(sorted(candidates, key=lambda candidate: candidate.name), position)
        self._recent.append((now, chosen))
        self._lately[chosen] += 1
        return chosen

    def _by_rule(self, candidates: list[Candidate], position: tuple[float, float] | None) -> str:
        if self.rule == "round-robin":
            self._turn += 1
            return candidates[(self._turn - 1) % len(candidates)].name
        if self.rule == "random":
            return self._random.choice(candidates).name
        if self.rule == "nearest" and position is not None and all(candidate.position for candidate in candidates):
            return _nearest(candidates, position)
        return self._roomiest(candidates)

    def _roomiest(self, candidates: list[Candidate]) -> str:
        """The broker with the lowest level. A recent newcomer counts as much as a key on average."""
        keys = sum(candidate.keys for candidate in candidates)
        average = max(sum(candidate.load for candidate in candidates) / max(keys, 1), 1.0)

        def level(candidate: Candidate) -> tuple[float, int, str]:
            load = candidate.load + average * self._lately[candidate.name]
            return load / max(candidate.strength, 1e-9), candidate.keys, candidate.name

        return min(candidates, key=level).name


def _nearest(candidates: list[Candidate], position: tuple[float, float]) -> str:
    import numpy as np  # imported here, since a hub with another rule does not need it

    from trimtab.model.positions import km_between, on_sphere

    places = np.array([candidate.position for candidate in candidates], float)
    here = np.array([position], float)
    distance = km_between(on_sphere(here[:, 0], here[:, 1]), on_sphere(places[:, 0], places[:, 1]))
    return candidates[int(distance[0].argmin())].name
