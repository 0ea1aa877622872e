"""The coordinate of one node, as it is reported to other nodes, and an estimate made from two of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from trimtab.errors import BadInput


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A point, a height and an adjustment: the value that a node reports. Plain numbers, so that it is easily sent."""

    point: tuple[float, ...]  # ms
    height: float  # ms, zero or more: the time that the node's own access link takes
    adjustment: float = 0.0  # ms, added to every estimate of the node (Lee et al., ToN'10); may be negative
    error: float = 1.5  # relative error that the node finds in its own estimates

    @property
    def usable(self) -> bool:
        """Whether all numbers are finite, and neither the height nor the error is negative."""
        numbers = (*self.point, self.height, self.adjustment, self.error)
        return all(map(math.isfinite, numbers)) and self.height >= 0.0 and self.error >= 0.0

    def behind(self, access_ms: float) -> Coordinate:
        """The coordinate of a node whose way to the network leads over this one and takes ``access_ms`` to it and back.

        This is how Gupta et al. (SEC'21, 3.1) place mobile clients: at their proxy, with a constant added.
        """
        return replace(self, height=self.height + access_ms)

    def plain_rtt_ms(self, other: Coordinate) -> float:
        """The estimated round-trip time without adjustments."""
        if len(self.point) != len(other.point):
            raise BadInput(
                f"coordinates of {len(self.point)} and of {len(other.point)} dimensions cannot be compared; "
                "all nodes must use the same model"
            )
        return math.dist(self.point, other.point) + self.height + other.height

    def rtt_ms(self, other: Coordinate) -> float:
        """The estimated round-trip time; adjustments that would make it zero or less are left out, as in Serf."""
        plain = self.plain_rtt_ms(other)
        adjusted = plain + self.adjustment + other.adjustment
        return adjusted if adjusted > 0.0 else plain


class Estimate(NamedTuple):
    """A round-trip time, and whether it was measured or comes from coordinates."""

    rtt_ms: float
    measured: bool
