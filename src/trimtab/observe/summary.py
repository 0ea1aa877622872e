"""What a broker reports of the latency of each topic that it hosts: a constant size, however many clients there are.

Gupta et al. (SEC'21, 3.2) report two centroids and the deviations from them. A broker that hosts a topic knows the
coordinates of all of its clients and of all brokers, though. So it can rank the brokers itself, by all pairs, and
report the two best ones: eight values, from which a topic is placed as by all pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from trimtab.model.margin import MARGIN, MARGIN_MS
from trimtab.model.nearness import Ranked
from trimtab.model.placement import UNPLACED
from trimtab.model.present import MANY, Present, gain_needed
from trimtab.observe.best_brokers import DIGITS, LISTED, BestBrokers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.model.centroids import Centroids
    from trimtab.model.coordinates import Coordinates
    from trimtab.model.ids import Ids
    from trimtab.model.nearness import Hosted, Nearness
    from trimtab.model.workload import Floats, Rows


class CentroidSummary(msgspec.Struct, array_like=True, frozen=True):
    """The summary of the paper. Coordinates are points, then heights."""

    producer: list[float]
    consumer: list[float]
    deviation_ms: float  # W(t)
    worst_ms: float | None  # E(t)


class ClientCoordinates(msgspec.Struct, array_like=True, frozen=True):
    """No summary: the coordinate of every client, as the paper's AllPairs needs it."""

    producers: list[list[float]]
    consumers: list[list[float]]


def best_brokers(
    nearness: Nearness, home: Rows, brokers: Ids, margin: float = MARGIN, margin_ms: float = MARGIN_MS
) -> list[BestBrokers]:  # fmt: skip
    """The exact summary of every topic."""
    ranked = nearness.ranked(LISTED)
    present = Present.of(nearness, home, margin, margin_ms)
    names, none = [*brokers, ""], len(brokers)
    broker = np.full((len(home), LISTED), none)
    broker[:, : ranked.broker.shape[1]] = np.where(ranked.broker == UNPLACED, none, ranked.broker)
    broker[~present.located] = none
    worst = np.full(broker.shape, np.inf)
    worst[:, : ranked.broker.shape[1]] = ranked.worst_ms
    violating = ranked.violating[:, 0] if ranked.violating.size else np.zeros(len(home), np.int64)
    hosted = np.where(present.located, present.worst_ms + present.less_ms, np.inf)
    columns = zip(
        _rounded(hosted), np.where(home == UNPLACED, 0, present.violating).tolist(), ranked.feasible.tolist(),
        broker.tolist(), _rounded(worst[:, 0]), _rounded(worst[:, 1]), violating.tolist(), strict=True,
    )  # fmt: skip
    return [
        BestBrokers(at_home, late, feasible, names[best], best_ms, best_late, names[second], second_ms)
        for at_home, late, feasible, (best, second), best_ms, second_ms, best_late in columns
    ]


def as_columns(
    summaries: Sequence[BestBrokers], home: Rows, bound_ms: Floats, brokers: Ids, margin: float = MARGIN,
    margin_ms: float = MARGIN_MS,
) -> tuple[Ranked, Present]:  # fmt: skip
    """The reports of all topics as the columns that ``topic/trim`` decides by (``by_network.decide``)."""
    broker = np.stack([brokers.find([each.broker or None for each in summaries]),
                       brokers.find([each.second or None for each in summaries])], axis=1)  # fmt: skip
    worst = np.array([[_or_infinite(each.broker_ms), _or_infinite(each.second_ms)] for each in summaries])
    late = np.array([each.broker_violating for each in summaries], np.int64)
    second_late = np.where(worst[:, 1] <= bound_ms, 0, MANY)  # how many pairs it violates is not reported
    feasible = np.array([each.feasible for each in summaries], np.int64)
    ranked = Ranked(broker, worst, np.stack([late, second_late], axis=1), feasible)
    hosted = np.array([_or_infinite(each.worst_ms) for each in summaries])
    less = gain_needed(hosted, margin, margin_ms)
    violating = np.array([each.violating for each in summaries], np.int64)
    located = broker[:, 0] != UNPLACED
    present = Present(hosted - less, np.where(home == UNPLACED, MANY, violating), less, located)
    return ranked, present


def centroid_summaries(centroids: Centroids, hosted: Hosted) -> list[CentroidSummary]:
    """The paper's summary of every topic."""
    sides = [_listed(side) for side in (centroids.producer, centroids.consumer)]
    deviation = [round(value, DIGITS) for value in centroids.deviation_ms.tolist()]
    return [
        CentroidSummary(producer, consumer, far, worst)
        for producer, consumer, far, worst in zip(*sides, deviation, _rounded(hosted.worst_ms), strict=True)
    ]


def client_coordinates(nearness: Nearness, coordinates: Coordinates) -> list[ClientCoordinates]:
    """Every topic with the coordinates of all of its clients."""
    listed, ends = _listed(coordinates), nearness.ends
    return [
        ClientCoordinates(
            [listed[row] for row in ends.pub[ends.pub_begin[topic] : ends.pub_begin[topic + 1]]],
            [listed[row] for row in ends.sub[ends.sub_begin[topic] : ends.sub_begin[topic + 1]]],
        )
        for topic in range(len(nearness.bound_ms))
    ]


def wire_bytes(topics: Sequence[str], summaries: Sequence[msgspec.Struct]) -> int:
    """The size of a report of these topics, encoded as reports are."""
    return len(msgspec.json.encode(dict(zip(topics, summaries, strict=True))))


def _listed(coordinates: Coordinates) -> list[list[float]]:
    numbers = np.concatenate([coordinates.point, coordinates.height[:, None]], axis=1)
    return [list(row) if known else [] for row, known in
            zip(np.round(numbers, DIGITS).tolist(), coordinates.known.tolist(), strict=True)]  # fmt: skip


def _rounded(values: Floats) -> list[float | None]:
    """Infinite and missing values are None: JSON has no numbers for them."""
    known = np.isfinite(values).tolist()
    return [round(value, DIGITS) if there else None for value, there in zip(values.tolist(), known, strict=True)]


def _or_infinite(value: float | None) -> float:
    return np.inf if value is None else value
