"""``topic/trim`` by network latency: each topic at the best broker for its pairs that has room, with few moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimtab.model.nearness import Nearness
from trimtab.model.network import Network
from trimtab.model.placement import UNPLACED, Bound, Placement
from trimtab.model.present import Present
from trimtab.place.client.policy import nowhere
from trimtab.place.topic.assign import LISTED, assign
from trimtab.place.topic.near import WHY, least_violations
from trimtab.place.topic.probe import PROBES
from trimtab.place.topic.room import Room

if TYPE_CHECKING:
    from trimtab.model.nearness import Counts, Ranked
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Rows
    from trimtab.place.topic.assign import Ranking
    from trimtab.place.topic.probe import Probe
    from trimtab.place.topic.trim import Trim


def place(problem: Problem, knobs: Trim) -> Placement:
    nearness = Nearness.of(problem, Network.needed(problem.workload, WHY))
    if not problem.brokers:
        return Placement("topic", nowhere(problem.units), least_violations(nearness))
    ranked = nearness.ranked(max(LISTED, PROBES))
    bound = Bound("best-brokers", float(ranked.violating[:, 0].sum()), "violating_pairs")
    home = nowhere(problem.units) if problem.current is None else problem.current.broker
    present = Present.of(nearness, home, knobs.margin, knobs.margin_ms)
    room = Room.of(problem, knobs.fill, knobs.messages)
    home = decide(ranked, present, room, home, ByPairs(nearness), knobs.probe)
    lost = np.flatnonzero((home == UNPLACED) & ~nearness.located).astype(np.int32)
    home = assign(lost, np.full(len(lost), problem.brokers), InTurn(problem.brokers), room, home)
    return Placement("topic", home, bound)


def decide(
    ranked: Ranked, present: Present, room: Room, home: Rows, further: Ranking, probe: Probe | None = None
) -> Rows:  # fmt: skip
    """New homes for topics that have to move, and for those that gain enough by it.

    This needs no client: ``ranked`` and ``present`` are what the brokers report of their topics (``observe.summary``).
    ``further`` is asked where none of the brokers on a topic's list has room. Topics without a known client stay.
    """
    brokers = room.limit.shape[1]
    must = home == UNPLACED
    must[room.to_leave(home)] = True
    better = present.better(ranked).sum(axis=1)
    topics = np.flatnonzero(present.located & (must | (better > 0))).astype(np.int32)
    shown, better = ranked.broker[topics], better[topics]
    if probe is not None and len(topics):
        shown, better = probed(topics, shown, probe, present, home[topics])
    # Topics that have to move try all brokers, others only those that are better than their own.
    tried = np.where(must[topics], brokers, better)
    feasible = ranked.feasible[topics]
    choices = np.where(feasible > 0, feasible, brokers)
    moving = tried > 0
    listed = Listed(topics[moving], shown[moving], further)
    return assign(topics[moving], choices[moving], listed, room, home, tried=tried[moving])


def probed(topics: Rows, shown: Rows, probe: Probe, present: Present, home: Rows) -> tuple[Rows, Counts]:
    """The candidates of each topic in the order of measured latencies, and the number that are better than its home.

    A topic with a home probes it too, in the place of its last candidate.
    """
    shown = shown[:, :PROBES].copy()
    absent = (home != UNPLACED) & ~(shown == home[:, None]).any(axis=1)
    shown[absent, -1] = home[absent]
    here = (shown == home[:, None]) & (shown != UNPLACED)
    less = np.where(here, present.less_ms[topics, None], 0.0)
    worst, violating = probe(topics, shown, less)
    order = np.lexsort((worst - less, violating), axis=1)
    rows = np.arange(len(topics))[:, None]
    found = here[rows, order]
    better = np.where(found.any(axis=1), found.argmax(axis=1), (shown != UNPLACED).sum(axis=1))
    return shown[rows, order], better


@dataclass(frozen=True, eq=False)
class ByPairs:
    """All brokers by estimated latency, from all clients."""

    nearness: Nearness
    listed: int = LISTED

    def best(self, topics: Rows, most: int) -> Rows:
        return self.nearness.ranked(most, topics).broker


@dataclass(frozen=True, eq=False)
class Listed:
    """The best brokers of some topics in a list, and after these the others."""

    topics: Rows  # (N,) in order
    broker: Rows  # (N, K)
    further: Ranking

    @property
    def listed(self) -> int:
        return int(self.broker.shape[1])

    def best(self, topics: Rows, most: int) -> Rows:
        listed = self.broker[np.searchsorted(self.topics, topics)]
        if most <= listed.shape[1]:
            return listed[:, :most]
        everything = self.further.best(topics, most)
        for row, first in enumerate(listed):
            others = everything[row][~np.isin(everything[row], first)]
            both = np.concatenate([first[first != UNPLACED], others])
            everything[row] = np.resize(both, most) if len(both) >= most else np.pad(
                both, (0, most - len(both)), constant_values=UNPLACED
            )  # fmt: skip
        return everything


@dataclass(frozen=True, slots=True)
class InTurn:
    """Brokers one after the other, for topics whose clients have no known latency."""

    brokers: int
    listed: int = LISTED

    def best(self, topics: Rows, most: int) -> Rows:
        return np.asarray((topics[:, None] + np.arange(most)) % self.brokers, np.int32)
