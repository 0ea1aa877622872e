"""Pulsar's load shedders, as they are in its sources at 4.1 (org.apache.pulsar.broker.loadbalance.impl), on keys.

They take load off a broker by a score, and who is taken off goes to the broker that is best by another score: that of
long averages. PIP-364 says what that does. All knobs have their defaults; bytes stand for what they measure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.lab.stability.case import Case
    from trimtab.lab.stability.fleet import Seen
    from trimtab.model.workload import Floats, Rows

    Flags = NDArray[np.bool_]

INTERVAL_S: Final = 60  # loadBalancerSheddingIntervalMinutes
REPORT_S: Final = 5  # loadBalancerReportUpdateMinIntervalMillis
HISTORY: Final = 0.9  # loadBalancerHistoryResourcePercentage
LONG: Final = 0.99  # of the long-term rates that brokers are chosen by
OVERLOADED: Final = 0.85  # loadBalancerBrokerOverloadedThresholdPercentage
GRACE_S: Final = 1800  # loadBalancerSheddingGracePeriodMinutes


@dataclass
class Shedder:
    """What the three have in common: how load is known, and where a client goes that was taken off."""

    name: ClassVar[str]

    case: Case
    seed: int = 0
    period_s: int = REPORT_S
    _orders: list[tuple[int, int]] = field(default_factory=list)
    _long: Floats | None = None  # (N,) of clients
    _usage: Floats | None = None  # (B,)
    _unloaded: dict[int, int] = field(default_factory=dict)  # client -> when
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng((self.seed, 5))

    def look(self, seen: Seen) -> None:
        now = self._weights(seen.rate)
        self._long = now if self._long is None else LONG * self._long + (1 - LONG) * now
        usage = seen.load / self._capacity()
        self._usage = usage if self._usage is None else HISTORY * self._usage + (1 - HISTORY) * usage
        if seen.second % INTERVAL_S == 0 and seen.second:
            self._orders += self.shed(seen, now, usage)

    def shed(self, seen: Seen, weight: Floats, usage: Floats) -> list[tuple[int, int]]:
        raise NotImplementedError

    def orders(self, second: int, home: Rows, alive: Flags) -> list[tuple[int, int]]:
        """What was shed, and whoever's broker is dead."""
        some, self._orders = self._orders, []
        lost = np.flatnonzero(~alive[home])
        moving = dict(some)
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
        # Where no limit is known, as if all were at half of it when level.
        total = 2.0 * float(self._weights(self.case.rate).sum())
        return np.full(self.case.brokers, 2.0 * total / self.case.brokers)

    def _choose(self, home: Rows, alive: Flags, moving: dict[int, int]) -> int:
        """LeastLongTermMessageRate: least by the long-term rates of what is there, brokers below 85 % if there are."""
        assert self._long is not None
        assert self._usage is not None
        then = home.copy()
        for client, target in moving.items():
            then[client] = target
        score = np.bincount(then, weights=self._long, minlength=len(alive))
        able = alive & (self._usage < OVERLOADED)
        able = able if able.any() else alive
        least = score[able].min()
        return int(self._rng.choice(np.flatnonzero(able & (score <= least))))

    def _heaviest(self, seen: Seen, broker: int, weight: Floats) -> list[int]:
        own = np.flatnonzero(seen.home == broker)
        fresh = [c for c in own.tolist() if seen.second - self._unloaded.get(c, -GRACE_S) >= GRACE_S]
        return sorted(fresh, key=lambda client: -weight[client])

    def _placed(self, seen: Seen, clients: list[int]) -> list[tuple[int, int]]:
        moving: dict[int, int] = {}
        for client in clients:
            moving[client] = self._choose(seen.home, seen.alive, moving)
        return list(moving.items())


class Threshold(Shedder):
    """ThresholdShedder: off brokers that use 10 points more than the average does."""

    name = "threshold"

    def shed(self, seen: Seen, weight: Floats, usage: Floats) -> list[tuple[int, int]]:
        assert self._usage is not None
        average = float(self._usage[seen.alive].mean())
        chosen: list[int] = []
        for broker in np.flatnonzero(seen.alive & (self._usage > average + 0.10)).tolist():
            offload = (self._usage[broker] - average - 0.10 + 0.05) * seen.load[broker]
            marked = 0.0
            for client in self._heaviest(seen, broker, weight):
                if marked >= offload:
                    break
                marked += 2.0 * weight[client]
                chosen.append(client)
        return self._placed(seen, chosen)


class Uniform(Shedder):
    """UniformLoadShedder: off the broker of the highest rate, when the lowest has less than two thirds of that."""

    name = "uniform"

    def shed(self, seen: Seen, weight: Floats, usage: Floats) -> list[tuple[int, int]]:
        load = np.where(seen.alive, seen.load, np.nan)
        fullest, least = int(np.nanargmax(load)), float(np.nanmin(load))
        most = float(load[fullest])
        if not most > 1.5 * max(least, 1e-9):
            return []
        required, marked = 0.2 * (most - least), 0.0
        chosen: list[int] = []
        for client in self._heaviest(seen, fullest, weight):
            if marked + 2.0 * weight[client] <= required:
                marked += 2.0 * weight[client]
                chosen.append(client)
        return self._placed(seen, chosen)


class Average(Shedder):
    """AvgShedder (PIP-364): the fullest gives half of the difference to the emptiest, when it has differed a while."""

    name = "average"

    def __init__(self, case: Case, seed: int = 0) -> None:
        super().__init__(case, seed)
        self._low: dict[int, int] = {}
        self._high: dict[int, int] = {}

    def shed(self, seen: Seen, weight: Floats, usage: Floats) -> list[tuple[int, int]]:
        order = [b for b in np.argsort(usage, kind="stable").tolist() if seen.alive[b]]
        made: list[tuple[int, int]] = []
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
            marked, half = 0.0, float(seen.load[high] - seen.load[low]) / 2
            for client in self._heaviest(seen, high, weight):
                if marked + 2.0 * weight[client] <= half:
                    marked += 2.0 * weight[client]
                    made.append((client, low))
        return made


NAMED: Final = {"threshold": Threshold, "uniform": Uniform, "average": Average}
