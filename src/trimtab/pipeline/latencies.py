"""Percentiles of topics' delivery times over the span that the averages of rates cover."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from trimtab.observe.histogram import PER_OCTAVE, SMALLEST_S

if TYPE_CHECKING:
    from collections.abc import Mapping

P90: Final = 0.9


class TopicLatencies:
    """The merged histograms of the last ``span_s`` seconds, by topic."""

    def __init__(self, span_s: float) -> None:
        self._span_s = span_s
        self._recent: deque[tuple[float, pa.Table]] = deque()  # end of each sample, and its histograms

    def add(self, histograms: pa.Table, now: float) -> None:
        """Add the histograms (``telemetry.latencies``) of the reports since the last call."""
        self._recent.append((now, histograms.select(["topic", "bucket", "hits"])))
        while self._recent[0][0] <= now - self._span_s:
            self._recent.popleft()

    def p90_ms(self) -> Mapping[str, float]:
        """The p90 of every topic with deliveries, right within 4.5 % as all percentiles of histograms."""
        if not self._recent:
            return {}
        merged = pa.concat_tables([table for _, table in self._recent])
        merged = merged.group_by(["topic", "bucket"]).aggregate([("hits", "sum")])
        merged = merged.sort_by([("topic", "ascending"), ("bucket", "ascending")]).combine_chunks()
        names = merged["topic"].to_pylist()
        bucket, hits = merged["bucket"].to_numpy(), merged["hits_sum"].to_numpy().astype(np.int64)
        found: dict[str, float] = {}
        begin = 0
        for end in range(1, len(names) + 1):
            if end == len(names) or names[end] != names[begin]:
                upto = np.cumsum(hits[begin:end])
                reached = begin + int(np.searchsorted(upto, np.ceil(P90 * upto[-1] - 1e-9)))
                found[names[begin]] = float(1000.0 * SMALLEST_S * 2.0 ** ((bucket[reached] + 0.5) / PER_OCTAVE))
                begin = end
        return found
