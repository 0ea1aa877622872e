"""Placements without a look at the load: ``client/random``, ``client/round-robin``, ``client/nearest``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from trimtab.model.placement import UNPLACED, Placement
from trimtab.model.positions import nearest

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Rows


@dataclass(frozen=True, slots=True)
class Random:
    """Any broker, for every client (Nguyen, 5.1 RND; Tanaka, 7 RA)."""

    seed: int = 0

    may_leave_unplaced: ClassVar[bool] = False
    keeps_limits: ClassVar[bool] = False

    def place(self, problem: Problem) -> Placement:
        usable = _usable(problem)
        if not len(usable):
            return _nobody(problem)
        chosen = np.random.default_rng(self.seed).integers(0, len(usable), problem.units)
        return Placement("client", usable[chosen])


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """One client after the other to one broker after the other (Nguyen, 5.1 RR)."""

    may_leave_unplaced: ClassVar[bool] = False
    keeps_limits: ClassVar[bool] = False

    def place(self, problem: Problem) -> Placement:
        usable = _usable(problem)
        if not len(usable):
            return _nobody(problem)
        return Placement("client", usable[np.arange(problem.units) % len(usable)])


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest broker, for every client (Nguyen, 5.1 NR; Tanaka, 7 NS)."""

    may_leave_unplaced: ClassVar[bool] = False
    keeps_limits: ClassVar[bool] = False

    def place(self, problem: Problem) -> Placement:
        usable = _usable(problem)
        if not len(usable):
            return _nobody(problem)
        load = problem.workload
        return Placement("client", usable[nearest(load.clients, load.brokers, usable)])


def _usable(problem: Problem) -> Rows:
    """Brokers that take clients."""
    return np.flatnonzero(problem.speed > 0.0).astype(np.int32)


def _nobody(problem: Problem) -> Placement:
    return Placement("client", np.full(problem.units, UNPLACED, np.int32))
