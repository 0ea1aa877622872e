"""Moving averages of what topics carry, brought up to date by what came since the last time.

Nothing that has been counted is looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.observe.average import Averages
from trimtab.pipeline.telemetry import HALVES, SUMMED

if TYPE_CHECKING:
    from trimtab.model.workload import Floats

NOTHING: Final = 1e-6  # messages/s that are left of a topic when it is forgotten,
SELDOM_S: Final = 3600.0  # if nothing has come for so long


class TopicAverages:
    """Topics come when something is published to them, and go when that was long ago."""

    def __init__(self, average_s: float, began: float) -> None:
        self.began = began  # nothing is known of the time before
        self.at = began  # everything up to here is in
        self._topics = pa.array([], pa.string())
        self._averages = Averages(average_s, columns=len(SUMMED))

    def add(self, fresh: pa.Table, middle: float, now: float) -> None:
        """``telemetry.halves`` of what came since the last time, before and after ``middle``."""
        topics = pa.array(fresh["topic"].to_pylist(), pa.string())
        new = topics.filter(pc.invert(pc.is_in(topics, self._topics)))
        self._averages.keep(np.arange(len(self._topics)), len(new))
        self._topics = pa.concat_arrays([self._topics, new])
        rows = pc.index_in(topics, self._topics).to_numpy()
        for half, seconds in zip(HALVES, (middle - self.at, now - middle), strict=True):
            amount = np.zeros((len(self._topics), len(SUMMED)))
            amount[rows] = np.column_stack([fresh[f"{name}_{half}"].to_numpy() for name in SUMMED])
            self._averages.add(amount, seconds)
        self.at = now
        alive = self._averages.mean[:, SUMMED.index("in_msgs")] > NOTHING
        kept = np.flatnonzero(alive | (self._averages.quiet_s() < SELDOM_S))
        self._averages.keep(kept)
        self._topics = self._topics.take(pa.array(kept))

    def unsure(self) -> float:
        """Share of all data of which it is not known yet how often it comes."""
        return self._averages.unsure(SUMMED.index("in_bytes"))

    def rates(self) -> pa.Table:
        """As ``telemetry.rates``; what is quiet at present is not among them."""
        present = self._averages.mean[:, SUMMED.index("in_msgs")] > NOTHING
        mean = dict(zip(SUMMED, self._averages.mean[present].T, strict=True))
        return pa.table({
            "topic": self._topics.filter(pa.array(present)),
            "rate": mean["in_msgs"],
            "size_bytes": _ratio(mean["in_bytes"], mean["in_msgs"]),
            "processing_ms": 1000.0 * _ratio(mean["busy_s"], mean["processed"]),
            "out_rate": pa.array(mean["result_msgs"], mask=mean["processed"] <= NOTHING),
            "out_bytes": _ratio(mean["result_bytes"], mean["result_msgs"]),
            "relayed": (mean["processed"] > NOTHING).astype(np.float64),
        })  # fmt: skip


def _ratio(one: Floats, other: Floats) -> Floats:
    """Zero where there is nothing to divide by."""
    return np.asarray(np.divide(one, other, out=np.zeros_like(one), where=other > 0.0))
