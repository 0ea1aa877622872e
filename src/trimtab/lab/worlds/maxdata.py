"""The random instances of Lambert & Sakellariou, Section V."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import BadKnob
from trimtab.lab.worlds.option import option
from trimtab.model.ids import Ids
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

# LowVariance is printed as "8 to 19"; only 8 to 12 fits the mean of 10 and Figure 4 (see docs/internals/links.md).
RATES: Final[dict[str, tuple[int, int]]] = {"homogeneous": (10, 10), "low": (8, 12), "high": (1, 19)}


@dataclass(frozen=True, slots=True)
class MaxData:
    """Every subscriber subscribes to the same number of publishers, drawn at random without repetition."""

    publishers: int = option(100, "topics, one publisher each")
    subscribers: int = option(100, "clients")
    edges: int = option(5, "subscriptions of each subscriber")
    rates: str = option("homogeneous", f"distribution of publication rates: {', '.join(RATES)}, or uniform:LOW:HIGH")
    machines: int = option(10, "brokers")
    bandwidth: float = option(500.0, "data/s of a machine, in and out together")
    spread: float = option(0.0, "bandwidths are drawn from (1 - spread, 1 + spread) times --bandwidth")

    def __post_init__(self) -> None:
        for knob in ("publishers", "subscribers", "edges", "machines"):
            if getattr(self, knob) < 1:
                raise BadKnob("maxdata", knob, getattr(self, knob), "at least 1")
        if self.edges > self.publishers:
            raise BadKnob("maxdata", "edges", self.edges, f"at most the {self.publishers} publishers")
        if not 0.0 <= self.bandwidth < np.inf:
            raise BadKnob("maxdata", "bandwidth", self.bandwidth, "zero or more, and finite")
        if not 0.0 <= self.spread < 1.0:
            raise BadKnob("maxdata", "spread", self.spread, "in [0, 1)")
        self._rate_range()

    def _rate_range(self) -> tuple[float, float]:
        if self.rates in RATES:
            return RATES[self.rates]
        kind, *ends = self.rates.split(":")
        try:
            low, high = (float(end) for end in ends)
        except ValueError:
            low, high = 1.0, 0.0
        if kind != "uniform" or not 0.0 <= low <= high < np.inf:
            raise BadKnob("maxdata", "rates", self.rates, f"{', '.join(RATES)}, or uniform:LOW:HIGH with LOW <= HIGH")
        return low, high

    def make(self, seed: int) -> Workload:
        rng = np.random.default_rng(seed)
        low, high = self._rate_range()
        if self.rates in RATES:
            rate = rng.integers(int(low), int(high), self.publishers, endpoint=True).astype(np.float64)
        else:
            rate = rng.uniform(low, high, self.publishers)
        topic = distinct_draws(rng, self.subscribers, self.edges, self.publishers).ravel()
        client = np.repeat(np.arange(self.subscribers, dtype=np.int32), self.edges)
        bandwidth = np.full(self.machines, float(self.bandwidth))
        if self.spread > 0.0:
            bandwidth *= rng.uniform(1.0 - self.spread, 1.0 + self.spread, self.machines)
        return Workload(
            Topics(Ids.numbered("p", self.publishers), rate),
            Clients(Ids.numbered("s", self.subscribers)),
            Brokers(Ids.numbered("m", self.machines), bandwidth),
            Links.subscriptions(topic, client),
        )


def distinct_draws(rng: np.random.Generator, rows: int, draws: int, among: int) -> NDArray[np.int32]:
    """``draws`` different numbers below ``among`` in each of ``rows`` rows, every set equally likely.

    If repeated numbers are rare, rows that contain one are drawn again. Otherwise a row is the beginning of a random
    permutation.
    """
    if draws * draws > 2 * among:
        return np.stack([rng.permutation(among)[:draws] for _ in range(rows)]).astype(np.int32)
    drawn = rng.integers(0, among, (rows, draws), dtype=np.int32)
    again = np.arange(rows)
    while len(again):
        in_order = np.sort(drawn[again], axis=1)
        again = again[(in_order[:, 1:] == in_order[:, :-1]).any(axis=1)]
        drawn[again] = rng.integers(0, among, (len(again), draws), dtype=np.int32)
    return drawn
