"""The simulated system of Nguyen et al. (DEBS'19), 6.2.1: channels with subscriptions, people around their brokers.

The paper leaves two points open. Chosen here: rates are N(20, 5) in KB/s, so that the mean load is above beta = 300
MB/s. The share of people around the j-th broker falls as j^-0.7, so that the first has more than 2,000 of 10,000 people
and the last about 500, as in Figure 13.
"""

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

    Whole = NDArray[np.int64]

FIELD_KM: Final = 100.0
SCATTER_KM: Final = 3.0  # standard deviation of people's distance from their broker, per axis
LEAST_RATE: Final = 0.1  # smallest rate, as a share of the mean
INTERESTS: Final = ("uniform", "communities", "zipf")


@dataclass(frozen=True, slots=True)
class Bad:
    """Backend subscriptions are topics, their rates in KB/s; subscribers are clients."""

    brokers: int = option(10, "how many brokers")
    subscribers: int = option(10_000, "how many subscribers")
    backend: int = option(1_000, "how many backend subscriptions, of all channels together")
    fewest: int = option(10, "subscriptions that a subscriber has at least")
    most: int = option(30, "subscriptions that a subscriber has at most")
    rate: float = option(20.0, "mean data rate of a backend subscription, KB/s")
    rate_sd: float = option(5.0, "standard deviation of the rates, KB/s")
    skew: float = option(0.7, "the number of people around the j-th broker is proportional to j^-skew")
    interest: str = option("uniform", "what people subscribe to: uniform, communities or zipf")
    communities: int = option(100, "how many communities, with --interest communities")
    own: float = option(0.9, "share of a subscriber's subscriptions within the own community")
    zipf: float = option(1.0, "exponent of popularity, with --interest zipf")

    def __post_init__(self) -> None:
        for name in ("brokers", "subscribers", "backend", "fewest", "communities"):
            if getattr(self, name) < 1:
                raise BadKnob("bad", name, getattr(self, name), "at least 1")
        if not self.fewest <= self.most <= self.backend:
            raise BadKnob("bad", "most", self.most, f"from fewest ({self.fewest}) to backend ({self.backend})")
        for name in ("rate", "rate_sd", "skew", "zipf"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise BadKnob("bad", name, getattr(self, name), "zero or more")
        if not 0.0 <= self.own <= 1.0:
            raise BadKnob("bad", "own", self.own, "from 0 to 1")
        if self.own == 1.0 and self.most > self.backend // self.communities:
            smallest = self.backend // self.communities
            raise BadKnob("bad", "most", self.most, f"at most {smallest}, the size of a community, where own is 1")
        if self.interest not in INTERESTS:
            raise BadKnob("bad", "interest", self.interest, f"one of {', '.join(INTERESTS)}")

    def make(self, seed: int) -> Workload:
        rng = np.random.default_rng(seed)
        rate = np.maximum(rng.normal(self.rate, self.rate_sd, self.backend), LEAST_RATE * self.rate)
        place = rng.uniform(0.0, FIELD_KM, (self.brokers, 2))
        share = np.arange(1, self.brokers + 1) ** -self.skew
        near = rng.choice(self.brokers, self.subscribers, p=share / share.sum())
        people = place[near] + rng.normal(0.0, SCATTER_KM, (self.subscribers, 2))
        client, topic = self._subscriptions(rng)
        return Workload(
            Topics(Ids.numbered("be", self.backend), rate),
            Clients(Ids.numbered("u", self.subscribers), x_km=people[:, 0], y_km=people[:, 1]),
            Brokers(Ids.numbered("b", self.brokers), x_km=place[:, 0], y_km=place[:, 1]),
            Links.subscriptions(topic, client),
        )

    def _subscriptions(self, rng: np.random.Generator) -> tuple[Whole, Whole]:
        """Distinct (subscriber, backend subscription) pairs, grouped by subscriber."""
        count = rng.integers(self.fewest, self.most, self.subscribers, endpoint=True)
        community = rng.integers(0, self.communities, self.subscribers)
        pairs = np.zeros(0, np.int64)  # sorted
        missing = count
        while missing.any():  # repeated pairs are drawn again
            subscriber = np.repeat(np.arange(self.subscribers), missing)
            drawn = np.unique(subscriber * self.backend + self._drawn(rng, community[subscriber]))
            at = np.searchsorted(pairs, drawn)
            fresh = (
                drawn[(at == len(pairs)) | (pairs[np.minimum(at, len(pairs) - 1)] != drawn)] if len(pairs) else drawn
            )
            pairs = np.insert(pairs, np.searchsorted(pairs, fresh), fresh)
            missing = missing - np.bincount(fresh // self.backend, minlength=self.subscribers)
        return pairs // self.backend, pairs % self.backend

    def _drawn(self, rng: np.random.Generator, community: Whole) -> Whole:
        many = len(community)
        if self.interest == "zipf":
            weight = np.arange(1, self.backend + 1, dtype=np.float64) ** -self.zipf
            return rng.choice(self.backend, many, p=weight / weight.sum())
        anything = rng.integers(0, self.backend, many)
        if self.interest == "uniform":
            return anything
        first = community * self.backend // self.communities
        size = (community + 1) * self.backend // self.communities - first
        own = first + (rng.random(many) * size).astype(np.int64)
        return np.where((rng.random(many) < self.own) & (size > 0), own, anything)
