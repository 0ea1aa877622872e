"""Random directions that pure Python and compiled code draw alike: SplitMix64 (Steele et al., OOPSLA'14)."""

from __future__ import annotations

import math
from typing import Final

GOLDEN: Final = 0x9E3779B97F4A7C15
MASK: Final = 0xFFFFFFFFFFFFFFFF


class Draws:
    """A stream of numbers from a seed."""

    __slots__ = ("state",)

    def __init__(self, seed: int) -> None:
        self.state = seed & MASK

    def uniform(self) -> float:
        """In [-0.5, 0.5)."""
        self.state = (self.state + GOLDEN) & MASK
        mixed = self.state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
        mixed ^= mixed >> 31
        return (mixed >> 11) * 2.0**-53 - 0.5

    def direction(self, dimensions: int) -> list[float]:
        """A vector of length one."""
        vector = [self.uniform() for _ in range(dimensions)]
        length = math.sqrt(sum(x * x for x in vector))
        if length < 1e-9:
            return [1.0] + [0.0] * (dimensions - 1)
        return [x / length for x in vector]


def node_seed(seed: int, node: int) -> int:
    """The seed of one node of a network."""
    return (seed * 1_000_003 + node) & MASK
