"""A latency histogram of constant relative error that can be merged and sent.

Buckets grow by a factor of 2**(1/8), so a percentile is right within 4.5 %, from a microsecond to a day. Only buckets
with a count are kept. The sum of two histograms is the histogram of both sets of durations, as with HdrHistogram and
DDSketch. A broker's report of a topic therefore has a size that does not grow with the number of clients.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PER_OCTAVE: Final = 8
SMALLEST_S: Final = 1e-6
LARGEST_S: Final = 86_400.0
_SCALE: Final = PER_OCTAVE / math.log(2.0)
_BASE: Final = math.log(SMALLEST_S)


class Histogram:
    """Counts of durations in seconds."""

    __slots__ = ("counts",)

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts or {})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Histogram) and self.counts == other.counts

    __hash__ = None  # type: ignore[assignment]  # a histogram is mutable

    def add(self, seconds: float) -> None:
        bucket = 0 if seconds <= SMALLEST_S else int((math.log(min(seconds, LARGEST_S)) - _BASE) * _SCALE)
        self.counts[bucket] = self.counts.get(bucket, 0) + 1

    def add_many(self, seconds: list[float]) -> None:
        """Add many durations. Long lists are added as numpy columns, which is faster."""
        if len(seconds) < 256:
            for duration in seconds:
                self.add(duration)
            return
        import numpy as np

        clipped = np.clip(np.array(seconds), SMALLEST_S, LARGEST_S)
        buckets, counts = np.unique(((np.log(clipped) - _BASE) * _SCALE).astype(np.int64), return_counts=True)
        for bucket, count in zip(buckets.tolist(), counts.tolist(), strict=True):
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    def merge(self, other: Histogram) -> None:
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def percentile(self, share: float) -> float:
        """The duration that a share of all durations do not exceed; NaN if the histogram is empty."""
        needed = math.ceil(share * self.total - 1e-9)  # 0.07 * 100 is a little more than 7
        if not self.counts:
            return math.nan
        count = 0
        for bucket in sorted(self.counts):
            count += self.counts[bucket]
            if count >= needed:
                break
        return float(SMALLEST_S * 2.0 ** ((bucket + 0.5) / PER_OCTAVE))  # the geometric middle of the bucket

    def encode(self) -> list[list[int]]:
        """Pairs of bucket and count, for JSON."""
        return [[bucket, count] for bucket, count in sorted(self.counts.items())]

    @classmethod
    def decode(cls, pairs: list[list[int]]) -> Histogram:
        return cls({int(bucket): int(count) for bucket, count in pairs})
