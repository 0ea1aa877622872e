"""Network coordinates: points whose distances estimate round-trip times (Dabek et al., SIGCOMM'04)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.errors import BadTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats


@dataclass(frozen=True, eq=False)
class Coordinates:
    """A point and a height for each of N nodes, checked and made read-only on entry.

    The estimated round-trip time of two nodes is the distance of their points plus both heights; the height is the time
    that a node's own access link takes. A node without a coordinate has NaN in all of its numbers.
    """

    point: Floats  # (N, D) ms
    height: Floats  # (N,) ms, zero or more
    adjustment: Floats | None = None  # (N,) ms, added to the estimate of every pair (Lee et al., ToN'10); may be < 0

    def __post_init__(self) -> None:
        point = np.array(self.point, dtype=np.float64)
        if point.ndim != 2:
            raise BadTable("coordinates", f"points have shape {point.shape}, but must be nodes by dimensions")
        columns = {"point": point, "height": np.array(self.height, dtype=np.float64)}
        if self.adjustment is not None:
            columns["adjustment"] = np.array(self.adjustment, dtype=np.float64)
        missing = np.isnan(point).any(axis=1)
        for name, values in columns.items():
            if len(values) != len(point):
                raise BadTable("coordinates", f"{name} has {len(values)} rows, but there are {len(point)} points")
            bad = ~(np.isfinite(values) if values.ndim == 1 else np.isfinite(values).all(axis=1)) & ~missing
            if name == "height":
                bad |= values < 0.0
            if bad.any():
                row = int(np.flatnonzero(bad)[0])
                rule = "a finite number, zero or more" if name == "height" else "a finite number"
                raise BadTable("coordinates", f"{name} is {values[row]}, but must be {rule}", row)
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    def __len__(self) -> int:
        return len(self.point)

    @property
    def known(self) -> NDArray[np.bool_]:
        """(N,) whether the node has a coordinate."""
        return np.asarray(~np.isnan(self.point).any(axis=1))

    def take(self, rows: NDArray[np.integer[Any]]) -> Coordinates:
        adjustment = None if self.adjustment is None else self.adjustment[rows]
        return Coordinates(self.point[rows], self.height[rows], adjustment)

    def behind(self, rows: NDArray[np.integer[Any]], access_ms: Floats) -> Coordinates:
        """(len(rows),) coordinates of nodes that reach the network by way of these rows, in ``access_ms`` there and
        back. A row of -1 is a node without a coordinate."""
        known = (rows >= 0) & ~np.isnan(access_ms)
        point, height = np.full((len(rows), self.point.shape[1]), np.nan), np.full(len(rows), np.nan)
        adjustment = None if self.adjustment is None else np.full(len(rows), np.nan)
        point[known], height[known] = self.point[rows[known]], self.height[rows[known]] + access_ms[known]
        if adjustment is not None and self.adjustment is not None:
            adjustment[known] = self.adjustment[rows[known]]
        return Coordinates(point, height, adjustment)

    def rtt_ms(self, other: Coordinates) -> Floats:
        """(len(self), len(other)) estimated round-trip times; NaN where a node has no coordinate.

        An adjustment that would make an estimate zero or less is left out, as in Serf.
        """
        if self.point.shape[1] != other.point.shape[1]:
            raise BadTable("coordinates", f"points of {self.point.shape[1]} and of {other.point.shape[1]} dimensions "
                           "cannot be compared")  # fmt: skip
        square = ((self.point[:, None, :] - other.point[None, :, :]) ** 2).sum(axis=2)
        plain: Floats = np.sqrt(square) + self.height[:, None] + other.height[None, :]
        if self.adjustment is None or other.adjustment is None:
            return plain
        adjusted = plain + self.adjustment[:, None] + other.adjustment[None, :]
        return np.where(adjusted > 0.0, adjusted, plain)

    def pair_ms(self, other: Coordinates) -> Floats:
        """(N,) estimated round-trip times of each node and the node in the same row of ``other``."""
        plain: Floats = np.sqrt(((self.point - other.point) ** 2).sum(axis=1)) + self.height + other.height
        if self.adjustment is None or other.adjustment is None:
            return plain
        adjusted = plain + self.adjustment + other.adjustment
        return np.where(adjusted > 0.0, adjusted, plain)
