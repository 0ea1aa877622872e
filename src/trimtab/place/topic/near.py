"""The base of Algorithm 1 of Gupta et al. (SEC'21): topics near their clients, within the limits of brokers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.model.nearness import Nearness
from trimtab.model.network import Network
from trimtab.model.placement import UNPLACED, Bound, Placement
from trimtab.place.client.policy import nowhere
from trimtab.place.knobs import knob
from trimtab.place.topic.assign import assign
from trimtab.place.topic.room import Room

if TYPE_CHECKING:
    from trimtab.model.nearness import Counts
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Rows
    from trimtab.place.topic.assign import Ranking

FILL: Final = 0.85  # of a broker's bandwidth and cores (3.4.2)
MESSAGES: Final = 1_500_000.0  # messages/s of a broker, in and out together (5.4)
WHY: Final = "latencies between clients and brokers; network coordinates in both tables, or a table rtt"


@dataclass(frozen=True, slots=True)
class NearPolicy:
    """Algorithm 1, with an estimate of latencies that a subclass provides."""

    messages: float = knob(MESSAGES, "most messages/s of a broker, in and out together", least=0.0)
    fill: float = knob(FILL, "share of a broker's bandwidth and cores that may be in use", least=0.0, most=1.0)

    may_leave_unplaced: ClassVar[bool] = True
    keeps_limits: ClassVar[bool] = False

    def place(self, problem: Problem) -> Placement:
        nearness = Nearness.of(problem, Network.needed(problem.workload, WHY))
        bound = least_violations(nearness)
        if not problem.brokers:
            return Placement("topic", nowhere(problem.units), bound)
        room = Room.of(problem, self.fill, self.messages)
        home = nowhere(problem.units) if problem.current is None else problem.current.broker
        topics = to_place(nearness, room, home)
        ranking, feasible = self.ranking(problem, nearness, topics)
        # Without a feasible broker, all brokers are candidates (3.4.1).
        choices = np.where(feasible > 0, feasible, problem.brokers)
        return Placement("topic", assign(topics, choices, ranking, room, home), bound)

    def ranking(self, problem: Problem, nearness: Nearness, topics: Rows) -> tuple[Ranking, Counts]:
        """The order of brokers, and for each of these topics the number of brokers that keep its bound."""
        raise NotImplementedError


def to_place(nearness: Nearness, room: Room, home: Rows) -> Rows:
    """Topics without a broker, with a violated bound, or to be moved from an overloaded broker (lines 13 to 21)."""
    hosted = nearness.at(home)
    violated = (home == UNPLACED) | (hosted.worst_ms > nearness.bound_ms)
    violated[room.to_leave(home)] = True
    return np.flatnonzero(violated).astype(np.int32)


def least_violations(nearness: Nearness) -> Bound:
    """No placement has fewer violating pairs, if every topic had the best broker for itself alone."""
    best = nearness.ranked(1).violating
    return Bound("best-brokers", float(best.sum()) if best.size else 0.0, "violating_pairs")
