"""The history of moves: how many more keys may move, and which keys must stay for a while."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trimtab.model.key import Key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trimtab.control.plan import Step
    from trimtab.control.settings import Settings
    from trimtab.control.view import View

FORGET: Final = 16  # a move is forgotten after this many ``cool_s``


@dataclass(frozen=True, slots=True)
class _Moved:
    """A key that a plan has moved."""

    times: int  # moves in a row
    last: float  # time of the last move
    to: str


@dataclass(slots=True)
class MoveMemory:
    settings: Settings
    _recent: deque[float] = field(default_factory=deque)  # times of moves
    _moved: dict[Key, _Moved] = field(default_factory=dict)  # the oldest first
    _targets: dict[Key, str] = field(default_factory=dict)  # target of the last planned move of each key
    _last_brokers: Mapping[Key, str] = field(default_factory=dict)  # brokers of keys at the last look

    def moved(self, now: float, steps: Iterable[Step]) -> None:
        """These steps were carried out. The move of a key without a broker does not count: the key had to move."""
        for step in steps:
            self._targets[step.key] = step.target
            if step.source:
                self._recent.append(now)
                record = self._moved.pop(step.key, None)
                again = record is not None and record.to == step.source and now - record.last <= self._forget_s
                self._moved[step.key] = _Moved(record.times + 1 if record and again else 1, now, step.target)

    def used(self, now: float) -> int:
        """Moves within the last ``budget_s``."""
        while self._recent and self._recent[0] <= now - self.settings.budget_s:
            self._recent.popleft()
        return len(self._recent)

    def allowed(self, now: float, keys: int) -> int:
        """Moves that the budget still allows."""
        return max(0, math.ceil(self.settings.budget * keys) - self.used(now))

    def frozen(self, now: float, view: View) -> tuple[Key, ...]:
        """Keys that moved recently and are still at their target."""
        return tuple(key for key in view.keys if self._is_frozen(key, view, now))

    def _is_frozen(self, key: Key, view: View, now: float) -> bool:
        record = self._moved.get(key)
        if record is None or view.broker_of(key) != record.to:
            return False
        return bool(now < record.last + self.settings.cool_s * 2 ** (record.times - 1))

    def look(self, now: float, brokers: Mapping[Key, str]) -> bool:
        """Whether a key has moved since the last look without a plan having ordered it."""
        before = self._last_brokers
        moved_by_hand = any(
            before.get(key, broker) != broker != self._targets.get(key) for key, broker in brokers.items()
        )
        self._last_brokers = brokers
        if len(self._targets) > 2 * len(brokers):  # keys that are gone for good
            self._targets = {key: to for key, to in self._targets.items() if key in brokers}
        oldest = now - self._forget_s
        if self._moved and next(iter(self._moved.values())).last < oldest:
            self._moved = {key: record for key, record in self._moved.items() if record.last >= oldest}
        return moved_by_hand

    @property
    def _forget_s(self) -> float:
        return FORGET * self.settings.cool_s

    def clear(self) -> None:
        """Every key may move again."""
        self._moved.clear()

    def as_json(self, now: float) -> dict[str, Any]:
        return {
            "moved": [[*key, record.times, record.last, record.to] for key, record in self._moved.items()],
            "recent": [at for at in self._recent if at > now - self.settings.budget_s],
        }

    def restore(self, values: dict[str, Any]) -> None:
        self._moved = {Key(*row[:3]): _Moved(*row[3:]) for row in values.get("moved", ())}
        self._recent = deque(values.get("recent", ()))
