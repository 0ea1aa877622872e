"""The latency summary of topics in Gupta et al. (SEC'21, 3.2): centroids of producers and consumers, and deviations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import MissingColumn
from trimtab.model.coordinates import Coordinates
from trimtab.model.nearness import Ends

if TYPE_CHECKING:
    from trimtab.model.nearness import Counts
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows

AT_ONCE: Final = 1 << 21  # most numbers of an intermediate result
WHY: Final = "centroids of clients and their distances from brokers"


@dataclass(frozen=True, eq=False)
class Centroids:
    """Two points per topic, and how far the clients are from them.

    ``W(t, b) = leg * (d(producers, b) + d(consumers, b) + W(t))`` is an upper bound of the estimated worst case: the
    height of a centroid is the largest height of its clients, and deviations are distances of points. With the mean
    height, as the mean of coordinates would be, it could be below the worst case. A side without clients is left out.
    """

    producer: Coordinates  # (T,)
    consumer: Coordinates  # (T,)
    deviation_ms: Floats  # (T,) W(t): the largest distance from the one centroid plus that from the other
    broker: Coordinates  # (B,)
    bound_ms: Floats  # (T,)
    leg: float

    @classmethod
    def of(cls, problem: Problem) -> Centroids:
        """From the clients whose coordinates are known. Measured pairs are not used, as in the paper."""
        tables = problem.workload.clients, problem.workload.brokers
        for table in tables:
            if table.coordinate is None:
                raise MissingColumn(table.name, "coordinate", table.present(), WHY)
        client, broker = (table.coordinate for table in tables)
        assert client is not None
        assert broker is not None
        ends = Ends.of(problem).without(~client.known)
        producer, one = _centroid(client, ends.pub_begin, ends.pub)
        consumer, other = _centroid(client, ends.sub_begin, ends.sub)
        bound = problem.workload.topics.latency_ms
        bounds = np.full(len(one), np.inf) if bound is None else np.where(np.isnan(bound), np.inf, bound)
        return cls(producer, consumer, one + other, broker, bounds, problem.leg)

    def worst_ms(self, topics: Rows) -> Floats:
        """(len(topics), B) upper bounds of the worst case; infinite for a broker without a coordinate."""
        broker = Coordinates(self.broker.point, self.broker.height, _above_zero(self.broker))
        result = np.broadcast_to(self.deviation_ms[topics, None], (len(topics), len(broker))).copy()
        for side in (self.producer, self.consumer):
            known = side.known[topics]
            step = max(1, AT_ONCE // max(broker.point.size, 1))
            rows = np.flatnonzero(known)
            for first in range(0, len(rows), step):
                part = rows[first : first + step]
                result[part] += side.take(topics[part]).rtt_ms(broker)
        return self.leg * np.nan_to_num(result, nan=np.inf, posinf=np.inf)

    def best(self, topics: Rows, most: int) -> Rows:
        """The brokers with the least bound of the worst case first, then in broker order."""
        result = np.empty((len(topics), most), np.int32)
        step = max(1, AT_ONCE // max(len(self.broker), 1))
        for first in range(0, len(topics), step):
            worst = self.worst_ms(topics[first : first + step])
            result[first : first + step] = np.argsort(worst, axis=1, kind="stable")[:, :most]
        return result

    def feasible(self, topics: Rows) -> Counts:
        """(len(topics),) brokers whose bound of the worst case is at most the topic's latency bound."""
        result = np.empty(len(topics), np.int64)
        step = max(1, AT_ONCE // max(len(self.broker), 1))
        for first in range(0, len(topics), step):
            part = topics[first : first + step]
            result[first : first + step] = (self.worst_ms(part) <= self.bound_ms[part, None]).sum(axis=1)
        return result


def _centroid(client: Coordinates, begin: Counts, rows: Rows) -> tuple[Coordinates, Floats]:
    """The centroid of each topic's clients, NaN without clients; (T,) largest distance of a client's point from it."""
    topics, count = len(begin) - 1, np.diff(begin)
    owner = np.repeat(np.arange(topics), count)
    sums = [np.bincount(owner, weights=axis[rows], minlength=topics) for axis in client.point.T]
    with np.errstate(invalid="ignore"):
        point: Floats = np.stack(sums, axis=1) / np.where(count > 0, count, np.nan)[:, None]
    distance = np.sqrt(((client.point[rows] - point[owner]) ** 2).sum(axis=1))
    height, adjustment = _most(client.height[rows], begin), _most(_above_zero(client)[rows], begin)
    height[count == 0] = np.nan
    adjustment[count == 0] = np.nan
    return Coordinates(point, height, adjustment), _most(distance, begin)


def _above_zero(coordinates: Coordinates) -> Floats:
    if coordinates.adjustment is None:
        return np.zeros(len(coordinates))
    return np.maximum(coordinates.adjustment, 0.0)


def _most(values: Floats, begin: Counts) -> Floats:
    """The largest value of each segment; zero of an empty one."""
    result = np.zeros(len(begin) - 1)
    some = np.diff(begin) > 0
    if some.any():
        result[some] = np.maximum.reduceat(values, begin[:-1][some])
    return result
