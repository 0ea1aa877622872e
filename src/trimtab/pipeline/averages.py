"""Moving averages of what topics carry, brought up to date by what came since the last time.

What is older counts less by a factor of e for every ``average_s``, so what was added up needs no more than to be made
smaller: nothing that has been counted is looked at again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from trimtab.pipeline.telemetry import SUMMED

NOTHING: Final = 1e-6  # messages that are left of a topic when it is forgotten


@dataclass(slots=True)
class Averages:
    average_s: float
    began: float  # nothing is known of the time before
    at: float = 0.0  # of the sums
    sums: pa.Table | None = None  # ``topic`` and ``SUMMED``

    def add(self, fresh: pa.Table, now: float) -> None:
        """``telemetry.sums`` of what came since the last time, as of now."""
        if self.sums is not None:
            less = math.exp((self.at - now) / self.average_s)
            aged = pa.table({"topic": self.sums["topic"]} | {n: pc.multiply(self.sums[n], less) for n in SUMMED})
            both = pa.concat_tables([aged, fresh]).group_by("topic").aggregate([(name, "sum") for name in SUMMED])
            fresh = pa.table({"topic": both["topic"]} | {name: both[f"{name}_sum"] for name in SUMMED})
        self.sums, self.at = fresh.filter(pc.greater(fresh["in_msgs"], NOTHING)), now

    def rates(self) -> pa.Table:
        """As ``telemetry.rates``."""
        assert self.sums is not None
        mass = self.average_s * -math.expm1((self.began - self.at) / self.average_s)
        return pa.table({
            "topic": self.sums["topic"],
            "rate": pc.divide(self.sums["in_msgs"], max(mass, 1e-9)),
            "size_bytes": _ratio(self.sums["in_bytes"], self.sums["in_msgs"]),
            "processing_ms": pc.multiply(_ratio(self.sums["busy_s"], self.sums["processed"]), 1000.0),
        })  # fmt: skip


def _ratio(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    """Zero where there is nothing to divide by."""
    return pc.if_else(pc.greater(other, 0.0), pc.divide(one, pc.max_element_wise(other, 1e-300)), 0.0)
