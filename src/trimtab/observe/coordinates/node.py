"""What every model of coordinates offers, and the part of a node's state that all models share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from trimtab.errors import BadKnob, UnknownName
from trimtab.observe.coordinates.draws import Draws

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.observe.coordinates.coordinate import Coordinate, Estimate
    from trimtab.observe.coordinates.samples import Embedding, Lies, Samples

MOST_RTT_MS: Final = 10_000.0  # a longer round-trip time is taken for a fault of the measurement, as in Serf
MOST_PEERS: Final = 1024  # peers that a node remembers; the one heard of longest ago is forgotten first
FARTHEST_MS: Final = 1e6  # a point with a larger number cannot be right


class Node(Protocol):
    """The state of one node. It reads no clock and draws nothing but from its seed."""

    rejected: int  # samples left out: an impossible time, or a coordinate that cannot be used
    resets: int  # times that the node started anew because its own coordinate was not finite

    def update(self, peer: str, coordinate: Coordinate, rtt_ms: float) -> None:
        """Learn from a probe: the peer's coordinate as the answer carried it, and the round-trip time.

        Never raises because of these values: samples that cannot be right are counted in ``rejected``.
        """
        ...

    def coordinate(self) -> Coordinate: ...

    def estimate(self, peer: str, coordinate: Coordinate | None = None) -> Estimate:
        """The round-trip time to a peer, given its coordinate, or else the last one heard.

        Raises ``UnknownName`` for a peer that was never heard of, if no coordinate is given.
        """
        ...

    def forget(self, peer: str) -> None:
        """Drop everything remembered about a peer. A peer that is not known is no error."""
        ...

    def resume(self, coordinate: Coordinate) -> bool:
        """Go on from a coordinate that the node had before; False if it cannot be the model's."""
        ...


class CoordinateModel(Protocol):
    """Knobs are fields; it keeps no state."""

    name: ClassVar[str]
    summary: ClassVar[str]
    both_ends: ClassVar[bool]  # whether the node that is probed learns from the probe too

    def node(self, seed: int = 0) -> Node:
        """A node at the origin. Nodes with the same seed and the same samples have the same state."""
        ...

    def simulate(self, samples: Samples, seed: int = 0, lies: Lies | None = None) -> Embedding:
        """A whole network of such nodes, compiled: node i has the seed ``node_seed(seed, i)``."""
        ...


class Knobs(Protocol):
    """What the nodes of both models need."""

    @property
    def dimensions(self) -> int: ...

    @property
    def filter(self) -> int: ...

    @property
    def height_min(self) -> float: ...


class PeerMemory:
    """A peer as it was last heard of, and the newest round-trip times to it."""

    __slots__ = ("coordinate", "rtt_ms", "samples_ms")

    def __init__(self, coordinate: Coordinate) -> None:
        self.coordinate = coordinate
        self.samples_ms: list[float] = []
        self.rtt_ms = 0.0  # filtered

    def add(self, rtt_ms: float, window: int, *, low: bool) -> None:
        """Filter the newest ``window`` samples: by their median, or by their lower quartile."""
        samples = self.samples_ms
        samples.append(rtt_ms)
        if len(samples) > window:
            del samples[0]
        self.rtt_ms = sorted(samples)[(len(samples) - 1) // 4 if low else len(samples) // 2]


class PeerTable:
    """The peers of a node, in the order in which they were last heard of, and in that of their first samples."""

    def __init__(self, window: int, *, low: bool) -> None:
        self.window = window
        self.low = low
        self.peers: dict[str, PeerMemory] = {}  # the peer heard of longest ago first
        self.ring: list[PeerMemory] = []  # in the order of first samples
        self.total_ms = 0.0  # sum of all filtered round-trip times

    def add(self, peer: str, coordinate: Coordinate, rtt_ms: float) -> float:
        """Remember a sample, and return the filtered round-trip time."""
        memory = self.peers.pop(peer, None)
        if memory is None:
            if len(self.peers) == MOST_PEERS:
                self.drop(next(iter(self.peers)))
            memory = PeerMemory(coordinate)
            self.ring.append(memory)
        self.peers[peer] = memory
        before_ms = memory.rtt_ms
        memory.coordinate = coordinate
        memory.add(rtt_ms, self.window, low=self.low)
        self.total_ms += memory.rtt_ms - before_ms
        return memory.rtt_ms

    def drop(self, peer: str) -> None:
        memory = self.peers.pop(peer, None)
        if memory is not None:
            self.ring.remove(memory)
            self.total_ms = math.fsum(other.rtt_ms for other in self.ring)

    def last(self, peer: str) -> Coordinate:
        if peer not in self.peers:
            raise UnknownName("peer", peer, sorted(self.peers))
        return self.peers[peer].coordinate


class PeerNode(ABC):
    """A node with a point, a height, an error, and a table of its peers: what both models start with."""

    def __init__(self, knobs: Knobs, seed: int, *, low: bool) -> None:
        self.rejected = 0
        self.resets = 0
        self._dimensions, self._height_min = knobs.dimensions, knobs.height_min
        self._draws = Draws(seed)
        self._table = PeerTable(knobs.filter, low=low)
        self._start()

    def _start(self) -> None:
        """Back to the origin; what was learned of peers stays."""
        self._point = [0.0] * self._dimensions
        self._height = self._height_min
        self._error = 0.0

    @abstractmethod
    def coordinate(self) -> Coordinate: ...

    @abstractmethod
    def _learn(self, peer: str, coordinate: Coordinate, rtt_ms: float) -> None:
        """Move by a sample that can be right."""

    def update(self, peer: str, coordinate: Coordinate, rtt_ms: float) -> None:
        if not acceptable(coordinate, rtt_ms, self._dimensions):
            self.rejected += 1
            return
        self._learn(peer, coordinate, rtt_ms)
        if not self.coordinate().usable:
            self._start()
            self.resets += 1

    def forget(self, peer: str) -> None:
        self._table.drop(peer)

    def resume(self, coordinate: Coordinate) -> bool:
        if not possible(coordinate, self._dimensions):
            return False
        self._point, self._height = list(coordinate.point), max(coordinate.height, self._height_min)
        self._error = coordinate.error
        return True


def refuse_bad_knobs(model: CoordinateModel, positive: Sequence[str], **least: int) -> None:
    """Refuse knobs below their least value, and those in ``positive`` that are not positive numbers."""
    for name, low in least.items():
        if getattr(model, name) < low:
            raise BadKnob(model.name, name, getattr(model, name), f"{low} or more")
    for name in positive:
        if not 0.0 < getattr(model, name) < math.inf:
            raise BadKnob(model.name, name, getattr(model, name), "a positive number")


def acceptable(coordinate: Coordinate, rtt_ms: float, dimensions: int) -> bool:
    """Whether a sample can be right at all."""
    return 0.0 < rtt_ms <= MOST_RTT_MS and possible(coordinate, dimensions)  # also refuses NaN


def possible(coordinate: Coordinate, dimensions: int) -> bool:
    """Whether a node can have this coordinate."""
    return (
        len(coordinate.point) == dimensions
        and coordinate.usable
        and max(coordinate.height, *coordinate.point) <= FARTHEST_MS
        and min(coordinate.point) >= -FARTHEST_MS
    )
