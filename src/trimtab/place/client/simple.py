"""Placements that ignore the load: ``client/random``, ``client/round-robin``, ``client/nearest``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimtab.model.distances import nearest
from trimtab.place.client.policy import ClientPolicy
from trimtab.place.knobs import check, knob

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Rows


@dataclass(frozen=True, slots=True)
class Random(ClientPolicy):
    """Assigns every client to a random broker (Nguyen, 5.1, RND; Tanaka, 7, RA)."""

    seed: int = knob(0, "seed of the random draws", least=0)

    def __post_init__(self) -> None:
        check(self)

    def homes(self, problem: Problem) -> Rows:
        usable = _usable(problem)
        return usable[np.random.default_rng(self.seed).integers(0, len(usable), problem.units)]


@dataclass(frozen=True, slots=True)
class RoundRobin(ClientPolicy):
    """Assigns clients to brokers in turn, so that all brokers have as many clients (Nguyen, 5.1, RR)."""

    def homes(self, problem: Problem) -> Rows:
        usable = _usable(problem)
        return usable[np.arange(problem.units) % len(usable)]


@dataclass(frozen=True, slots=True)
class Nearest(ClientPolicy):
    """Assigns every client to the nearest broker (Nguyen, 5.1, NR; Tanaka, 7, NS)."""

    def homes(self, problem: Problem) -> Rows:
        usable = _usable(problem)
        return usable[nearest(problem.workload, usable)]


def _usable(problem: Problem) -> Rows:
    """Brokers that take clients."""
    return np.flatnonzero(problem.speed > 0.0).astype(np.int32)
