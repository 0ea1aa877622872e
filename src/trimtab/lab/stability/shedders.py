"""Pulsar's load shedders, after its sources at 4.1 (org.apache.pulsar.broker.loadbalance.impl), applied to keys.

They take keys off a broker by one score, and choose the target broker by another score: long-term averages. PIP-364
describes the consequences. All knobs have their defaults. Resource use is measured in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.lab.stability.case import Case
    from trimtab.lab.stability.fleet import Observation
    from trimtab.model.workload import Floats, Rows

    Flags = NDArray[np.bool_]

INTERVAL_S: Final = 60  # loadBalancerSheddingIntervalMinutes
REPORT_S: Final = 5  # loadBalancerReportUpdateMinIntervalMillis
HISTORY: Final = 0.9  # loadBalancerHistoryResourcePercentage
LONG: Final = 0.99  # weight of the previous value in the long-term rates
OVERLOADED: Final = 0.85  # loadBalancerBrokerOverloadedThresholdPercentage
GRACE_S: Final = 1800  # loadBalancerSheddingGracePeriodMinutes


@dataclass
class Shedder:
    """The common parts of the three shedders: averages of loads, and the choice of a target broker."""

    name: ClassVar[str]

    case: Case
    seed: int = 0
    period_s: int = REPORT_S
    _orders: list[tuple[int, int]] = field(default_factory=list)
    _long: Floats | None = None  # (N,) long-term rates of clients
    _usage: Floats | None = None  # (B,) average usage of brokers
    _unloaded: dict[int, int] = field(default_factory=dict)  # client -> second of its last move
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng((self.seed, 5))

    def look(self, observation: Observation) -> None:
        now = self._weights(observation.rate)
        self._long = now if self._long is None else LONG * self._long + (1 - LONG) * now
        usage = observation.load / self._capacity()
        self._usage = usage if self._usage is None else HISTORY * self._usage + (1 - HISTORY) * usage
        if observation.second % INTERVAL_S == 0 and observation.second:
            self._orders += self.shed(observation, now, usage)

    def shed(self, observation: Observation, weight: Floats, usage: Floats) -> list[tuple[int, int]]:
        raise NotImplementedError

    def orders(self, second: int, home: Rows, alive: Flags) -> list[tuple[int, int]]:
        """Move the clients that were shed, and the clients of dead brokers."""
        shed, self._orders = self._orders, []
        lost = np.flatnonzero(~alive[home])
        moving = dict(shed)
        for client in lost.tolist():
            if client not in moving and alive.any():
                moving[client] = self._choose(home, alive, moving)
        return list(moving.items())

    def done(self, second: int, moved: list[tuple[int, int]], failed: list[tuple[int, int]]) -> None:
        for client, _ in moved:
            self._unloaded[client] = second

    def _weights(self, rate: Floats) -> Floats:
        case = self.case
        owner = case.owner[: len(case.topic)]  # of subscriptions
        return np.bincount(owner, weights=rate[case.topic], minlength=len(case.home)).astype(np.float64)

    def _capacity(self) -> Floats:
        if self.case.bandwidth is not None:
            return self.case.bandwidth
        # Without a limit, the capacity is twice the load of a level fleet.
        total = 2.0 * float(self._weights(self.case.rate).sum())
        return np.full(self.case.brokers, 2.0 * total / self.case.brokers)

    def _choose(self, home: Rows, alive: Flags, moving: dict[int, int]) -> int:
        """LeastLongTermMessageRate: the broker with the least long-term rates, if possible one below 85 % usage."""
        assert self._long is not None
        assert self._usage is not None
        homes = home.copy()
        for client, target in moving.items():
            homes[client] = target
        score = np.bincount(homes, weights=self._long, minlength=len(alive))
        able = alive & (self._usage < OVERLOADED)
        able = able if able.any() else alive
        least = score[able].min()
        return int(self._rng.choice(np.flatnonzero(able & (score <= least))))

    def _heaviest(self, observation: Observation, broker: int, weight: Floats) -> list[int]:
        own = np.flatnonzero(observation.home == broker)
        movable = [c for c in own.tolist() if observation.second - self._unloaded.get(c, -GRACE_S) >= GRACE_S]
        return sorted(movable, key=lambda client: -weight[client])

    def _placed(self, observation: Observation, clients: list[int]) -> list[tuple[int, int]]:
        moving: dict[int, int] = {}
        for client in clients:
            moving[client] = self._choose(observation.home, observation.alive, moving)
        return list(moving.items())


class Threshold(Shedder):
    """ThresholdShedder: sheds from brokers whose usage is more than 10 points above the average."""

    name = "threshold"

    def shed(self, observation: Observation, weight: Floats, usage: Floats) -> list[tuple[int, int]]:
        assert self._usage is not None
        average = float(self._usage[observation.alive].mean())
        chosen: list[int] = []
        for broker in np.flatnonzero(observation.alive & (self._usage > average + 0.10)).tolist():
            offload = (self._usage[broker] - average - 0.10 + 0.05) * observation.load[broker]
            marked = 0.0
            for client in self._heaviest(observation, broker, weight):
                if marked >= offload:
                    break
                marked += 2.0 * weight[client]
                chosen.append(client)
        return self._placed(observation, chosen)


class Uniform(Shedder):
    """UniformLoadShedder: sheds from the broker with the highest rate if the lowest is below two thirds of it."""

    name = "uniform"

    def shed(self, observation: Observation, weight: Floats, usage: Floats) -> list[tuple[int, int]]:
        load = np.where(observation.alive, observation.load, np.nan)
        fullest, least = int(np.nanargmax(load)), float(np.nanmin(load))
        most = float(load[fullest])
        if not most > 1.5 * max(least, 1e-9):
            return []
        required, marked = 0.2 * (most - least), 0.0
        chosen: list[int] = []
        for client in self._heaviest(observation, fullest, weight):
            if marked + 2.0 * weight[client] <= required:
                marked += 2.0 * weight[client]
                chosen.append(client)
        return self._placed(observation, chosen)


class Average(Shedder):
    """AvgShedder (PIP-364): the fullest broker gives half of a lasting difference to the emptiest broker."""

    name = "average"

    def __init__(self, case: Case, seed: int = 0) -> None:
        super().__init__(case, seed)
        self._low: dict[int, int] = {}  # broker -> checks with a small difference
        self._high: dict[int, int] = {}  # broker -> checks with a large difference

    def shed(self, observation: Observation, weight: Floats, usage: Floats) -> list[tuple[int, int]]:
        order = [b for b in np.argsort(usage, kind="stable").tolist() if observation.alive[b]]
        orders: list[tuple[int, int]] = []
        for low, high in zip(order[: len(order) // 2], reversed(order), strict=False):
            points = 100.0 * float(usage[high] - usage[low])
            if points < 15.0:
                for hits in (self._low, self._high):
                    hits.pop(high, None)
                continue
            hits, needed = (self._low, 8) if points < 40.0 else (self._high, 2)
            hits[high] = hits.get(high, 0) + 1
            if hits[high] < needed:
                continue
            hits.pop(high)
            marked, half = 0.0, float(observation.load[high] - observation.load[low]) / 2
            for client in self._heaviest(observation, high, weight):
                if marked + 2.0 * weight[client] <= half:
                    marked += 2.0 * weight[client]
                    orders.append((client, low))
        return orders


NAMED: Final = {"threshold": Threshold, "uniform": Uniform, "average": Average}
