"""A question: everything that a decision depends on besides the view. The same question and view give the same plan."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from trimtab.model.key import Key


@dataclass(frozen=True, slots=True)
class Question:
    number: int
    at: float
    reasons: tuple[str, ...]
    policy: str
    seed: int
    gain: float  # least fall of the spread, see ``goals.evenness.worth_it``
    most: int  # moves that the budget allows
    frozen: tuple[Key, ...] = ()  # keys that moved recently and must stay
    unfit: tuple[str, ...] = ()  # brokers that get no keys and give none away
    only_lost: bool = False  # only keys whose broker is not alive move
    leaving: str = ""  # a broker to be emptied
    relieve: str = ""  # a resource of which a broker uses too much
    overload: float = 1.0  # share of any resource above which a broker is full
    messages: float | None = None  # messages/s above which a broker is full; None: no limit
    alpha: float = 0.15  # spread of loads that is allowed
    beta: float = 0.0  # mean load up to which any spread is allowed
    gather: float = 0.0  # share of all load that gathering common subscriptions must save; 0: do not gather
    knobs: dict[str, Any] = field(default_factory=dict)  # of the policy

    def as_json(self) -> dict[str, Any]:
        return {column.name: getattr(self, column.name) for column in fields(self)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Question:
        lists = {name: tuple(values[name]) for name in ("reasons", "unfit")}
        return cls(**(values | lists | {"frozen": tuple(Key(*parts) for parts in values["frozen"])}))
