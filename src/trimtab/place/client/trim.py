"""``client/trim``: level loads with few moves, or gather clients that want the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.errors import BadKnob
from trimtab.model.judgement import TOLERANCE
from trimtab.model.placement import UNPLACED, Bound, Placement
from trimtab.place.client.anneal import anneal, settle
from trimtab.place.client.bad import shuffled
from trimtab.place.client.bounds import least_delay, least_load, least_load_within
from trimtab.place.client.delays import Field
from trimtab.place.client.exact import best_of_all
from trimtab.place.client.gather import shed, sweep
from trimtab.place.client.instance import Instance
from trimtab.place.client.level import bulk, finish, join
from trimtab.place.client.otos import OtosCentroid
from trimtab.place.client.reloc import Reloc, members
from trimtab.place.client.simple import Nearest
from trimtab.place.stop import NO_LIMIT, Stop

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

    Ints = NDArray[np.int64]
    Counts = NDArray[np.int32]

OBJECTIVES: Final = ("load", "delay", "both")

# Levelling and gathering.
STEPS: Final = 400  # of the last touch
FREE: Final = (  # rho of the soft measure, cap of the level: where everybody may go anywhere
    (0.9, 1.10), (0.8, 1.06), (0.7, 1.04), (0.6, 1.02), (0.5, 1.01), (0.3, 1.005), (0.0, 1.002),
)  # fmt: skip
FREE_SWEEPS: Final = 6  # of each
WITHIN: Final = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3)  # rho, where moves are limited
WITHIN_SWEEPS: Final = 12  # of each
HARD_SWEEPS: Final = 32
SOFT_SHARE: Final = 0.8  # of the budget, for the soft part
SOFT_CAP, HARD_CAP = 1.01, 1.001
PRICE: Final = 1.5  # of a move at first, in median weights of a client
PRICE_STEP: Final = 1.1
WORK: Final = 1e9  # looks at a count; a sweep takes one for every link and broker
NODES: Final = 200_000  # placements looked at one by one
FEW: Final = 12  # clients of whom all placements may be

# Delay.
MOVES: Final = 800_000  # tried in all searches together
TRIES: Final = 8  # searches, where clients are few: it matters more there where one begins
SMALL: Final = 200  # clients
HOT: Final = 0.4  # at first, in shares of the mean delay that a client has a part in
COLD: Final = 0.01


class _State:
    """Homes, and what follows from them."""

    def __init__(self, instance: Instance, start: Rows, home: Rows) -> None:
        self.instance = instance
        self.start = start  # where everybody was; UNPLACED: nowhere
        self.home = home
        self.count, self.load = instance.counts(home)

    @property
    def what(self) -> tuple[Ints, Rows, Floats, Floats, Floats]:
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
        usable = self.instance.speed > 0.0
        return float((self.load[usable] / self.instance.speed[usable]).max(initial=0.0))

    @property
    def moved(self) -> int:
        return int(np.count_nonzero((self.home != self.start) & (self.start != UNPLACED)))


@dataclass(frozen=True, slots=True)
class Trim:
    """Least maximum load, or least delay, or least delay among what is nearly level.

    Load: with a current placement and no budget, as few clients move as levelling takes. With a budget (a share of the
    clients), those move who bring most: clients that want the same get together, and the total load falls. With no
    current placement everybody may go anywhere. Delay: everybody may, or as many as the budget says; with no effort at
    all, newcomers get a home and nobody else moves.
    """

    objective: str = "load"
    budget: float | None = None
    load_limit: float = 1.1  # objective both: the highest level may be this many times the least
    tolerance: float = 5e-4  # the highest level may be above the mean by this share of it
    effort: float = 1.0
    seed: int = 0
    stop: Stop = NO_LIMIT

    may_leave_unplaced: ClassVar[bool] = False
    keeps_limits: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise BadKnob("client/trim", "objective", self.objective, f"one of {', '.join(OBJECTIVES)}")
        if self.budget is not None and not 0.0 <= self.budget <= 1.0:
            raise BadKnob("client/trim", "budget", self.budget, "a share of the clients, from 0 to 1")
        if not 1.0 <= self.load_limit < float("inf"):
            raise BadKnob("client/trim", "load_limit", self.load_limit, "1 or more")
        for knob in ("tolerance", "effort"):
            if not 0.0 <= getattr(self, knob) < float("inf"):
                raise BadKnob("client/trim", knob, getattr(self, knob), "zero or more")

    def place(self, problem: Problem) -> Placement:
        if self.objective != "load":
            return self._quick(problem)
        instance = Instance.of(problem)
        nowhere = np.full(instance.clients, UNPLACED, np.int32)
        if not (instance.speed > 0.0).any():
            return Placement("client", nowhere, least_load(problem))
        order = instance.by_weight()
        bound = least_load(problem)
        if problem.current is None:
            state = self._anew(problem, instance, order)
            if instance.clients <= FEW:
                home, proved = best_of_all(*state.what, order, state.home, state.level, NODES)
                state = _State(instance, nowhere, home)
                if proved:
                    bound = Bound("all placements", state.level, "max_load")
        else:
            home = problem.current.broker.copy()
            home[(home != UNPLACED) & (instance.speed[home] <= 0.0)] = UNPLACED
            state = _State(instance, problem.current.broker, home)
            join(*state.what, order, state.home, state.count, state.load)
            if self.budget is None:
                self._level(state, order, instance.clients)
            else:
                allowed = int(self.budget * instance.clients)
                self._gather_within(state, order, allowed)
                bound = least_load_within(problem, allowed)
        return Placement("client", state.home, bound)

    def _anew(self, problem: Problem, instance: Instance, order: Rows) -> _State:
        """Everybody anywhere."""
        nowhere = np.full(instance.clients, UNPLACED, np.int32)
        plain = _State(
            instance, nowhere, shuffled(instance.begin, instance.topic, instance.rate, instance.speed, order)
        )
        state = _State(instance, nowhere, plain.home.copy())
        self._gather(state)
        return min(state, plain, key=lambda each: each.level)

    def _quick(self, problem: Problem) -> Placement:
        """The least delay: searched for from the best of what is known."""
        if not problem.brokers:
            return Placement("client", np.full(problem.units, UNPLACED, np.int32), Bound("no brokers", 0.0, "delay"))
        field = Field.of(problem)
        bound = least_delay(problem)
        what = (
            field.begin, field.topic, field.publishes, field.spreads, field.subscribes, field.needs, field.near,
            field.home_ms, field.server_ms, field.spool, field.rate, field.storage, field.compute, field.cloud_ms,
        )  # fmt: skip
        origin = np.full(field.clients, UNPLACED, np.int32)
        starts: list[Rows] = []
        if problem.current is not None:
            origin = problem.current.broker
            new = np.flatnonzero(origin == UNPLACED).astype(np.int32)
            settled = np.where(origin == UNPLACED, field.home_ms.argmin(axis=1), origin).astype(np.int32)
            settle(*what, settled, new)
            starts.append(settled)
        if problem.current is None or (self.budget is None and self.effort > 0.0):
            starts += [policy.place(problem).broker for policy in (Nearest(), OtosCentroid(), Reloc())]
        most = np.full(field.servers, np.inf)
        if self.objective == "both":
            level = replace(self, objective="load").place(problem).broker
            most, starts = self._limited(problem, level, starts)
        allowed = field.clients if self.budget is None else int(self.budget * field.clients)
        begin, member = members(field)

        def search(start: Rows, steps: int, n: int = 0) -> tuple[Rows, float]:
            rng = np.random.default_rng((self.seed, n))
            return anneal(*what, begin, member, start, origin, allowed, most, steps, HOT, COLD, rng)

        best, home = min((search(start, 0)[1], at) for at, start in enumerate(starts))
        found = starts[home]
        tries = TRIES if field.clients <= SMALL else 1
        for n in range(tries if field.clients and self.effort > 0.0 else 0):
            made, value = search(starts[home], int(self.effort * MOVES / tries), n)
            if value < best:
                best, found = value, made
            if self.stop.left_s() <= 0.0:
                break
        return Placement("client", found, bound)

    def _limited(self, problem: Problem, level: Rows, starts: list[Rows]) -> tuple[Floats, list[Rows]]:
        """What every broker may have, by what the least maximum load would be; and where to begin within that."""
        instance = Instance.of(problem)

        def loads(home: Rows) -> Floats:
            return instance.counts(home)[1]

        usable = instance.speed > 0.0
        least = float((loads(level)[usable] / instance.speed[usable]).max(initial=0.0))
        most = self.load_limit * least * instance.speed * (1.0 + TOLERANCE)
        return most, [level, *(start for start in starts if (loads(start) <= most).all())]

    def _level(self, state: _State, order: Rows, allowed: int) -> None:
        """As few moves as it takes."""
        left = bulk(*state.what, order, *state.homes, self.tolerance, allowed - state.moved)
        finish(*state.what, *state.homes, self.tolerance, left, STEPS)

    def _gather(self, state: _State) -> None:
        rng = np.random.default_rng(self.seed)
        for rho, cap in FREE:
            for _ in range(self._sweeps(state.instance, FREE_SWEEPS, len(FREE) * FREE_SWEEPS)):
                self._sweep(state, rng, rho, cap, 0.0, state.instance.clients)
        finish(*state.what, *state.homes, self.tolerance, state.instance.clients, STEPS)

    def _gather_within(self, state: _State, order: Rows, allowed: int) -> None:
        """Those who bring most, and not more of them than allowed.

        A move has a price, led so that the budget is used up slowly: first moves show where clusters form.
        """
        first = state.copy()
        rng = np.random.default_rng(self.seed)
        dearest = price = PRICE * float(np.median(state.instance.weight))
        left = allowed - state.moved
        used = -1
        soft = self._sweeps(state.instance, WITHIN_SWEEPS, len(WITHIN) * WITHIN_SWEEPS + HARD_SWEEPS)
        hard = max(1, round(soft * HARD_SWEEPS / WITHIN_SWEEPS))
        for at, rho in enumerate(np.repeat(WITHIN, soft)):
            left = self._sweep(state, rng, rho, SOFT_CAP, price, left)
            used = allowed - left if used < 0 else used
            goal = used + max(0.0, SOFT_SHARE * allowed - used) * (at + 1) / (soft * len(WITHIN))
            price = min(price * PRICE_STEP if allowed - left > goal else price / PRICE_STEP, dearest)
        used = allowed - left
        for at in range(hard):
            left = self._sweep(state, rng, 0.0, HARD_CAP, price, left)
            goal = used + (allowed - used) * min(1.0, (at + 1) / (0.75 * hard))
            price = min(price * PRICE_STEP if allowed - left > goal else price / PRICE_STEP, dearest)
        left = bulk(*state.what, order, *state.homes, self.tolerance, left)
        finish(*state.what, *state.homes, self.tolerance, left, STEPS)
        self._level(first, order, allowed)
        if first.level <= state.level:
            state.home = first.home

    def _sweeps(self, instance: Instance, wanted: int, parts: int) -> int:
        """How many there is time for: on the largest problems, few."""
        affordable = WORK / max(len(instance.topic) * instance.brokers, 1) / parts
        return max(1, round(self.effort * wanted * min(1.0, affordable)))

    def _sweep(self, state: _State, rng: np.random.Generator, rho: float, cap: float, price: float, left: int) -> int:
        if self.stop.left_s() <= 0.0:
            return left
        order = rng.permutation(state.instance.clients).astype(np.int32)
        limit = cap * state.mean
        left = shed(*state.what, *state.homes, rho, limit, price, left)
        return sweep(*state.what, order, *state.homes, rho, limit, price, left)
