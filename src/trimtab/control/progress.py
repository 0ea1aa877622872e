"""A plan under way: the state of every step."""

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
    states: list[str] = field(default_factory=list)  # one per step
    moves: list[str] = field(default_factory=list)  # one per step: its id at the mover, empty until it begins
    ended: float | None = None
    stopped: str = ""  # why the remaining steps were dropped

    def __post_init__(self) -> None:
        self.states = self.states or [WAITING] * len(self.plan.steps)
        self.moves = self.moves or [""] * len(self.plan.steps)

    def count(self, state: str) -> int:
        return self.states.count(state)

    def rows(self, state: str) -> list[int]:
        """Rows of the steps in ``state``."""
        return [row for row, current in enumerate(self.states) if current == state]

    def of(self, state: str) -> list[Step]:
        return [self.plan.steps[row] for row in self.rows(state)]

    @property
    def over(self) -> bool:
        return not self.count(WAITING) and not self.count(MOVING)

    def left_s(self, now: float) -> float | None:
        """Estimate how long the remaining steps take, by the mean of the steps so far."""
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
    def from_json(cls, values: dict[str, Any]) -> Progress:
        return cls(**(values | {"plan": Plan.from_json(values["plan"])}))
