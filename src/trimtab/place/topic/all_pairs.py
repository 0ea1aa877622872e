"""``topic/all-pairs``: the baseline AllPairs of Gupta et al. (SEC'21, 5.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.place.knobs import check
from trimtab.place.topic.assign import LISTED
from trimtab.place.topic.near import NearPolicy

if TYPE_CHECKING:
    from trimtab.model.nearness import Counts, Nearness
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Rows
    from trimtab.place.topic.assign import Ranking


@dataclass(frozen=True, slots=True)
class AllPairs(NearPolicy):
    """Assigns topics to brokers by the worst case over all pairs of publisher and subscriber (Gupta, 5.5, AllPairs).

    Algorithm 1 with the coordinate of every client instead of centroids. With a current placement, only topics whose
    bound is violated and topics of overloaded brokers move; without one, all topics are placed.
    """

    def __post_init__(self) -> None:
        check(self)

    def ranking(self, problem: Problem, nearness: Nearness, topics: Rows) -> tuple[Ranking, Counts]:
        return ByWorstCase(nearness), nearness.ranked(1, topics, by_pairs=False).feasible


@dataclass(frozen=True, eq=False)
class ByWorstCase:
    """The least worst case first, then in broker order."""

    nearness: Nearness
    listed: int = LISTED

    def best(self, topics: Rows, most: int) -> Rows:
        return self.nearness.ranked(most, topics, by_pairs=False).broker
