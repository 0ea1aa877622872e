"""Moving averages of topics' traffic, updated incrementally: every report is counted once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.observe.average import Averages
from trimtab.pipeline.telemetry import HALVES, SUMMED

if TYPE_CHECKING:
    from trimtab.model.workload import Floats

NOTHING: Final = 1e-6  # messages/s at or below which a topic counts as quiet
SELDOM_S: Final = 3600.0  # time without messages after which a quiet topic is dropped


class TopicAverages:
    """Averages by topic. A topic is added with its first message, and dropped after a long silence."""

    def __init__(self, average_s: float, began: float) -> None:
        self.began = began  # start of the measurements
        self.at = began  # end of the last sample
        self._topics = pa.array([], pa.string())
        self._averages = Averages(average_s, columns=len(SUMMED))

    def add(self, sums: pa.Table, middle: float, now: float) -> None:
        """Add the sums (``telemetry.halves``) of the reports since the last call, split at ``middle``."""
        topics = pa.array(sums["topic"].to_pylist(), pa.string())
        new = topics.filter(pc.invert(pc.is_in(topics, self._topics)))
        self._averages.keep(np.arange(len(self._topics)), len(new))
        self._topics = pa.concat_arrays([self._topics, new])
        rows = pc.index_in(topics, self._topics).to_numpy()
        for half, seconds in zip(HALVES, (middle - self.at, now - middle), strict=True):
            amount = np.zeros((len(self._topics), len(SUMMED)))
            amount[rows] = np.column_stack([sums[f"{name}_{half}"].to_numpy() for name in SUMMED])
            self._averages.add(amount, seconds)
        self.at = now
        alive = self._averages.mean[:, SUMMED.index("in_msgs")] > NOTHING
        rows_kept = np.flatnonzero(alive | (self._averages.quiet_s() < SELDOM_S))
        self._averages.keep(rows_kept)
        self._topics = self._topics.take(pa.array(rows_kept))

    def unsure(self) -> float:
        """Share of all data whose period is not known yet."""
        return self._averages.unsure(SUMMED.index("in_bytes"))

    def rates(self) -> pa.Table:
        """Rates in the form of ``telemetry.rates``, without topics that are quiet at present."""
        active = self._averages.mean[:, SUMMED.index("in_msgs")] > NOTHING
        mean = dict(zip(SUMMED, self._averages.mean[active].T, strict=True))
        return pa.table({
            "topic": self._topics.filter(pa.array(active)),
            "rate": mean["in_msgs"],
            "recent": self._averages.recent[active],
            "size_bytes": _ratio(mean["in_bytes"], mean["in_msgs"]),
            "processing_ms": 1000.0 * _ratio(mean["busy_s"], mean["processed"]),
            "out_rate": pa.array(mean["result_msgs"], mask=mean["processed"] <= NOTHING),
            "out_bytes": _ratio(mean["result_bytes"], mean["result_msgs"]),
            "relayed": (mean["processed"] > NOTHING).astype(np.float64),
        })  # fmt: skip


def _ratio(dividend: Floats, divisor: Floats) -> Floats:
    """The quotient; zero where the divisor is zero."""
    return np.asarray(np.divide(dividend, divisor, out=np.zeros_like(dividend), where=divisor > 0.0))
