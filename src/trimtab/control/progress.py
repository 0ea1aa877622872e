"""A plan on its way: what has become of every step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trimtab.control.plan import Plan

if TYPE_CHECKING:
    from trimtab.control.plan import Step

WAITING, MOVING, MOVED, FAILED, DROPPED = "waiting", "moving", "moved", "failed", "dropped"


@dataclass(slots=True)
class Progress:
    plan: Plan
    began: float
    by_hand: bool = False
    states: list[str] = field(default_factory=list)  # as many as steps
    moves: list[str] = field(default_factory=list)  # ids at the mover, once begun
    ended: float | None = None
    stopped: str = ""  # why the rest was dropped

    def __post_init__(self) -> None:
        self.states = self.states or [WAITING] * len(self.plan.steps)
        self.moves = self.moves or [""] * len(self.plan.steps)

    def count(self, state: str) -> int:
        return self.states.count(state)

    def rows(self, state: str) -> list[int]:
        """Numbers of the steps in that state."""
        return [row for row, its in enumerate(self.states) if its == state]

    def of(self, state: str) -> list[Step]:
        return [self.plan.steps[row] for row in self.rows(state)]

    @property
    def over(self) -> bool:
        return not self.count(WAITING) and not self.count(MOVING)

    def left_s(self, now: float) -> float | None:
        """How long the rest takes, as it has gone so far."""
        done, left = self.count(MOVED) + self.count(FAILED), self.count(WAITING) + self.count(MOVING)
        return (now - self.began) / done * left if done and left else None

    def drop(self, why: str) -> None:
        self.stopped = why
        self.states = [DROPPED if state == WAITING else state for state in self.states]

    def outcome(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("states", "moves", "began", "ended", "stopped")}

    def as_json(self) -> dict[str, Any]:
        return self.outcome() | {"plan": self.plan.as_json(), "by_hand": self.by_hand}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Progress:
        return cls(**(said | {"plan": Plan.from_json(said["plan"])}))
