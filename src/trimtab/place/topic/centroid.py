"""``topic/centroid``: broker selection of ePulsar (Gupta et al., SEC'21, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.model.centroids import Centroids
from trimtab.place.knobs import check
from trimtab.place.topic.assign import LISTED
from trimtab.place.topic.near import NearPolicy

if TYPE_CHECKING:
    from trimtab.model.nearness import Counts, Nearness
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Rows
    from trimtab.place.topic.assign import Ranking


@dataclass(frozen=True, slots=True)
class Centroid(NearPolicy):
    """Assigns topics to brokers near the centroids of their producers and consumers (Gupta, Algorithm 1, ePulsar).

    Of the brokers that keep the bound by the centroids and the largest deviations from them, or of all if none does,
    the one with the least worst case that has room. Topics with the fewest such brokers come first. With a current
    placement, only topics whose bound is violated and topics of overloaded brokers move; without one, all are placed.
    """

    def __post_init__(self) -> None:
        check(self)

    def ranking(self, problem: Problem, nearness: Nearness, topics: Rows) -> tuple[Ranking, Counts]:
        centroids = Centroids.of(problem)
        return ByCentroids(centroids), centroids.feasible(topics)


@dataclass(frozen=True, eq=False)
class ByCentroids:
    """The least worst case by centroids first, then in broker order."""

    centroids: Centroids
    listed: int = LISTED

    def best(self, topics: Rows, most: int) -> Rows:
        return self.centroids.best(topics, most)
