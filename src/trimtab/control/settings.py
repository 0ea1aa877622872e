"""Settings of the controller."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from trimtab.errors import BadKnob
from trimtab.place.knobs import typed
from trimtab.place.registry import full_name

_POSITIVE: Final = ("period_s", "cool_s", "budget_s")
_NOT_NEGATIVE: Final = ("alpha", "beta", "enough", "gain", "latency_ms")
_SHARES: Final = ("budget", "gather", "headroom", "idle")


@dataclass(frozen=True, slots=True)
class Settings:
    """``[control]`` of trimtab.toml."""

    policy: str = "trim"  # of the family client
    period_s: float = 5.0  # between two looks
    alpha: float = 0.15  # spread of loads above which the fleet is uneven (Nguyen, DEBS'19, Algorithm 1)
    beta: float = 0.0  # mean load in bytes/s below which nothing is uneven
    enough: float = 0.05  # spread below which a plan that the budget cut off is not continued
    idle: float = 0.5  # share of the mean load below which a broker is idle
    gather: float = 0.1  # share of all load that gathering common subscriptions must save; 0: never gather
    overload: float = 0.85  # share of any resource in use above which a broker is full
    messages: float | None = None  # messages/s above which a broker is full; None: no limit
    patience: int = 2  # measurements in a row that must show the same finding before keys move
    gain: float = 0.1  # share by which the spread (or 0.5, if the spread is less) must fall for a plan to be worth it
    budget: float = 0.5  # share of all keys (clients, topics, links) that may move within budget_s
    budget_s: float = 30.0  # window of the budget
    cool_s: float = 60.0  # a key that moved stays for this long, twice as long after each move in a row
    headroom: float = 0.1  # share of time in which the processor of a topic with a latency bound must not be busy
    thrift: bool = False  # whether to use no more brokers than the goals before evenness take
    nearness: bool = False  # whether keys move nearer to their clients where no earlier goal is harmed
    latency_ms: float = 250.0  # p99 of deliveries above which fewer moves run at once
    seed: int = 0
    knobs: dict[str, bool | int | float | str | None] = field(default_factory=dict, hash=False)  # of the policy
    model: dict[str, Any] = field(default_factory=dict, hash=False)  # latency model, see ``hosting.latency_model``

    def __post_init__(self) -> None:
        if self.knobs:
            object.__setattr__(self, "knobs", typed(full_name(self.policy, "client"), self.knobs))
        for knob in _POSITIVE:
            if not 0.0 < getattr(self, knob) < float("inf"):
                raise BadKnob("control", knob, getattr(self, knob), "more than zero")
        for knob in _NOT_NEGATIVE:
            if not 0.0 <= getattr(self, knob) < float("inf"):
                raise BadKnob("control", knob, getattr(self, knob), "zero or more")
        for knob in _SHARES:
            if not 0.0 <= getattr(self, knob) <= 1.0:
                raise BadKnob("control", knob, getattr(self, knob), "from 0 to 1")
        if not 0.0 < self.overload <= 1.0:
            raise BadKnob("control", "overload", self.overload, "a share, above 0 and at most 1")
        if self.messages is not None and not 0.0 < self.messages < float("inf"):
            raise BadKnob("control", "messages", self.messages, "more than zero, or left out")
        if self.patience < 1:
            raise BadKnob("control", "patience", self.patience, "1 or more")
