"""Requests for the co-location of topics, as in Khare et al. (SEC'18, VI-B and VI-C) and in the authors' code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from trimtab.errors import BadKnob
from trimtab.lab.worlds.option import option
from trimtab.model.ids import Ids
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload

R_MAX: Final = {10: 78, 20: 37, 30: 24, 40: 20}  # messages/s that a topic alone sustains, by processing_ms (VI-B)
BELOW: Final = 6  # the authors' code draws rates up to 5 below the largest rate that it knows
TOP: Final = 5  # rates of a skewed request come from the top and the bottom five of that range
KINDS: Final = ("u", "u5", "skew")


@dataclass(frozen=True, slots=True)
class Colocation:
    """Topics with a processing time of 10, 20, 30 or 40 ms, at rates up to what one broker sustains.

    ``u``: uniform up to the largest rate, as the paper says. ``u5``: uniform up to 6 messages/s below that, and
    ``skew``: one half of the topics from the five highest of those rates, the other half from 1 to 5; both are in the
    authors' code.
    """

    kind: str = option("u", "request: u, u5 or skew")
    topics: int = option(50, "topics; there are as many brokers")
    latency_ms: float = option(1000.0, "bound of every topic's p90 latency")

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadKnob("colocation", "kind", self.kind, f"one of {', '.join(KINDS)}")
        if self.topics < 1:
            raise BadKnob("colocation", "topics", self.topics, "at least 1")
        if not 0.0 < self.latency_ms < np.inf:
            raise BadKnob("colocation", "latency_ms", self.latency_ms, "more than zero, and finite")

    def make(self, seed: int) -> Workload:
        rng = np.random.default_rng(seed)
        nominal, highest = (np.array(column) for column in zip(*R_MAX.items(), strict=True))
        drawn = rng.integers(0, len(nominal), self.topics)
        most = highest[drawn] - (0 if self.kind == "u" else BELOW)
        rate = rng.integers(1, most, endpoint=True)
        if self.kind == "skew":
            high = rng.integers(most - TOP + 1, most, endpoint=True)
            rate = np.where(rng.random(self.topics) < 0.5, high, rng.integers(1, TOP, self.topics, endpoint=True))
        return Workload(
            Topics(
                Ids.numbered("t", self.topics), rate.astype(np.float64),
                processing_ms=nominal[drawn].astype(np.float64),
                latency_ms=np.full(self.topics, self.latency_ms),
            ),
            Clients(Ids.numbered("s", self.topics)),
            Brokers(Ids.numbered("b", self.topics)),
            Links.subscriptions(np.arange(self.topics), np.arange(self.topics)),
        )  # fmt: skip
