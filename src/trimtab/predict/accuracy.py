"""How good predictions are: the figures that all latency models are compared by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from trimtab.model.workload import Floats

BOUND_MS: Final = 1000.0  # Khare et al., SEC'18, III-A


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Of predicted p90s of topics beside measured ones."""

    topics: int
    r2: float  # of the logarithm: the "accuracy" of Khare et al., SEC'18, Table I
    error: float  # median of |predicted / measured - 1|
    error_of_nine: float  # nine of ten topics have at most this error
    wrong: float  # share of topics that are predicted on the wrong side of the bound
    missed: float  # share of topics that are above the bound and predicted below it

    @classmethod
    def of(cls, measured_ms: Floats, predicted_ms: Floats, bound_ms: float = BOUND_MS) -> Accuracy:
        if not len(measured_ms):
            return cls(0, *[float("nan")] * 5)
        target = np.log(measured_ms)
        residual = target - np.log(predicted_ms)
        variance = float(((target - target.mean()) ** 2).sum())
        error = np.abs(predicted_ms / measured_ms - 1.0)
        above, expected = measured_ms > bound_ms, predicted_ms > bound_ms
        return cls(
            len(target), 1.0 - float((residual**2).sum()) / variance if variance > 0.0 else float("nan"),
            float(np.median(error)), float(np.quantile(error, 0.9)), float((above != expected).mean()),
            float((above & ~expected).mean()),
        )  # fmt: skip

    def as_json(self) -> dict[str, float]:
        return asdict(self)


def coverage(measured_ms: Floats, low_ms: Floats, high_ms: Floats) -> float:
    """The share of measured p90s within the limits."""
    return float(((measured_ms >= low_ms) & (measured_ms <= high_ms)).mean()) if len(measured_ms) else float("nan")
