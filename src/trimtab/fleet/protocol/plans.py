"""Plans and decisions of the controller as they are sent and stored."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from trimtab.model.key import Key, Unit


class LevelsRecord(msgspec.Struct, frozen=True):
    """How even the loads of brokers are."""

    max_load: float  # bytes/s for the broker's strength
    mean: float
    spread: float


class StepRecord(msgspec.Struct, array_like=True, frozen=True):
    """One key's move."""

    unit: Unit
    topic: str
    client: str
    source: str  # empty if that broker is not alive
    target: str

    @property
    def key(self) -> Key:
        return Key(self.unit, self.topic, self.client)


class BindingRecord(msgspec.Struct, frozen=True):
    """The resource that was scarcest when a plan was made."""

    resource: str  # or "load"
    broker: str  # where it was scarcest
    now: float  # share in use; of the load, times the mean
    predicted: float


class PlanRecord(msgspec.Struct, frozen=True):
    """Which keys move where, for what reasons, and the predicted effect."""

    number: int
    at: float  # seconds since 1970
    reasons: list[str]
    policy: str
    steps: list[StepRecord]
    before: LevelsRecord
    predicted: LevelsRecord
    left: int = 0  # moves that the budget did not allow
    binding: BindingRecord | None = None


class ProgressRecord(msgspec.Struct, frozen=True):
    """A plan under way; ``states`` and ``moves`` have an item for every step."""

    plan: PlanRecord
    states: list[str]  # waiting, moving, moved, failed or dropped
    moves: list[str]  # ids at the keeper, empty before a move has begun
    began: float
    ended: float | None = None
    stopped: str = ""  # why the remaining steps were dropped
    by_hand: bool = False

    @property
    def over(self) -> int:
        """Steps that are neither waiting nor moving."""
        return sum(state in ("moved", "failed", "dropped") for state in self.states)


class QuestionRecord(msgspec.Struct, frozen=True):
    """All that a decision depends on besides the view; the fields are those of ``control.question.Question``."""

    number: int
    at: float
    reasons: list[str]
    policy: str
    seed: int
    gain: float
    most: int  # moves that the budget allows
    frozen: list[Key] = []  # keys that moved recently and must stay
    unfit: list[str] = []  # brokers that get no keys and give none away
    only_lost: bool = False
    leaving: str = ""  # a broker to be emptied
    relieve: str = ""
    overload: float = 1.0
    messages: float | None = None
    alpha: float = 0.15
    beta: float = 0.0
    gather: float = 0.0
    knobs: dict[str, Any] = {}


class OutcomeRecord(msgspec.Struct, frozen=True):
    """The outcome of a plan: first the states of its steps, later the measured effect."""

    states: list[str] = []
    moves: list[str] = []
    began: float | None = None
    ended: float | None = None
    stopped: str = ""
    said_before: LevelsRecord | None = None  # by the brokers' own reports, before the plan
    measured: LevelsRecord | None = None
    said: LevelsRecord | None = None  # by the brokers' own reports, after the plan
    binding: float | None = None
    helped: bool | UnsetType | None = UNSET  # None: can never be measured; UNSET: not measured yet
    unmeasured: str = ""  # why the effect can never be measured


class DecisionMade(msgspec.Struct):
    """A decision with its inputs, as it is stored. Without ``parts`` it was not made from a measurement."""

    question: QuestionRecord
    routing: dict[str, Any] | None
    alive: list[str]
    parts: list[str]  # subjects of the parts of the measurement
    plan: PlanRecord | None
    why_not: str = ""  # why there is no plan


class DecisionRecord(DecisionMade):
    """A decision and its outcome."""

    outcome: OutcomeRecord | None = None
