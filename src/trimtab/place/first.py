"""First placements: the broker of a client or a topic that has come just now, before anything is known of its traffic.

``nearest``, ``round-robin`` and ``random`` are the initial placements of Nguyen (DEBS'19, 5.1: NR, RR, RND);
``roomiest`` takes the broker that carries least for its strength.
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
SHOWS_S: Final = 10.0  # after which the traffic of a newcomer is part of its broker's load


@dataclass(frozen=True, slots=True)
class Candidate:
    """A broker that takes newcomers."""

    name: str
    load: float = 0.0  # bytes/s in and out
    strength: float = 1.0  # its bandwidth, or any other measure that all have
    keys: int = 0  # clients, topics and links that it has
    position: tuple[float, float] | None = None  # latitude and longitude


@dataclass(slots=True)
class FirstPlacement:
    """Remembers whom it has placed lately, since their traffic does not show yet."""

    rule: str = "roomiest"
    seed: int = 0
    _turn: int = 0
    _recent: deque[tuple[float, str]] = field(default_factory=deque)  # when, and where; the oldest first
    _lately: Counter[str] = field(default_factory=Counter)  # the same, counted by broker
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
        chosen = self._by_rule(sorted(candidates, key=lambda each: each.name), position)
        self._recent.append((now, chosen))
        self._lately[chosen] += 1
        return chosen

    def _by_rule(self, candidates: list[Candidate], position: tuple[float, float] | None) -> str:
        if self.rule == "round-robin":
            self._turn += 1
            return candidates[(self._turn - 1) % len(candidates)].name
        if self.rule == "random":
            return self._random.choice(candidates).name
        if self.rule == "nearest" and position is not None and all(each.position for each in candidates):
            return _nearest(candidates, position)
        return self._roomiest(candidates)

    def _roomiest(self, candidates: list[Candidate]) -> str:
        """One that came lately counts as much as a key does on average."""
        keys = sum(each.keys for each in candidates)
        average = max(sum(each.load for each in candidates) / max(keys, 1), 1.0)

        def level(each: Candidate) -> tuple[float, int, str]:
            load = each.load + average * self._lately[each.name]
            return load / max(each.strength, 1e-9), each.keys, each.name

        return min(candidates, key=level).name


def _nearest(candidates: list[Candidate], position: tuple[float, float]) -> str:
    import numpy as np  # not for a hub that goes by another rule

    from trimtab.model.positions import km_between, on_sphere

    places = np.array([each.position for each in candidates], float)
    here = np.array([position], float)
    distance = km_between(on_sphere(here[:, 0], here[:, 1]), on_sphere(places[:, 0], places[:, 1]))
    return candidates[int(distance[0].argmin())].name
