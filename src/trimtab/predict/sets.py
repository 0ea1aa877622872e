"""Sets of topics that share a broker, in columns: the question that a latency model answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimtab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from trimtab.model.hardware import Hardware
    from trimtab.model.workload import Floats

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Sets:
    """Topics of set s are the rows ``begin[s]:begin[s + 1]``."""

    begin: Ints  # (S + 1,)
    rate: Floats  # (M,) messages/s
    processing_ms: Floats  # (M,) nominal CPU time of a message
    subscribers: Floats = None  # type: ignore[assignment]  # (M,) copies of a message; default: 1 each

    def __post_init__(self) -> None:
        if self.subscribers is None:
            object.__setattr__(self, "subscribers", np.ones(len(self.rate)))
        for name, kind in (
            ("begin", np.int64), ("rate", np.float64), ("processing_ms", np.float64), ("subscribers", np.float64),
        ):  # fmt: skip
            object.__setattr__(self, name, np.asarray(getattr(self, name), kind))
        if self.subscribers.shape != self.rate.shape:
            raise BadInput(f"subscribers has shape {self.subscribers.shape}, but must have {self.rate.shape}")

    def __len__(self) -> int:
        return len(self.begin) - 1

    @classmethod
    def of(cls, groups: Iterable[Sequence[int] | Ints], rate: Floats, processing_ms: Floats) -> Sets:
        """Groups of topics by their rows in the columns ``rate`` and ``processing_ms``."""
        listed = [np.asarray(group, np.int64) for group in groups]
        rows = np.concatenate(listed) if listed else np.zeros(0, np.int64)
        sizes = np.array([len(group) for group in listed], np.int64)
        return cls(np.concatenate([[0], np.cumsum(sizes)]), rate[rows], processing_ms[rows])

    @classmethod
    def matrix(cls, members: Ints, rate: Floats, processing_ms: Floats) -> Sets:
        """Groups of the same size, one a row; -1 stands for no topic."""
        there = members >= 0
        begin = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
        rows = members[there]
        return cls(begin, rate[rows], processing_ms[rows])

    @property
    def sizes(self) -> Ints:
        """(S,) topics of each set."""
        return np.diff(self.begin)

    @property
    def set_of(self) -> Ints:
        """(M,) the set of each topic."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def sum(self, values: Floats) -> Floats:
        """(S,) the sum of a column over each set."""
        return np.bincount(self.set_of, weights=values, minlength=len(self)).astype(np.float64)

    def highest(self, values: Floats) -> Floats:
        """(S,) the highest value of each set; -inf for an empty one."""
        most = np.full(len(self), -np.inf)
        np.maximum.at(most, self.set_of, values)
        return most

    def take(self, rows: Ints) -> Sets:
        """These sets, in this order."""
        sizes = self.sizes[rows]
        begin = np.concatenate([[0], np.cumsum(sizes)])
        members = np.repeat(self.begin[rows] - begin[:-1], sizes) + np.arange(begin[-1])
        return Sets(begin, self.rate[members], self.processing_ms[members], self.subscribers[members])

    def for_one_subscriber(self, hardware: Hardware) -> Sets:
        """The same sets as models see them that do not know subscribers: copies of a message are processing."""
        if (self.subscribers == 1.0).all():
            return self
        return Sets(self.begin, self.rate, hardware.for_one_subscriber(self.processing_ms, self.subscribers))

    def topics_of(self, rows: Ints) -> Ints:
        """Rows of the topics of these sets, in their order."""
        sizes = self.sizes[rows]
        begin = np.concatenate([[0], np.cumsum(sizes)])
        return np.asarray(np.repeat(self.begin[rows] - begin[:-1], sizes) + np.arange(begin[-1]))

    def refuse_senseless(self) -> None:
        columns = {"rate": self.rate, "processing_ms": self.processing_ms, "subscribers": self.subscribers}
        for name, values in columns.items():
            bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0.0)))
            if len(bad):
                raise BadInput(
                    f"{name} of a topic to predict must be zero or more, and finite, but is {values[bad[0]]}"
                )

    def refuse_if_larger_than(self, most: int, name: str) -> None:
        if len(self) and self.sizes.max() > most:
            raise BadInput(f"{name} is made for at most {most} topics on a broker, but was asked about "
                           f"{self.sizes.max()}: train one with a larger --k")  # fmt: skip


def features(sets: Sets) -> Floats:
    """(M, 6) the features of Khare et al. (SEC'18, IV-D): p, r and p * r of the topic, and their sums over the other
    topics of its set."""
    load = sets.processing_ms * sets.rate
    own = np.stack([sets.processing_ms, sets.rate, load], axis=1)
    others = [sets.sum(column)[sets.set_of] - column for column in own.T]
    return np.concatenate([own, np.stack(others, axis=1)], axis=1)
