"""Network latency of whole topics at every broker, for topics with a bound.

It is computed from the positions that clients have reported (``model.nearness``). A broker reports a topic directly
when its clients have moved and its bound is missed (``ReportMissed``). Such a report is newer than the positions in the
measurement, which take some seconds to arrive, so it overrides them for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.model.key import Key
from trimtab.model.margin import MARGIN, MARGIN_MS
from trimtab.model.nearness import Nearness
from trimtab.model.network import Network
from trimtab.model.placement import UNPLACED
from trimtab.model.present import gain_needed
from trimtab.model.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from trimtab.control.view import View
    from trimtab.model.nearness import Counts
    from trimtab.model.workload import Floats, Rows
    from trimtab.observe.best_brokers import AtBrokers

LATE_S: Final = 15.0  # longest time after which a measurement contains a change of a client's position


@dataclass(frozen=True, eq=False)
class NetworkByBroker:
    """Row n is the topic of row ``topic[n]`` in the view's workload. A topic whose latency at its own broker is not
    known is left out."""

    topic: Rows  # (N,)
    home: Rows  # (N,) broker of the topic, UNPLACED if it is not alive
    worst_ms: Floats  # (N, B) of all pairs of a publisher and a subscriber; infinite where it is not known
    violating: Counts  # (N, B) pairs above the bound
    late: Counts  # (N,) pairs above the bound at its broker by more than the improvement that a move needs

    @classmethod
    def of(cls, view: View) -> NetworkByBroker:
        topics = view.snapshot.workload.topics
        bounds = topics.latency_ms
        rows = np.zeros(0, np.int32)
        if bounds is not None and len(view.brokers):
            rows = np.flatnonzero(view.whole & ~np.isnan(bounds)).astype(np.int32)
        home = view.homes(rows)
        worst = np.full((len(rows), len(view.brokers)), np.inf)
        violating, late = np.zeros(worst.shape, np.int64), np.zeros(len(rows), np.int64)
        workload = view.workload
        network = Network.of(workload) if len(rows) else None
        if network is not None:
            nearness = Nearness.of(Problem(workload, "topic"), network)
            known = nearness.located[rows]
            every = np.tile(np.arange(worst.shape[1], dtype=np.int32), int(known.sum()))
            hosted = nearness.some_at(np.repeat(rows[known], worst.shape[1]), every)
            worst[known] = np.nan_to_num(hosted.worst_ms, nan=np.inf, posinf=np.inf).reshape(-1, worst.shape[1])
            violating[known] = hosted.violating.reshape(-1, worst.shape[1])
            now = np.where(home == UNPLACED, np.inf, worst[np.arange(len(rows)), home])
            here = nearness.some_at(rows, home, less_ms=gain_needed(now, MARGIN, MARGIN_MS))
            late = np.where(known, here.violating, 0)
        found = cls(rows, home, worst, violating, late)
        if bounds is not None and view.snapshot.missed:
            found._override(view, bounds[rows])
        at_home = worst[np.arange(len(rows)), home]
        kept = np.where(home == UNPLACED, np.isfinite(worst).any(axis=1), np.isfinite(at_home))
        return cls(*(column[kept] for column in (found.topic, home, worst, violating, late)))

    def _override(self, view: View, bound_ms: Floats) -> None:
        """Take over what brokers have reported of topics that they host."""
        ids, brokers = view.snapshot.workload.topics.ids, view.brokers
        row = {ids[int(topic)]: number for number, topic in enumerate(self.topic)}
        for name, report in view.snapshot.missed.items():
            if (number := row.get(name)) is None:
                continue
            for column, broker in enumerate(brokers):
                if (reported := report.brokers.get(broker)) is not None:
                    self.worst_ms[number, column], self.violating[number, column] = reported
            home = int(self.home[number])
            if home == UNPLACED:
                continue
            if brokers[home] == report.broker:
                self.late[number] = report.violating
            else:  # it has moved since then
                now = self.worst_ms[number, home]
                inside = now - gain_needed(now, MARGIN, MARGIN_MS) <= bound_ms[number]
                self.late[number] = 0 if inside else self.violating[number, home]

    @cached_property
    def at_home_ms(self) -> Floats:
        """(N,) at the topic's broker, infinite if that is not alive."""
        return np.where(self.home == UNPLACED, np.inf, self.worst_ms[np.arange(len(self.home)), self.home])

    def violating_by_key(self, view: View) -> dict[int, Counts]:
        """(B,) pairs above the bound at every broker, by the row of the topic's key."""
        ids = view.snapshot.workload.topics.ids
        rows = (view.rows[Key("topic", ids[topic], "")] for topic in self.topic.tolist())
        return dict(zip(rows, self.violating, strict=True))

    def better(self) -> NDArray[np.bool_]:
        """(N, B) brokers that are better for a topic than its own by enough to be worth a move: fewer violating pairs,
        or as many and a smaller worst case."""
        enough = self.at_home_ms - gain_needed(self.at_home_ms, MARGIN, MARGIN_MS)
        fewer = self.violating < self.late[:, None]
        nearer = (self.violating == self.late[:, None]) & (self.worst_ms < enough[:, None])
        return np.asarray(np.isfinite(self.worst_ms) & (fewer | nearer))


def newest(reports: Mapping[str, AtBrokers], measured_at: float) -> dict[str, AtBrokers]:
    """Reports that tell more than the measurement."""
    return {topic: report for topic, report in reports.items() if report.at > measured_at - LATE_S}
