"""Plans: which keys move where, for what reasons, and the predicted effect."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.model.key import Key
from trimtab.model.placement import UNPLACED
from trimtab.place.client.instance import Instance

if TYPE_CHECKING:
    from trimtab.control.view import View
    from trimtab.model.judgement import Load
    from trimtab.model.workload import Rows

LOAD: Final = "load"
RELIEVE: Final = "relieve"  # policy of a plan that only frees a resource of a broker that is full
GATHER: Final = "gather"  # policy of a plan that moves clients with common subscriptions to the same broker


@dataclass(frozen=True, slots=True)
class Step:
    """One key's move; ``source`` is empty if its broker is not alive."""

    key: Key
    source: str
    target: str

    def as_json(self) -> list[str]:
        return [*self.key, self.source, self.target]

    @classmethod
    def from_json(cls, values: list[str]) -> Step:
        unit, topic, client, source, target = values
        return cls(Key.of(unit, topic, client), source, target)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Levels:
    """How even the loads of brokers are."""

    max_load: float  # the highest level, in bytes/s
    mean: float
    spread: float

    @classmethod
    def of(cls, load: Load) -> Levels:
        return cls(load.level, load.mean, load.cov)

    def as_json(self) -> dict[str, float]:
        return {"max_load": self.max_load, "mean": self.mean, "spread": self.spread}


@dataclass(frozen=True, slots=True)
class Binding:
    """The resource that was scarcest when a plan was made, and the broker that was fullest of it."""

    resource: str  # LOAD for a plan about evenness
    broker: str
    now: float  # share in use at that broker; for LOAD, multiple of the mean
    predicted: float

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps to carry out, the reasons for them, and their predicted effect."""

    number: int
    at: float  # time of the decision
    reasons: tuple[str, ...]
    policy: str
    steps: tuple[Step, ...]
    before: Levels
    predicted: Levels
    left: int = 0  # moves that the budget did not allow
    binding: Binding | None = None  # None for a plan that serves lost keys, and for one made by hand

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number, "at": self.at, "reasons": list(self.reasons), "policy": self.policy,
            "steps": [step.as_json() for step in self.steps],
            "before": self.before.as_json(), "predicted": self.predicted.as_json(), "left": self.left,
            "binding": self.binding.as_json() if self.binding else None,
        }  # fmt: skip

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Plan:
        parts = {
            "reasons": tuple(values["reasons"]), "steps": tuple(Step.from_json(step) for step in values["steps"]),
            "before": Levels(**values["before"]), "predicted": Levels(**values["predicted"]),
            "binding": Binding(**values["binding"]) if values.get("binding") else None,
        }  # fmt: skip
        return cls(**(values | parts))


def in_order(view: View, target: Rows, most: int) -> Rows:
    """Order the keys to move, and keep at most ``most`` of them.

    Each time, the next key comes from the fullest broker that has keys to give. It goes to the emptiest of the brokers
    that keys of this broker go to; of its keys for that target, the heaviest is next. So a plan that is stopped, or cut
    off by its budget, has gained as much as that number of moves can. O(moves x brokers).
    """
    home = view.current
    movers = np.flatnonzero((home != target) & (home != UNPLACED))
    if not len(movers) or most <= 0:
        return movers[:0].astype(np.int32)
    problem = view.problem
    weight = Instance.of(problem).weight
    level = view.load().levels.copy()
    speed = np.where(problem.speed > 0.0, problem.speed, 1e-9)
    waiting: dict[tuple[int, int], list[int]] = {}
    count = np.zeros((len(level), len(level)), np.int64)  # waiting keys, by source and target
    for key in movers[np.argsort(weight[movers], kind="stable")].tolist():
        route = int(home[key]), int(target[key])
        waiting.setdefault(route, []).append(key)  # the heaviest is last
        count[route] += 1
    chosen: list[int] = []
    for _ in range(min(most, len(movers))):
        source = int(np.argmax(np.where(count.any(axis=1), level, -np.inf)))
        to = int(np.argmin(np.where(count[source] > 0, level, np.inf)))
        key = waiting[source, to].pop()
        count[source, to] -= 1
        chosen.append(key)
        level[source] -= weight[key] / speed[source]
        level[to] += weight[key] / speed[to]
    return np.array(chosen, np.int32)
