"""Swarms of unmanned aerial vehicles over the zones of a city (Gupta et al., SEC'21, 5.1.1 and 5.5.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import BadKnob
from trimtab.lab.worlds.option import option
from trimtab.model.coordinates import Coordinates
from trimtab.model.ids import Ids
from trimtab.model.rtts import Rtts
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload

if TYPE_CHECKING:
    from typing import Any

    from trimtab.model.workload import Floats

    Ints = np.ndarray[Any, np.dtype[np.int64]]

BETWEEN_MS: Final = 30.0  # round-trip time between the sites of two zones, over the switch of the city
INSIDE_MS: Final = 1.0  # between a vehicle and the broker of its zone


@dataclass(frozen=True, slots=True)
class Uav:
    """Swarms with a leader each. The leader publishes to one topic that the followers subscribe to, and subscribes to
    another one that all followers publish to.

    A swarm is in one zone, or its members are each in a random one (``scattered``). Vehicles have the coordinate of the
    site of their zone, plus the latency inside the zone as height.
    """

    zones: int = option(4, "zones, each with a site and a broker")
    swarms: int = option(16, "swarms")
    size: int = option(8, "vehicles of a swarm, with its leader")
    scattered: bool = option(False, "members of a swarm are in different zones")
    latency_ms: float = option(40.0, "bound of every topic's network latency")

    def __post_init__(self) -> None:
        for name, least in (("zones", 1), ("swarms", 1), ("size", 2)):
            if getattr(self, name) < least:
                raise BadKnob("uav", name, getattr(self, name), f"at least {least}")
        if not 0.0 < self.latency_ms < np.inf:
            raise BadKnob("uav", "latency_ms", self.latency_ms, "more than zero, and finite")

    def make(self, seed: int) -> Workload:
        zone = self.places(np.random.default_rng(seed))
        # Sites are corners of a regular simplex: all of them are equally far from each other.
        corners = np.eye(self.zones) * BETWEEN_MS / np.sqrt(2.0)
        vehicles = Coordinates(corners[zone], np.full(len(zone), INSIDE_MS))
        return self.workload(vehicles, Coordinates(corners, np.zeros(self.zones)), to_brokers(self.zones)[zone])

    def places(self, rng: np.random.Generator) -> Ints:
        """The zone of every vehicle, swarm by swarm."""
        if self.scattered:
            return rng.integers(0, self.zones, self.swarms * self.size)
        return np.repeat(rng.integers(0, self.zones, self.swarms), self.size)

    def workload(
        self, vehicles: Coordinates | None, brokers: Coordinates | None, rtt_ms: Floats | None
    ) -> Workload:  # fmt: skip
        """Two topics for each swarm, with coordinates, measured pairs, or both."""
        leader = self.size * np.arange(self.swarms)
        follower = np.setdiff1d(np.arange(self.swarms * self.size), leader)
        of = follower // self.size
        swarm = np.arange(self.swarms)
        parts = (
            (2 * swarm, leader, PUB),
            (2 * of, follower, SUB),
            (2 * of + 1, follower, PUB),
            (2 * swarm + 1, leader, SUB),
        )
        names = [f"swarm-{row}/{topic}" for row in range(self.swarms) for topic in ("follow_leader", "sensor_data")]
        return Workload(
            Topics(Ids(names), np.full(len(names), 200.0), latency_ms=np.full(len(names), self.latency_ms)),
            Clients(Ids.numbered("uav-", self.swarms * self.size), coordinate=vehicles),
            Brokers(Ids.numbered("zone-", self.zones), coordinate=brokers),
            Links(
                np.concatenate([topic for topic, _, _ in parts]), np.concatenate([client for _, client, _ in parts]),
                np.concatenate([np.full(len(topic), role) for topic, _, role in parts]).astype(np.int8),
            ),
            None if rtt_ms is None else Rtts.matrix(rtt_ms),
        )  # fmt: skip


def to_brokers(zones: int) -> Floats:
    """(zones, zones) round-trip times from a vehicle in one zone to the broker of another, or of its own."""
    times = np.full((zones, zones), BETWEEN_MS + INSIDE_MS)
    np.fill_diagonal(times, INSIDE_MS)
    return times


SPEED_M_S: Final = 50.0
SIDE_KM: Final = 18.0  # of the city: a square of the area of Atlanta
STEP_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class ZoneChange:
    at_s: float
    swarm: int
    zone: int


def zones_over_time(
    swarms: int, seconds: float, seed: int, *, side_km: float = SIDE_KM, speed_m_s: float = SPEED_M_S
) -> tuple[list[int], list[ZoneChange]]:  # fmt: skip
    """The zone of every swarm at the beginning, and all changes of zones in order of time.

    Swarms fly by random waypoint without pauses over a square city of four zones, which are its quarters (ibid.,
    5.8.1; the paper's zones are clusters of cell towers).
    """
    beginning, changes = [], []
    times = np.arange(0.0, seconds, STEP_S)
    for swarm in range(swarms):
        rng = np.random.default_rng((seed, swarm))
        points, ends = [rng.random(2)], [0.0]
        while ends[-1] < seconds:
            points.append(rng.random(2))
            metres = 1000.0 * side_km * float(np.hypot(*(points[-1] - points[-2])))
            ends.append(ends[-1] + metres / speed_m_s)
        x, y = (np.interp(times, ends, [point[axis] for point in points]) for axis in (0, 1))
        zone = (x >= 0.5).astype(np.int64) + 2 * (y >= 0.5)
        beginning.append(int(zone[0]))
        for row in (np.flatnonzero(np.diff(zone)) + 1).tolist():
            changes.append(ZoneChange(float(times[row]), swarm, int(zone[row])))
    return beginning, sorted(changes, key=lambda change: change.at_s)
