"""Coordinates by a robust relative loss: the same numbers as Serf's, fitted so that outliers and liars count little."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from trimtab.errors import BadKnob
from trimtab.observe.coordinates.coordinate import Coordinate, Estimate
from trimtab.observe.coordinates.node import PeerNode, refuse_bad_knobs

if TYPE_CHECKING:
    from trimtab.observe.coordinates.samples import Embedding, Lies, Samples

BETA_1: Final = 0.9  # decay of Adam's mean of gradients (Kingma and Ba, ICLR'15, Algorithm 1)
BETA_2: Final = 0.9  # decay of its mean of squared gradients: short, since first gradients are far larger than later
FAST: Final = 0.05  # weight of a new error in the reported average
SLOW: Final = 0.005  # weight in the average that tells whether the error has grown
WORSE: Final = 1.5  # times the slow average, and
MARGIN: Final = 0.03  # beyond that: the network has changed, so the steps start anew
WARM: Final = 300  # steps after which this may happen
LIMIT: Final = 4.0  # most that an estimate below the measurement raises a gradient
FIRST_ERROR: Final = 1.0  # of a node that has not measured yet
TINY_MS: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Robust:
    """A point and a height, fitted by Adam to up to ``batch`` cached peers for each sample. See docs/internals.

    The gradient of a peer with z = ln(estimate / measurement) / width is z / (1 + z^2)^(3/4): as a squared loss near
    zero, and less than with an absolute loss for outliers. A link that was measured shorter than estimated keeps
    ``plateau``, so that a rare short link is no outlier: a measurement can be too long, but not too short.
    """

    name: ClassVar[str] = "robust"
    summary: ClassVar[str] = "robust relative loss over cached peers; a measured pair overrides the estimate"
    both_ends: ClassVar[bool] = True

    dimensions: int = 8
    batch: int = 16  # cached peers behind each step
    width: float = 0.1  # logarithm of estimate / measurement at which the loss bends
    plateau: float = 0.4  # least gradient of a link that is shorter than estimated; 0: none
    trust: float = 0.2  # a peer whose error is this large has half the weight of one without error
    near: float = 0.2  # share of the node's mean round-trip time below which a peer weighs no more
    rate: float = 0.05  # first step, as a share of the node's mean round-trip time
    floor: float = 0.0005  # least step, as such a share, so that nodes follow a network that changes
    horizon: float = 150.0  # samples after which the step is half as long
    height_min: float = 0.01  # ms
    filter: int = 5  # samples of a peer whose lower quartile is used (Ledlie et al., NSDI'07, Section 4.2)
    gravity_rho: float = 150.0  # s, as in Serf

    def __post_init__(self) -> None:
        positive = ("width", "trust", "rate", "horizon", "height_min", "gravity_rho")
        refuse_bad_knobs(self, positive, dimensions=1, batch=1, filter=1)
        for name in ("plateau", "near", "floor"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise BadKnob("robust", name, getattr(self, name), "in [0, 1)")

    def node(self, seed: int = 0) -> RobustNode:
        return RobustNode(self, seed)

    def simulate(self, samples: Samples, seed: int = 0, lies: Lies | None = None) -> Embedding:
        from trimtab.observe.coordinates.simulation import simulate_robust

        return simulate_robust(self, samples, seed, lies)


class RobustNode(PeerNode):
    """One node of the robust model, in pure Python, so that a client needs neither numpy nor a compiler."""

    def __init__(self, knobs: Robust, seed: int = 0) -> None:
        self.knobs = knobs
        super().__init__(knobs, seed, low=True)

    def _start(self) -> None:
        super()._start()
        size = self.knobs.dimensions
        self._error = self._slow_error = FIRST_ERROR
        self._mean = [0.0] * (size + 1)  # Adam's moments: the point's, then the height's
        self._square = [0.0] * (size + 1)
        self._updates = 0
        self._steps = 0  # updates since the network last changed
        self._cursor = 0  # the next peer of the ring to learn from

    def coordinate(self) -> Coordinate:
        return Coordinate(tuple(self._point), self._height, 0.0, self._error)

    def estimate(self, peer: str, coordinate: Coordinate | None = None) -> Estimate:
        """The node's own measurement where there is one, however good the coordinates are."""
        memory = self._table.peers.get(peer)
        if memory is not None:
            return Estimate(memory.rtt_ms, measured=True)
        return Estimate(self.coordinate().rtt_ms(coordinate or self._table.last(peer)), measured=False)

    def _learn(self, peer: str, coordinate: Coordinate, rtt_ms: float) -> None:
        self._table.add(peer, coordinate, rtt_ms)
        self._step()

    def _step(self) -> None:
        """One step of Adam on the next peers of the ring."""
        ring = self._table.ring
        known = len(ring)
        knobs, scale_ms = self.knobs, self._table.total_ms / known
        count = min(knobs.batch, known)
        slope = [0.0] * (knobs.dimensions + 1)
        wrong = 0.0
        for place in range(self._cursor, self._cursor + count):
            memory = ring[place % known]
            wrong += self._add_slope(slope, memory.coordinate, max(memory.rtt_ms, TINY_MS), knobs.near * scale_ms)
        self._cursor = (self._cursor + count) % known
        self._follow_error(wrong / count)
        self._descend(slope, scale_ms, count)

    def _add_slope(self, slope: list[float], peer: Coordinate, rtt_ms: float, near_ms: float) -> float:
        """Add the gradient of one peer, and return the size of its error, at most 1."""
        knobs, point = self.knobs, self._point
        apart = math.dist(point, peer.point)
        estimate = max(apart + self._height + peer.height, TINY_MS)
        ratio = math.log(estimate / rtt_ms)
        z = ratio / knobs.width
        root = math.sqrt(1.0 + z * z)
        pull = z / (root * math.sqrt(root))
        if z > 1.0 and pull < knobs.plateau:
            pull = knobs.plateau
        doubt = min(max(peer.error, self._error), 1.0)  # no claim counts for more than the node's own error
        pull *= knobs.trust / (knobs.trust + doubt) / max(estimate, rtt_ms / LIMIT, near_ms)
        slope[-1] += pull
        if apart > TINY_MS:
            pull /= apart
            for axis, other in enumerate(peer.point):
                slope[axis] += pull * (point[axis] - other)
        else:
            for axis, along in enumerate(self._draws.direction(knobs.dimensions)):
                slope[axis] += pull * along
        return min(abs(ratio), 1.0)

    def _follow_error(self, wrong: float) -> None:
        """Average the error, and start the steps anew when it has grown for good."""
        self._error += FAST * (wrong - self._error)
        self._slow_error += SLOW * (wrong - self._slow_error)
        self._steps += 1
        self._updates += 1
        if self._steps > WARM and self._error > WORSE * self._slow_error + MARGIN:
            self._steps = 0
            self._slow_error = self._error

    def _descend(self, slope: list[float], scale_ms: float, count: int) -> None:
        knobs = self.knobs
        length = scale_ms * max(knobs.rate / (1.0 + self._steps / knobs.horizon), knobs.floor)
        unbias_1, unbias_2 = 1.0 - BETA_1**self._updates, 1.0 - BETA_2**self._updates
        moves = []
        for axis, total in enumerate(slope):
            gradient = total * scale_ms / count
            self._mean[axis] += (1.0 - BETA_1) * (gradient - self._mean[axis])
            self._square[axis] += (1.0 - BETA_2) * (gradient * gradient - self._square[axis])
            moves.append(length * (self._mean[axis] / unbias_1) / (math.sqrt(self._square[axis] / unbias_2) + 1e-9))
        self._height = max(self._height - moves.pop(), knobs.height_min)
        point = [mine - move for mine, move in zip(self._point, moves, strict=True)]
        shrink = 1.0 - math.hypot(*point) / (1000.0 * knobs.gravity_rho**2)
        self._point = [mine * shrink for mine in point]
