"""Everything that a decision depends on beside the view: the same question about the same view gives the same plan."""

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
    frozen: tuple[Key, ...] = ()  # keys that have moved not long ago
    unfit: tuple[str, ...] = ()  # brokers that no key is to go to, and none to leave
    only_lost: bool = False  # only keys whose broker is not alive move
    leaving: str = ""  # a broker that every key is to leave
    relieve: str = ""  # a resource of which a broker uses too much
    overload: float = 1.0  # share of any resource that is too much
    messages: float | None = None  # messages/s that are too many, if that is set
    alpha: float = 0.15  # spread of loads that is allowed
    beta: float = 0.0  # mean load up to which any spread is
    gather: float = 0.0  # share of all load that bringing common subscriptions together must save; 0: not asked for
    knobs: dict[str, Any] = field(default_factory=dict)  # of the policy

    def as_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Question:
        lists = {name: tuple(values[name]) for name in ("reasons", "unfit")}
        return cls(**(values | lists | {"frozen": tuple(Key(*each) for each in values["frozen"])}))
