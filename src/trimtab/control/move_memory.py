"""The history of moves: how many more keys may move, and which keys must stay for a while."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trimtab.control.memory import MovedKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trimtab.control.settings import Settings
    from trimtab.control.view import View
    from trimtab.fleet.protocol.plans import Step
    from trimtab.model.key import Key

FORGET: Final = 16  # a move is forgotten after this many ``cool_s``


@dataclass(slots=True)
class MoveMemory:
    settings: Settings
    _recent: deque[float] = field(default_factory=deque)  # times of moves
    _moved: dict[Key, MovedKey] = field(default_factory=dict)  # the oldest first
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
                times = record.times + 1 if record is not None and again else 1
                self._moved[step.key] = MovedKey(*step.key, times, now, step.target)

    def ordered(self, step: Step) -> None:
        """A plan has begun this move: from now on the key may be seen at its target."""
        self._targets[step.key] = step.target

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

    def stored(self, now: float) -> tuple[list[MovedKey], list[float]]:
        """The keys that plans have moved, and the times of moves within the budget's window."""
        return list(self._moved.values()), [at for at in list(self._recent) if at > now - self.settings.budget_s]

    def restore(self, moved: Iterable[MovedKey], recent: Iterable[float]) -> None:
        self._moved = {record.key: record for record in moved}
        self._recent = deque(recent)
