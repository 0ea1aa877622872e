"""Which keys moved when: how many more may move, and which must stay for a while."""

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

FORGET: Final = 16  # times ``cool_s`` after which a move does not count any more


@dataclass(frozen=True, slots=True)
class _Moved:
    """A key that a plan has moved."""

    times: int  # in a row
    last: float  # when
    to: str


@dataclass(slots=True)
class MoveMemory:
    settings: Settings
    _recent: deque[float] = field(default_factory=deque)  # times of moves
    _moved: dict[Key, _Moved] = field(default_factory=dict)  # the oldest first
    _targets: dict[Key, str] = field(default_factory=dict)  # where plans have sent keys
    _seen: Mapping[Key, str] = field(default_factory=dict)  # brokers of keys at the last look

    def moved(self, now: float, steps: Iterable[Step]) -> None:
        """These steps were carried out. A key that had no broker does not count: it had to go somewhere."""
        for step in steps:
            self._targets[step.key] = step.target
            if step.source:
                self._recent.append(now)
                known = self._moved.pop(step.key, None)
                again = known is not None and known.to == step.source and now - known.last <= self._forget_s
                self._moved[step.key] = _Moved(known.times + 1 if known and again else 1, now, step.target)

    def used(self, now: float) -> int:
        """Moves within the last ``budget_s``."""
        while self._recent and self._recent[0] <= now - self.settings.budget_s:
            self._recent.popleft()
        return len(self._recent)

    def allowed(self, now: float, keys: int) -> int:
        """Moves that the budget still allows."""
        return max(0, math.ceil(self.settings.budget * keys) - self.used(now))

    def frozen(self, now: float, view: View) -> tuple[Key, ...]:
        """Keys that moved not long ago and are still where they were put."""
        return tuple(key for key in view.keys if self._is_frozen(key, view, now))

    def _is_frozen(self, key: Key, view: View, now: float) -> bool:
        known = self._moved.get(key)
        if known is None or view.broker_of(key) != known.to:
            return False
        return bool(now < known.last + self.settings.cool_s * 2 ** (known.times - 1))

    def look(self, now: float, brokers: Mapping[Key, str]) -> bool:
        """Whether somebody else has moved a key since the last look."""
        before = self._seen
        others = any(before.get(key, broker) != broker != self._targets.get(key) for key, broker in brokers.items())
        self._seen = brokers
        if len(self._targets) > 2 * len(brokers):  # keys that are gone for good
            self._targets = {key: to for key, to in self._targets.items() if key in brokers}
        oldest = now - self._forget_s
        if self._moved and next(iter(self._moved.values())).last < oldest:
            self._moved = {key: known for key, known in self._moved.items() if known.last >= oldest}
        return others

    @property
    def _forget_s(self) -> float:
        return FORGET * self.settings.cool_s

    def clear(self) -> None:
        """Every key may move again."""
        self._moved.clear()

    def as_json(self, now: float) -> dict[str, Any]:
        return {
            "moved": [[*key, m.times, m.last, m.to] for key, m in self._moved.items()],
            "recent": [at for at in self._recent if at > now - self.settings.budget_s],
        }

    def restore(self, values: dict[str, Any]) -> None:
        self._moved = {Key(*each[:3]): _Moved(*each[3:]) for each in values.get("moved", ())}
        self._recent = deque(values.get("recent", ()))
