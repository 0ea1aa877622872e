"""``client/trim`` by load: level the load with few moves, or gather clients with common topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.model.judgement import Load
from trimtab.model.placement import UNPLACED, Bound, Placement
from trimtab.place.client.bounds import least_load, least_load_within
from trimtab.place.client.exact import best_of_all
from trimtab.place.client.gather import shed, sweep
from trimtab.place.client.instance import Instance
from trimtab.place.client.level import bulk, finish, join
from trimtab.place.client.policy import nowhere

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows
    from trimtab.place.client.trim import Trim

    Ints = NDArray[np.int64]
    Counts = NDArray[np.int32]

STEPS: Final = 400  # most steps of ``finish``
FREE: Final = (  # (rho of the soft cost, cap of the level) where moves are not limited
    (0.9, 1.10), (0.8, 1.06), (0.7, 1.04), (0.6, 1.02), (0.5, 1.01), (0.3, 1.005), (0.0, 1.002),
)  # fmt: skip
FREE_SWEEPS: Final = 6  # sweeps with each entry of FREE
WITHIN: Final = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3)  # rho of the soft cost where moves are limited
WITHIN_SWEEPS: Final = 12  # sweeps with each entry of WITHIN
HARD_SWEEPS: Final = 32
SOFT_SHARE: Final = 0.8  # share of the budget of moves that the soft sweeps may use
SOFT_CAP, HARD_CAP = 1.01, 1.001
PRICE: Final = 1.5  # first and highest price of a move, in median weights of a client
PRICE_STEP: Final = 1.1
WORK: Final = 1e9  # most reads of a count by all sweeps; a sweep takes one per link and broker
NODES: Final = 200_000  # most placements tried one by one
FEW: Final = 12  # most clients for which all placements are tried


def place(problem: Problem, knobs: Trim) -> Placement:
    """Place all clients. The problem must have at least one broker."""
    return _Search(Instance.of(problem), knobs).run(problem)


class _State:
    """Homes, and the counts and loads that follow from them."""

    def __init__(self, instance: Instance, start: Rows, home: Rows) -> None:
        self.instance = instance
        self.start = start  # original home of each client, or UNPLACED
        self.home = home
        self.count, self.load = instance.counts(home)

    @property
    def columns(self) -> tuple[Ints, Rows, Floats, Floats, Floats]:
        i = self.instance
        return i.begin, i.topic, i.rate, i.weight, i.speed

    @property
    def homes(self) -> tuple[Rows, Rows, Counts, Floats]:
        return self.start, self.home, self.count, self.load

    def copy(self) -> _State:
        return _State(self.instance, self.start, self.home.copy())

    @property
    def mean(self) -> float:
        return float(self.load.sum() / self.instance.speed.sum())

    @property
    def level(self) -> float:
        return Load(self.load, self.instance.speed).level

    @property
    def moved(self) -> int:
        return int(np.count_nonzero((self.home != self.start) & (self.start != UNPLACED)))


class _Search:
    """Searches for a better placement."""

    def __init__(self, instance: Instance, knobs: Trim) -> None:
        self._instance = instance
        self._knobs = knobs
        self._order = instance.by_weight()
        self._rng = np.random.default_rng(knobs.seed)

    def run(self, problem: Problem) -> Placement:
        if problem.current is None:
            state, bound = self._anew(least_load(problem))
            return Placement("client", state.home, bound)
        instance = self._instance
        home = problem.current.broker.copy()
        home[(home != UNPLACED) & (instance.speed[home] <= 0.0)] = UNPLACED
        state = _State(instance, problem.current.broker, home)
        join(*state.columns, self._order, state.home, state.count, state.load)
        if self._knobs.budget is None:
            self._level(state, instance.clients)
            return Placement("client", state.home, least_load(problem))
        allowed = int(self._knobs.budget * instance.clients)
        state = self._within(state, allowed)
        return Placement("client", state.home, least_load_within(problem, allowed))

    def _anew(self, bound: Bound) -> tuple[_State, Bound]:
        """Place all clients without a current placement; returns also the bound that was proved."""
        instance = self._instance
        start = nowhere(instance.clients)
        plain = _State(instance, start, instance.shuffled())
        state = plain.copy()
        self._gather(state)
        state = min(state, plain, key=lambda candidate: candidate.level)
        if instance.clients <= FEW:
            home, proved = best_of_all(*state.columns, self._order, state.home, state.level, NODES)
            state = _State(instance, start, home)
            if proved:
                bound = Bound("all placements", state.level, "max_load")
        return state, bound

    def _level(self, state: _State, left: int) -> None:
        """Level the load with as few moves as possible."""
        left = bulk(*state.columns, self._order, *state.homes, self._knobs.tolerance, left - state.moved)
        self._finish(state, left)

    def _finish(self, state: _State, left: int) -> None:
        finish(*state.columns, *state.homes, self._knobs.tolerance, left, STEPS)

    def _gather(self, state: _State) -> None:
        clients = self._instance.clients
        for rho, cap in FREE:
            for _ in range(self._sweeps(FREE_SWEEPS, len(FREE) * FREE_SWEEPS)):
                self._sweep(state, rho, cap, 0.0, clients)
        self._finish(state, clients)

    def _within(self, state: _State, allowed: int) -> _State:
        """Gather clients with at most ``allowed`` moves, those with the largest gain first.

        A price per move is adjusted so that the budget is used up slowly: the first moves show where clusters form.
        """
        plain = state.copy()
        self._level(plain, allowed)
        highest = price = PRICE * float(np.median(self._instance.weight)) if self._instance.clients else 0.0
        left = allowed - state.moved
        soft = self._sweeps(WITHIN_SWEEPS, len(WITHIN) * WITHIN_SWEEPS + HARD_SWEEPS)
        hard = max(1, round(soft * HARD_SWEEPS / WITHIN_SWEEPS))
        used = -1
        for at, rho in enumerate(np.repeat(WITHIN, soft)):
            left = self._sweep(state, rho, SOFT_CAP, price, left)
            used = allowed - left if used < 0 else used  # moves used by levelling
            goal = used + max(0.0, SOFT_SHARE * allowed - used) * (at + 1) / (soft * len(WITHIN))
            price = _adjusted(price, allowed - left > goal, highest)
        used = allowed - left
        for at in range(hard):
            left = self._sweep(state, 0.0, HARD_CAP, price, left)
            goal = used + (allowed - used) * min(1.0, (at + 1) / (0.75 * hard))
            price = _adjusted(price, allowed - left > goal, highest)
        self._level(state, allowed)
        return min(plain, state, key=lambda candidate: candidate.level)

    def _sweeps(self, wanted: int, parts: int) -> int:
        """The number of sweeps that ``WORK`` allows: few on the largest problems."""
        affordable = WORK / max(len(self._instance.topic) * self._instance.brokers, 1) / parts
        return max(1, round(self._knobs.effort * wanted * min(1.0, affordable)))

    def _sweep(self, state: _State, rho: float, cap: float, price: float, left: int) -> int:
        if self._knobs.stop.left_s() <= 0.0:
            return left
        order = self._rng.permutation(self._instance.clients).astype(np.int32)
        limit = cap * state.mean
        left = shed(*state.columns, *state.homes, rho, limit, price, left)
        return sweep(*state.columns, order, *state.homes, rho, limit, price, left)


def _adjusted(price: float, too_many: bool, highest: float) -> float:
    return min(price * PRICE_STEP if too_many else price / PRICE_STEP, highest)
