"""One placement question: a workload, and what must stay together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from trimtab.errors import BadInput, BadTable
from trimtab.model.placement import UNITS
from trimtab.model.workload import SUB

if TYPE_CHECKING:
    from trimtab.model.placement import Unit
    from trimtab.model.workload import Floats, Rows, Workload


@dataclass(frozen=True, eq=False)
class Problem:
    """What a policy is given. The columns below are what nearly every policy reads, derived once."""

    workload: Workload
    unit: Unit

    data_rate: Floats = field(init=False)  # (K,) d[k], data/s of one copy of topic k
    bandwidth: Floats = field(init=False)  # (B,) data/s of each broker; inf where none is given
    topic: Rows = field(init=False)  # (S,) topic of each subscription
    client: Rows = field(init=False)  # (S,) client of each subscription

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise BadInput(f"unit must be one of {', '.join(UNITS)}, but is '{self.unit}'")
        load = self.workload
        links, brokers = load.links, load.brokers
        if self.unit == "link":
            bandwidth = brokers.need("bandwidth", "data/s; links are placed within every broker's bandwidth")
        elif brokers.bandwidth is None:
            bandwidth = np.full(len(brokers), np.inf)
        else:
            bandwidth = brokers.bandwidth
        subscribes = links.role == SUB
        everything = bool(subscribes.all())  # then the columns are shared, not copied
        topic = links.topic if everything else links.topic[subscribes]
        client = links.client if everything else links.client[subscribes]
        for derived in (bandwidth, topic, client):
            derived.flags.writeable = False
        data_rate = load.topics.data_rate
        with np.errstate(over="ignore"):
            total = float(data_rate.sum() + (data_rate * np.bincount(topic, minlength=len(data_rate))).sum())
        # Half the largest double leaves room for every sum that a policy or the judge forms.
        if not total < np.finfo(np.float64).max / 2 or not bandwidth[bandwidth < np.inf].sum() < np.inf:
            raise BadTable("workload", "rates or bandwidths add up to more than a double can hold; use larger units")
        derived_columns = {"data_rate": data_rate, "bandwidth": bandwidth, "topic": topic, "client": client}
        for name, values in derived_columns.items():
            object.__setattr__(self, name, values)

    @property
    def units(self) -> int:
        """How many brokers an answer names."""
        if self.unit == "topic":
            return len(self.workload.topics)
        if self.unit == "client":
            return len(self.workload.clients)
        return len(self.topic)

    @property
    def brokers(self) -> int:
        return len(self.bandwidth)
