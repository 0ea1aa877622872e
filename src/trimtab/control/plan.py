"""From two placements to moves in an order in which each of them helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.model.placement import UNPLACED
from trimtab.place.client.instance import Instance

if TYPE_CHECKING:
    from trimtab.control.view import View
    from trimtab.model.judgement import Load
    from trimtab.model.workload import Rows

LOAD: Final = "load"
RELIEVE: Final = "relieve"  # the policy of a plan that only takes off a broker what it has too much of


@dataclass(frozen=True, slots=True)
class Step:
    """One client's move; ``source`` is empty if it has no home that is alive."""

    client: str
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Levels:
    """How even it is."""

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
    """What there was least of, and where."""

    resource: str  # or LOAD, where it is about evenness
    broker: str  # that was fullest
    now: float  # share in use there; of LOAD, times the mean
    predicted: float

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done, why, and what it should bring."""

    number: int
    at: float  # when it was decided
    reasons: tuple[str, ...]
    policy: str
    steps: tuple[Step, ...]
    before: Levels
    predicted: Levels
    left: int = 0  # moves that the budget did not allow
    binding: Binding | None = None  # none: clients had no home, or people wanted it

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number, "at": self.at, "reasons": list(self.reasons), "policy": self.policy,
            "steps": [[each.client, each.source, each.target] for each in self.steps],
            "before": self.before.as_json(), "predicted": self.predicted.as_json(), "left": self.left,
            "binding": self.binding.as_json() if self.binding else None,
        }  # fmt: skip

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Plan:
        parts = {
            "reasons": tuple(said["reasons"]), "steps": tuple(Step(*each) for each in said["steps"]),
            "before": Levels(**said["before"]), "predicted": Levels(**said["predicted"]),
            "binding": Binding(**said["binding"]) if said.get("binding") else None,
        }  # fmt: skip
        return cls(**(said | parts))


def in_order(view: View, target: Rows, most: int) -> Rows:
    """Clients to move, at most so many: always off the fullest broker there is something to take off, to the emptiest
    of those that its clients go to, heaviest first.

    So a plan that is cut off by its budget, or stopped, has brought as much as so few moves can. O(moves x brokers).
    """
    home = view.home
    movers = np.flatnonzero((home != target) & (home != UNPLACED))
    if not len(movers) or most <= 0:
        return movers[:0].astype(np.int32)
    problem = view.problem
    weight = Instance.of(problem).weight
    level = view.load().levels.copy()
    speed = np.where(problem.speed > 0.0, problem.speed, 1e-9)
    waiting: dict[tuple[int, int], list[int]] = {}
    count = np.zeros((len(level), len(level)), np.int64)  # of those who wait, by where from and where to
    for client in movers[np.argsort(weight[movers], kind="stable")].tolist():
        way = int(home[client]), int(target[client])
        waiting.setdefault(way, []).append(client)  # the heaviest is last
        count[way] += 1
    chosen: list[int] = []
    for _ in range(min(most, len(movers))):
        source = int(np.argmax(np.where(count.any(axis=1), level, -np.inf)))
        to = int(np.argmin(np.where(count[source] > 0, level, np.inf)))
        client = waiting[source, to].pop()
        count[source, to] -= 1
        chosen.append(client)
        level[source] -= weight[client] / speed[source]
        level[to] += weight[client] / speed[to]
    return np.array(chosen, np.int32)
