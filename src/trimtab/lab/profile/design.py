"""Which co-locations to measure: a low-discrepancy sequence over numbers of topics, loads and processing times.

Points of a scrambled Sobol sequence fill the space evenly from the first one on (Sobol, 1967; Owen, J. Complexity
1998). So a plan that is cut short is still a good plan, and a longer plan begins with the shorter one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.stats import qmc

from trimtab.errors import BadKnob

if TYPE_CHECKING:
    from trimtab.model.workload import Floats

MOST_TOPICS: Final = 12  # dimensions of the sequence are two for each
LEAST_RATE: Final = 2  # messages/s; fewer would leave too few messages in a short run
MOST_RATE: Final = 100
BUSIEST: Final = 1.05  # cores that one topic may ask for: its worker's queue then grows slowly
FINEST_MS: Final = 0.1  # step of processing times
REPEATED: Final = 6  # every so many co-locations, one is run again: two runs of the same never agree
REPEATED_AFTER: Final = 3  # co-locations between the two runs
SEVERAL: Final = 4  # every so many co-locations, topics have several subscribers
SEVERAL_FIRST: Final = 1  # the first of these
MOST_SUBSCRIBERS: Final = 100  # of a topic
MOST_COPIES: Final = 4000  # per second, of all topics of a run: more would keep the receiving process busy


@dataclass(frozen=True, slots=True)
class Colocation:
    """Topics that share a broker in one run."""

    rate: tuple[int, ...]  # messages/s; a publisher sends one
    processing_ms: tuple[float, ...]  # CPU time that the processor burns
    several: tuple[int, ...] = ()  # subscribers of each topic; empty: one each

    @property
    def subscribers(self) -> tuple[int, ...]:
        return self.several or (1,) * len(self.rate)

    @property
    def copies(self) -> int:
        """Copies per second beyond the first one of each message."""
        return sum(rate * (count - 1) for rate, count in zip(self.rate, self.subscribers, strict=True))

    @property
    def cores(self) -> float:
        """The load that the processors are asked for."""
        return sum(rate * ms for rate, ms in zip(self.rate, self.processing_ms, strict=True)) / 1000.0

    def as_json(self) -> dict[str, Any]:
        several = {"subscribers": list(self.several)} if self.several else {}
        return {"rate": list(self.rate), "processing_ms": list(self.processing_ms)} | several

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Colocation:
        several = tuple(map(int, values.get("subscribers", ())))
        return cls(tuple(map(int, values["rate"])), tuple(map(float, values["processing_ms"])), several)


@dataclass(frozen=True, slots=True)
class Run:
    """A co-location, and the seed of its publishers' phases."""

    colocation: Colocation
    seed: int
    repeats: bool = False  # whether an earlier run had the same co-location


@dataclass(frozen=True, slots=True)
class Design:
    """What a plan of load tests varies."""

    runs: int = 40  # different co-locations
    most: int = 6  # topics in one
    cores: float = 2.0  # of the broker's machine
    fullest: float = 0.85  # share of the cores that the processors of one run ask for, at most
    emptiest: float = 0.08
    shortest_ms: float = 4.0
    longest_ms: float = 40.0
    least_rate: int = LEAST_RATE  # messages/s
    seed: int = 0

    def __post_init__(self) -> None:
        for knob, low, high in (("runs", 1, 10_000), ("most", 1, MOST_TOPICS)):
            if not low <= getattr(self, knob) <= high:
                raise BadKnob("profile", knob, getattr(self, knob), f"from {low} to {high}")
        if not 0.0 < self.cores < np.inf:
            raise BadKnob("profile", "cores", self.cores, "more than zero")

    def plan(self) -> list[Run]:
        """All runs in order. A plan of more runs begins with the plan of fewer."""
        points = qmc.Sobol(2 + 2 * MOST_TOPICS, seed=self.seed).random(_power_of_two(self.runs))[: self.runs]
        found = [self._with_subscribers(self._colocation(point), number) for number, point in enumerate(points)]
        plan: list[Run] = []
        for point, colocation in enumerate(found):
            plan.append(Run(colocation, _seed(self.seed, point, 0)))
            first = point - REPEATED_AFTER
            if first >= 0 and first % REPEATED == 0:
                plan.append(Run(found[first], _seed(self.seed, first, 1), repeats=True))
        return plan

    def _with_subscribers(self, colocation: Colocation, number: int) -> Colocation:
        """Every few co-locations have several subscribers, drawn apart from the sequence: the others are the same as in
        folders of runs that were measured with one subscriber each."""
        if number % SEVERAL != SEVERAL_FIRST:
            return colocation
        draw = np.random.default_rng((self.seed, number)).random(len(colocation.rate))
        limit = max(MOST_COPIES / sum(colocation.rate), 2.0)
        most = min(MOST_SUBSCRIBERS, limit)
        return replace(colocation, several=tuple(int(count) for count in np.maximum(np.rint(most**draw), 1.0)))

    def _colocation(self, point: Floats) -> Colocation:
        topics = 1 + min(int(point[0] * self.most), self.most - 1)
        most = min(self.fullest * self.cores, topics * 0.95)
        load = self.emptiest * self.cores + point[1] * (most - self.emptiest * self.cores)
        weight = -np.log(np.clip(point[2 : 2 + topics], 1e-9, 1.0)) + 0.15  # exponential: shares of a Dirichlet draw
        share = load * weight / weight.sum()
        place = point[2 + MOST_TOPICS : 2 + MOST_TOPICS + topics]
        span = np.log(self.longest_ms / self.shortest_ms)
        ms = np.maximum(np.round(self.shortest_ms * np.exp(place * span) / FINEST_MS), 1.0) * FINEST_MS
        highest = np.clip(np.floor(1000.0 * BUSIEST / ms), self.least_rate, MOST_RATE)
        rate = np.clip(np.rint(1000.0 * share / ms), self.least_rate, highest)
        return Colocation(tuple(int(value) for value in rate), tuple(round(float(value), 3) for value in ms))


def _seed(seed: int, point: int, again: int) -> int:
    return seed * 1_000_000 + point * 10 + again


def _power_of_two(count: int) -> int:
    """Sobol sequences are balanced in powers of two."""
    return int(2 ** np.ceil(np.log2(max(count, 2))))
