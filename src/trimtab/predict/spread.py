"""How far measured latencies lie from predicted ones: the intervals of all latency models.

Residuals are ``log measured - log predicted``. Their size depends strongly on one coordinate: on a topic's use of its
worker where the model knows it, or on the predicted latency. A spread is a scale by that coordinate and, for a few
groups of the coordinate, quantiles of the scaled residuals: split conformal prediction (Vovk et al., 2005; Lei et al.,
JASA 2018), within groups (Mondrian) so that the coverage holds near the bound too, where optimisers choose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput, BadKnob
from trimtab.predict.numbers import numbers

if TYPE_CHECKING:
    from trimtab.model.workload import Floats

LEVELS: Final = np.linspace(0.0, 1.0, 201)  # of the stored quantiles
PER_SCALE: Final = 40  # residuals behind one value of the scale, at least
MOST_SCALES: Final = 100
PER_GROUP: Final = 300  # residuals of one group, at least
MOST_GROUPS: Final = 20
LEAST: Final = 10  # residuals to calibrate on
SMALLEST: Final = 1e-3  # scale: a thousandth of the latency


@dataclass(frozen=True, slots=True, eq=False)
class Spread:
    """Quantiles of log residuals by a coordinate."""

    at: Floats  # (A,) coordinates, rising
    scale: Floats  # (A,) size of residuals there; linear in between
    edges: Floats  # (G - 1,) where the next group begins
    scores: Floats  # (G, len(LEVELS)) quantiles of residual / scale

    def __post_init__(self) -> None:
        for name in ("at", "scale", "edges", "scores"):
            if not np.isfinite(getattr(self, name)).all():
                raise BadInput(f"the intervals of a latency model hold a value in '{name}' that is not a number")
        fit = self.at.shape == self.scale.shape and self.scores.shape == (len(self.edges) + 1, len(LEVELS))
        if not len(self.at) or not fit:
            shapes = ", ".join(f"{name} {getattr(self, name).shape}" for name in ("at", "scale", "edges", "scores"))
            raise BadInput(f"the intervals of a latency model have columns that do not fit together: {shapes}")

    @classmethod
    def calibrated(cls, coordinate: Floats, residual: Floats, scaled_as: Spread | None = None) -> Spread:
        """On topics that the model was not fitted on. With few of them, the scale can be that of another spread."""
        if len(residual) < LEAST:
            raise BadInput(f"{len(residual)} measured topics are too few to calibrate intervals: {LEAST} or more")
        order = np.argsort(coordinate, kind="stable")
        coordinate, residual = coordinate[order], residual[order]
        at, scale = (scaled_as.at, scaled_as.scale) if scaled_as else _scales(coordinate, residual)
        score = residual / np.interp(coordinate, at, scale)
        groups = np.array_split(np.arange(len(residual)), _between(len(residual) // PER_GROUP, MOST_GROUPS))
        edges = np.array([coordinate[group[0]] for group in groups[1:]])
        # Of n residuals, the share q lies below the one at place q * (n + 1): the finite-sample form.
        scores = np.array([np.quantile(score[group], LEVELS, method="weibull") for group in groups])
        return cls(at, scale, edges, scores)

    def limits(self, coordinate: Floats, coverage: float) -> tuple[Floats, Floats]:
        """(M,) and (M,): of the residual at each coordinate; the prediction lies between them."""
        if not 0.0 < coverage < 1.0:
            raise BadKnob("interval", "coverage", coverage, "between 0 and 1")
        scale = np.interp(coordinate, self.at, self.scale)
        group = np.searchsorted(self.edges, coordinate, side="right")
        low, high = (
            np.array([np.interp(level, LEVELS, scores) for scores in self.scores])[group]
            for level in (0.5 - coverage / 2.0, 0.5 + coverage / 2.0)
        )
        return np.minimum(scale * low, 0.0), np.maximum(scale * high, 0.0)

    def around(self, predicted: Floats, coordinate: Floats, coverage: float) -> tuple[Floats, Floats]:
        """(M,) and (M,): the interval of each predicted latency."""
        low, high = self.limits(coordinate, coverage)
        return predicted * np.exp(low), predicted * np.exp(high)

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name).tolist() for name in ("at", "scale", "edges", "scores")}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Spread:
        return cls(*(numbers(values[name]) for name in ("at", "scale", "edges", "scores")))


def _scales(coordinate: Floats, residual: Floats) -> tuple[Floats, Floats]:
    """Mean size of residuals by the coordinate, which is sorted."""
    parts = np.array_split(np.arange(len(residual)), _between(len(residual) // PER_SCALE, MOST_SCALES))
    at = np.array([coordinate[part].mean() for part in parts])
    scale = np.array([max(float(np.mean(np.abs(residual[part]))), SMALLEST) for part in parts])
    at, first = np.unique(at, return_index=True)
    return at, scale[first]


def _between(count: int, most: int) -> int:
    return max(1, min(count, most))
