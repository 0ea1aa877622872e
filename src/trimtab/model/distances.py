"""How far clients and brokers are apart, for policies that go by distance: by their positions, or else by the network.

Positions come first: the papers' policies are stated in them. A workload without positions, such as that of a live
fleet, needs network coordinates, and measured round-trip times override what these estimate. A client whose latency is
not known counts as the median client. A pair whose latency is not known counts as the longest known one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimtab.errors import MissingColumn
from trimtab.model.network import Network
from trimtab.model.positions import AT_ONCE, km_between, points

if TYPE_CHECKING:
    from trimtab.model.coordinates import Coordinates
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows, Workload

WHY = "network latencies between brokers; the workload has no positions"


@dataclass(frozen=True, eq=False)
class Latencies:
    """Round-trip times between all clients and all brokers."""

    network: Network
    typical_ms: Floats  # (B,) of the median client, for clients whose latency is not known
    longest_ms: float

    @classmethod
    def of(cls, workload: Workload) -> Latencies:
        network = Network.needed(workload, "how far clients and brokers are apart; or lat and lon, or x_km and y_km")
        every = np.arange(len(workload.brokers), dtype=np.int32)
        known = np.flatnonzero(network.known()).astype(np.int32)
        some = known[:: max(1, len(known) * max(len(every), 1) // AT_ONCE + 1)]  # enough for a median
        times = network.rtt_ms(some, every)
        longest = float(np.nanmax(times)) if np.isfinite(times).any() else 0.0
        times = np.where(np.isnan(times), longest, times)
        return cls(network, np.median(times, axis=0) if len(some) else np.zeros(len(every)), longest)

    def rtt_ms(self, clients: Rows, brokers: Rows) -> Floats:
        """(len(clients), len(brokers)) without gaps."""
        times = self.network.rtt_ms(clients, brokers)
        lost = np.isnan(times).all(axis=1)
        times[lost] = self.typical_ms[brokers]
        return np.where(np.isnan(times), self.longest_ms, times)


def by_network(workload: Workload) -> bool:
    """Whether distances are network latencies: there are some, and there are no positions."""
    return not has_positions(workload) and Network.of(workload) is not None


def has_positions(workload: Workload) -> bool:
    tables = (workload.clients, workload.brokers)
    return any(
        all(getattr(table, name) is not None for table in tables for name in names)
        for names in (("x_km", "y_km"), ("lat", "lon"))
    )


def has_distances(workload: Workload) -> bool:
    """Whether the distances between clients and brokers, and among brokers, are known."""
    return has_positions(workload) or (
        workload.clients.coordinate is not None and workload.brokers.coordinate is not None
    )


def nearest(workload: Workload, among: Rows) -> Rows:
    """For every client, the position in ``among`` (rows of brokers) of the nearest broker; ties: the first."""
    count = len(workload.clients)
    step = max(1, AT_ONCE // max(len(among), 1))
    parts = []
    if by_network(workload):
        latencies = Latencies.of(workload)
        for at in range(0, count, step):
            rows = np.arange(at, min(at + step, count), dtype=np.int32)
            parts.append(latencies.rtt_ms(rows, among).argmin(axis=1))
    else:
        client, broker = points(workload.clients, workload.brokers)
        for at in range(0, count, step):
            parts.append(km_between(client[at : at + step], broker[among]).argmin(axis=1))
    return np.concatenate(parts).astype(np.int32) if parts else np.zeros(0, np.int32)


def between(workload: Workload) -> Floats:
    """(clients, brokers) distances: km, or ms of round-trip time."""
    if not by_network(workload):
        return km_between(*points(workload.clients, workload.brokers))
    rows = (np.arange(len(table), dtype=np.int32) for table in (workload.clients, workload.brokers))
    return Latencies.of(workload).rtt_ms(*rows)


def delays_ms(problem: Problem) -> tuple[Floats, Floats]:
    """(clients, brokers) and (brokers, brokers) delays of one way."""
    load = problem.workload
    if not by_network(load):
        client, broker = points(load.clients, load.brokers)
        per_km = problem.delays.ms_per_km
        return per_km * km_between(client, broker), per_km * km_between(broker, broker)
    coordinate = _needed(load.brokers.coordinate, load)
    among = coordinate.rtt_ms(coordinate)
    among = np.where(np.isnan(among), float(np.nanmax(among, initial=0.0)), among)
    np.fill_diagonal(among, 0.0)
    return problem.leg * between(load), problem.leg * among


def places(workload: Workload) -> tuple[Floats, Floats]:
    """Clients and brokers as points of one space, for clustering: ``points``, or the points of their coordinates."""
    if not by_network(workload):
        return points(workload.clients, workload.brokers)
    broker = _needed(workload.brokers.coordinate, workload)
    client = _needed(workload.clients.coordinate, workload)
    middle = np.nanmean(broker.point, axis=0) if broker.known.any() else np.zeros(broker.point.shape[1])
    return tuple(np.where(each.known[:, None], each.point, middle) for each in (client, broker))  # type: ignore[return-value]


def apart(workload: Workload, one: Floats, other: Floats) -> Floats:
    """(len(one), len(other)) distances between such points."""
    if not by_network(workload):
        return km_between(one, other)
    squares: Floats = ((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
    return np.sqrt(squares)


def _needed(coordinate: Coordinates | None, workload: Workload) -> Coordinates:
    if coordinate is None:
        table = workload.clients if workload.clients.coordinate is None else workload.brokers
        raise MissingColumn(table.name, "coordinate", table.present(), WHY)
    return coordinate
