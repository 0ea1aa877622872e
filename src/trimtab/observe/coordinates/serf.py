"""Vivaldi as HashiCorp's Serf has it, whose agent ePulsar uses as it is (Gupta et al., SEC'21, Section 4)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from trimtab.observe.coordinates.coordinate import Coordinate, Estimate
from trimtab.observe.coordinates.node import PeerNode, refuse_bad_knobs

if TYPE_CHECKING:
    from trimtab.observe.coordinates.samples import Embedding, Lies, Samples

TINY_MS: Final = 1e-3  # points nearer than this are on top of each other: Serf's 1e-6 s
TINY: Final = 1e-6  # least sum of two errors


@dataclass(frozen=True, slots=True)
class Serf:
    """Vivaldi (Dabek et al., SIGCOMM'04, Section 4) with height (Section 5.4) and three additions.

    The median of the newest samples of each peer and gravity towards the origin are of Ledlie et al. (NSDI'07, Sections
    4.2 and 7.2), the adjustment term is of Lee et al. (ToN'10, Section VI). Constants are Serf's defaults.
    """

    name: ClassVar[str] = "serf"
    summary: ClassVar[str] = "Vivaldi with height, adjustment, latency filter and gravity, as in Serf"
    both_ends: ClassVar[bool] = False

    dimensions: int = 8
    error_max: float = 1.5  # relative error of a node that has not measured yet, and its upper limit
    ce: float = 0.25  # most that one sample changes a node's error
    cc: float = 0.25  # most that one sample moves a node, as a share of the residual
    window: int = 20  # samples behind the adjustment term; 0: no adjustment
    height_min: float = 0.01  # ms
    filter: int = 3  # samples of a peer whose median is used
    gravity_rho: float = 150.0  # s; the pull towards the origin is (distance / rho)^2 s

    def __post_init__(self) -> None:
        refuse_bad_knobs(self, ("error_max", "ce", "cc", "height_min", "gravity_rho"), dimensions=1, window=0, filter=1)

    def node(self, seed: int = 0) -> SerfNode:
        return SerfNode(self, seed)

    def simulate(self, samples: Samples, seed: int = 0, lies: Lies | None = None) -> Embedding:
        from trimtab.observe.coordinates.simulation import simulate_serf

        return simulate_serf(self, samples, seed, lies)


class SerfNode(PeerNode):
    """One node of Serf's model, in pure Python: 8 dimensions are too few for numpy to pay off."""

    def __init__(self, knobs: Serf, seed: int = 0) -> None:
        self.knobs = knobs
        super().__init__(knobs, seed, low=False)

    def _start(self) -> None:
        super()._start()
        self._adjustment = 0.0
        self._error = self.knobs.error_max
        self._residuals = [0.0] * self.knobs.window
        self._at = 0

    def coordinate(self) -> Coordinate:
        return Coordinate(tuple(self._point), self._height, self._adjustment, self._error)

    def estimate(self, peer: str, coordinate: Coordinate | None = None) -> Estimate:
        """Always by coordinates, as Serf's ``rtt`` command does."""
        return Estimate(self.coordinate().rtt_ms(coordinate or self._table.last(peer)), measured=False)

    def resume(self, coordinate: Coordinate) -> bool:
        if not super().resume(coordinate):
            return False
        self._adjustment = coordinate.adjustment
        return True

    def _learn(self, peer: str, coordinate: Coordinate, rtt_ms: float) -> None:
        rtt = max(self._table.add(peer, coordinate, rtt_ms), TINY_MS)
        self._vivaldi(coordinate, rtt)
        self._adjust(coordinate, rtt)
        self._gravitate()

    def _vivaldi(self, peer: Coordinate, rtt: float) -> None:
        knobs = self.knobs
        distance = self.coordinate().rtt_ms(peer)
        weight = self._error / max(self._error + peer.error, TINY)
        wrong = abs(distance - rtt) / rtt
        self._error = min(knobs.ce * weight * wrong + self._error * (1.0 - knobs.ce * weight), knobs.error_max)
        self._push(knobs.cc * weight * (rtt - distance), peer.point, peer.height)

    def _push(self, force: float, origin: tuple[float, ...], height: float) -> None:
        """Move the point away from another one by ``force`` ms, and the height in proportion."""
        apart = math.dist(self._point, origin)
        if apart > TINY_MS:
            share = force / apart
            self._point = [mine + (mine - other) * share for mine, other in zip(self._point, origin, strict=True)]
            self._height = max(self._height + share * (self._height + height), self.knobs.height_min)
        else:
            direction = self._draws.direction(len(self._point))
            self._point = [mine + force * along for mine, along in zip(self._point, direction, strict=True)]

    def _adjust(self, peer: Coordinate, rtt: float) -> None:
        """Half of the mean residual over the window; a window that is not full yet counts as filled with zeros."""
        if self.knobs.window:
            self._residuals[self._at] = rtt - (math.dist(self._point, peer.point) + self._height + peer.height)
            self._at = (self._at + 1) % self.knobs.window
            self._adjustment = sum(self._residuals) / (2.0 * self.knobs.window)

    def _gravitate(self) -> None:
        """Towards the origin of the space, which has the least height."""
        knobs = self.knobs
        origin = (0.0,) * knobs.dimensions
        distance = math.dist(self._point, origin) + self._height + knobs.height_min
        if distance + self._adjustment > 0.0:
            distance += self._adjustment
        self._push(-1000.0 * (distance / (1000.0 * knobs.gravity_rho)) ** 2, origin, knobs.height_min)
