"""Time limits of searches. Placement code reads no clock; the caller passes one in as a ``Stop``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

EFFORT: Final = 1e3  # largest value of a knob ``effort``: about an hour of search


class Stop(Protocol):
    """The remaining time of a search."""

    def left_s(self) -> float:
        """Seconds left; infinity where there is no limit, zero or less when time is up."""
        ...


@dataclass(frozen=True, repr=False)
class NoLimit:
    """No time limit: only the amount of work ends the search, so the answer depends on the seed alone."""

    def left_s(self) -> float:
        return float("inf")

    def __repr__(self) -> str:
        return "no limit"


NO_LIMIT = NoLimit()
