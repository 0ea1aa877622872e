"""What topics take of their brokers, and what brokers may carry (Gupta et al., SEC'21, 3.4.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimtab.model.judgement import TOLERANCE
from trimtab.model.placement import UNPLACED
from trimtab.model.workload import SUB
from trimtab.place.wire import Traffic

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows
    from trimtab.predict.sets import Ints


@dataclass(frozen=True, eq=False)
class Room:
    """Resources by row: messages/s, and where the workload has them, data/s and cores."""

    use: Floats  # (R, T) of each topic
    limit: Floats  # (R, B) of each broker, with the tolerance of the judge
    watermark: Floats  # (R,) share of a broker's capacity that the limit is

    @classmethod
    def of(cls, problem: Problem, fill: float, messages: float | None) -> Room:
        """``fill``: share of bandwidth and cores that may be used. ``messages``: most messages/s of a broker, in and
        out together; None: no limit."""
        workload = problem.workload
        rows = [_whole(problem, in_messages=True)]
        limits = [np.full(problem.brokers, np.inf if messages is None else messages)]
        shares = [1.0]
        if workload.brokers.bandwidth is not None:
            rows.append(_whole(problem))
            limits.append(fill * workload.brokers.bandwidth)
            shares.append(fill)
        processing = workload.topics.processing_ms
        if processing is not None and workload.brokers.cores is not None:
            speed = 1.0 if workload.brokers.cpu_speed is None else workload.brokers.cpu_speed
            rows.append(workload.topics.rate * processing / 1000.0)
            limits.append(fill * workload.brokers.cores * speed)
            shares.append(fill)
        return cls(np.stack(rows), np.stack(limits) * (1.0 + TOLERANCE), np.array(shares))

    def used(self, home: Rows) -> Floats:
        """(R, B) of the topics at their brokers."""
        placed = home != UNPLACED
        brokers = self.limit.shape[1]
        return np.stack(
            [np.bincount(home[placed], weights=row[placed], minlength=brokers).astype(np.float64) for row in self.use]
        )

    def to_leave(self, home: Rows) -> Ints:
        """Topics whose departure relieves the brokers above a limit: those with the highest rate of messages first
        (Gupta et al., 3.4.3).

        For a broker above a limit of hardware, its rate of messages has to fall by the same share as its use.
        """
        used = self.used(home)
        leaving: list[int] = []
        for broker in np.flatnonzero((used > self.limit).any(axis=0)).tolist():
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(used[:, broker] > self.limit[:, broker], self.limit[:, broker] / used[:, broker], 1.0)
            target, rate = float(share.min()) * used[0, broker], used[0, broker]
            here = np.flatnonzero(home == broker)
            for topic in here[np.argsort(-self.use[0, here], kind="stable")].tolist():
                if rate <= target:
                    break
                leaving.append(topic)
                rate -= self.use[0, topic]
        return np.array(sorted(leaving), np.int64)


def _whole(problem: Problem, *, in_messages: bool = False) -> Floats:
    """(T,) traffic per second of every topic in and out of a broker that has all of its links."""
    traffic = Traffic.of(problem.workload, in_messages=in_messages)
    links = problem.workload.links
    subscribes = links.role == SUB
    copies = np.bincount(links.topic[subscribes], weights=traffic.weight[subscribes], minlength=len(traffic.published))
    out = traffic.delivered * (copies + traffic.relayed + traffic.taps)
    return np.asarray(traffic.published * (1.0 + traffic.relayed) + out)
