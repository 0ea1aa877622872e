"""From two placements to moves in an order in which each of them helps."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.model.placement import UNPLACED
from trimtab.place.client.instance import Instance

if TYPE_CHECKING:
    from trimtab.control.view import View
    from trimtab.model.judgement import Load
    from trimtab.model.workload import Rows


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

    def as_json(self) -> dict[str, Any]:
        return {
            "number": self.number, "at": self.at, "reasons": list(self.reasons), "policy": self.policy,
            "steps": [[each.client, each.source, each.target] for each in self.steps],
            "before": self.before.as_json(), "predicted": self.predicted.as_json(), "left": self.left,
        }  # fmt: skip

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Plan:
        parts = {
            "reasons": tuple(said["reasons"]), "steps": tuple(Step(*each) for each in said["steps"]),
            "before": Levels(**said["before"]), "predicted": Levels(**said["predicted"]),
        }  # fmt: skip
        return cls(**(said | parts))


def in_order(view: View, target: Rows, most: int) -> Rows:
    """Clients to move, at most so many: always off the fullest broker there is something to take off, heaviest first.

    So a plan that is cut off by its budget, or stopped, has brought as much as so few moves can.
    """
    home = view.home
    movers = np.flatnonzero((home != target) & (home != UNPLACED))
    if not len(movers) or most <= 0:
        return movers[:0].astype(np.int32)
    problem = view.problem
    weight = Instance.of(problem).weight
    level = view.load().levels.copy()
    speed = np.where(problem.speed > 0.0, problem.speed, 1e-9)
    waiting: dict[int, list[int]] = {}
    for client in movers[np.argsort(weight[movers], kind="stable")].tolist():
        waiting.setdefault(int(home[client]), []).append(client)  # the heaviest is last
    fullest = [(-float(level[broker]), broker) for broker in waiting]
    heapq.heapify(fullest)
    chosen: list[int] = []
    while fullest and len(chosen) < most:
        said, broker = heapq.heappop(fullest)
        if -said != level[broker]:  # it has got something meanwhile
            heapq.heappush(fullest, (-float(level[broker]), broker))
            continue
        client = waiting[broker].pop()
        chosen.append(client)
        level[broker] -= weight[client] / speed[broker]
        level[target[client]] += weight[client] / speed[target[client]]
        if waiting[broker]:
            heapq.heappush(fullest, (-float(level[broker]), broker))
    return np.array(chosen, np.int32)
