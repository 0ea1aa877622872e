"""What a simulated network measures, how some of its nodes lie, and the coordinates that come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import BadInput, UnknownName

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.coordinates import Coordinates
    from trimtab.model.workload import Floats

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

KINDS: Final = {"honest": 0, "elsewhere": 1, "scaled": 2, "jumping": 3, "beside": 4}  # as in ``kernels``
FAR_MS: Final = 100.0  # scale of the places that liars claim


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """The samples of a network in the order in which nodes learn from them: a row each."""

    nodes: int
    learner: Ints  # (M,) the node that learns
    teacher: Ints  # (M,) the node whose coordinate and round-trip time it learns
    rtt_ms: Floats  # (M,)

    def __post_init__(self) -> None:
        if not len(self.learner) == len(self.teacher) == len(self.rtt_ms):
            raise BadInput("samples need as many learners as teachers and round-trip times")
        if len(self.rtt_ms) and not (self.rtt_ms > 0.0).all():
            raise BadInput("a simulated round-trip time must be positive")


@dataclass(frozen=True, slots=True, eq=False)
class Lies:
    """Which nodes report a wrong coordinate, and where they claim to be."""

    kind: Ints  # (N,) one of ``KINDS``
    claimed: Floats  # (N, D) ms

    @classmethod
    def of(cls, liars: Flags, kind: str, dimensions: int, seed: int) -> Lies:
        """``elsewhere``: a wrong place; ``scaled``: three times as far out; ``jumping``: two places in turn;
        ``beside``: wherever the node that asks is. All of them claim to have hardly any error.
        """
        if kind not in KINDS:
            raise UnknownName("kind of lie", kind, KINDS)
        claimed = np.random.default_rng((seed, 11)).normal(size=(len(liars), dimensions)) * FAR_MS
        return cls(np.where(liars, KINDS[kind], 0), claimed)


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """The state of all nodes after a simulation."""

    coordinates: Coordinates
    error: Floats  # (N,) that each node reports
    learner: Ints = field(repr=False)  # (P,) pairs that were measured,
    teacher: Ints = field(repr=False)  # (P,) and
    measured_ms: Floats = field(repr=False)  # (P,) their filtered round-trip times

    def rtt_ms(self) -> Floats:
        """(N, N) estimates by coordinates."""
        return self.coordinates.rtt_ms(self.coordinates)

    def best_ms(self) -> Floats:
        """(N, N) what row i answers about column j: its own measurement where there is one."""
        best = self.rtt_ms()
        best[self.learner, self.teacher] = self.measured_ms
        return best
