"""A placement problem: a workload, and the unit of placement."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import BadInput, BadKnob, BadTable
from trimtab.model.hardware import PAPER, Hardware
from trimtab.model.placement import UNITS, UNPLACED
from trimtab.model.workload import SUB

if TYPE_CHECKING:
    from trimtab.model.placement import Placement, Unit
    from trimtab.model.workload import Floats, Rows, Workload

ONE_WAY: Final = 0.5
ROUND_TRIP: Final = 1.0  # the reading of Gupta et al. (SEC'21): docs/internals/nearness.md
NEXT_TO_NOTHING: Final = 1e-9  # a broker with less than this share of the strongest one's bandwidth takes no keys


@dataclass(frozen=True, slots=True)
class Delays:
    """Network delays by distance (Tanaka et al., 5.2 and 7.2)."""

    ms_per_km: float = 0.1  # between clients and brokers, and between brokers
    cloud_ms: float = 5.0  # from any broker to the cloud, one way

    def __post_init__(self) -> None:
        for name in ("ms_per_km", "cloud_ms"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise BadKnob("delays", name, getattr(self, name), "zero or more")


@dataclass(frozen=True, eq=False)
class Problem:
    """The input of a policy. The columns below, which nearly every policy reads, are derived once."""

    workload: Workload
    unit: Unit
    current: Placement | None = None  # current placement, for policies that keep moves few
    delays: Delays = Delays()
    hardware: Hardware = PAPER  # of a broker with the profile's cores and speed; brokers' own columns count more
    leg: float = ONE_WAY  # latency from a client to a broker or back, as a share of their round-trip time

    data_rate: Floats = field(init=False)  # (K,) d[k], data/s of one copy of topic k
    bandwidth: Floats = field(init=False)  # (B,) data/s of each broker; inf where none is given
    speed: Floats = field(init=False)  # (B,) strength of each broker, 1 on average; 0: it cannot take anything
    topic: Rows = field(init=False)  # (S,) topic of each subscription
    client: Rows = field(init=False)  # (S,) client of each subscription

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise BadInput(f"unit must be one of {', '.join(UNITS)}, but is '{self.unit}'")
        if not 0.0 < self.leg <= ROUND_TRIP:
            raise BadKnob("problem", "leg", self.leg, "a share of the round-trip time, above 0 and at most 1")
        load = self.workload
        links, brokers = load.links, load.brokers
        if self.unit == "link":
            bandwidth = brokers.need("bandwidth", "data/s; links are placed within every broker's bandwidth")
        elif brokers.bandwidth is None:
            bandwidth = np.full(len(brokers), np.inf)
        else:
            bandwidth = brokers.bandwidth
        subscribes = links.role == SUB
        only_subscriptions = bool(subscribes.all())  # then the columns are shared, not copied
        topic = links.topic if only_subscriptions else links.topic[subscribes]
        client = links.client if only_subscriptions else links.client[subscribes]
        speed = _speed(bandwidth)
        for derived in (bandwidth, speed, topic, client):
            derived.flags.writeable = False
        data_rate = load.topics.data_rate
        with np.errstate(over="ignore"):
            total = float(data_rate.sum() + (data_rate * np.bincount(topic, minlength=len(data_rate))).sum())
        # Half the largest double leaves room for every sum that a policy or the judge forms.
        if not total < np.finfo(np.float64).max / 2 or not bandwidth[bandwidth < np.inf].sum() < np.inf:
            raise BadTable("workload", "rates or bandwidths add up to more than a double can hold; use larger units")
        derived_columns = {
            "data_rate": data_rate, "bandwidth": bandwidth, "speed": speed, "topic": topic, "client": client,
        }  # fmt: skip
        for name, values in derived_columns.items():
            object.__setattr__(self, name, values)
        if self.current is not None:
            self.refuse_unless_mine(self.current, "the current placement")

    @property
    def units(self) -> int:
        """The number of units, each of which a placement gives a broker."""
        if self.unit == "topic":
            return len(self.workload.topics)
        if self.unit == "client":
            return len(self.workload.clients)
        return len(self.topic)

    @property
    def brokers(self) -> int:
        return len(self.bandwidth)

    @cached_property
    def machines(self) -> tuple[tuple[Hardware, ...], Rows]:
        """The kinds of hardware among the brokers, and (B,) the kind of each broker."""
        return self.machines_of(self.hardware)

    def machines_of(self, hardware: Hardware) -> tuple[tuple[Hardware, ...], Rows]:
        """The same with another hardware profile: brokers with their own cores and speed differ from it."""
        table = self.workload.brokers
        for name in ("cores", "cpu_speed"):
            values = getattr(table, name)
            if values is not None and (values <= 0.0).any():
                row = int(np.flatnonzero(values <= 0.0)[0])
                raise BadTable("brokers", f"{name} is 0, but latencies are predicted for more than zero", row)
        own = -1.0  # cores of a broker that has the profile's number; NaNs would all be different kinds
        cores = np.full(self.brokers, own) if table.cores is None else np.nan_to_num(table.cores, nan=own)
        speed = np.ones(self.brokers) if table.cpu_speed is None else table.cpu_speed
        kinds, kind = np.unique(np.stack([cores, speed]), axis=1, return_inverse=True)
        machines = tuple(
            hardware.scaled(cores=None if number == own else number, speed=fast) for number, fast in kinds.T.tolist()
        )
        return machines, np.asarray(kind, np.int32).reshape(-1)

    def refuse_unless_mine(self, placement: Placement, name: str = "placement") -> None:
        """Refuse a placement whose unit, size or brokers do not match this problem."""
        if placement.unit != self.unit:
            raise BadTable(name, f"places {placement.unit}s, but the question is about {self.unit}s")
        if len(placement) != self.units:
            raise BadTable(name, f"has {len(placement):,} {self.unit}s, but the workload has {self.units:,}")
        outside = (placement.broker < UNPLACED) | (placement.broker >= self.brokers)
        if outside.any():
            row = int(np.flatnonzero(outside)[0])
            raise BadTable(name, f"broker {placement.broker[row]} is not one of the {self.brokers}", row)


def _speed(bandwidth: Floats) -> Floats:
    """Relative strengths, 1 on average: equal if a bandwidth is infinite or all are 0; 0 where one is negligible."""
    if not len(bandwidth) or not np.isfinite(bandwidth).all() or not bandwidth.any():
        return np.ones(len(bandwidth))
    share = bandwidth / bandwidth.max()
    share[share < NEXT_TO_NOTHING] = 0.0
    return np.asarray(share / share.mean())
