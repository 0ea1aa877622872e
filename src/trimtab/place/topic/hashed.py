"""``topic/hash``: consistent hashing, which is what brokers do without any prediction (Karger et al., STOC'97)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.model.placement import UNPLACED, Bound, Placement
from trimtab.place.knobs import check, knob

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from trimtab.model.problem import Problem

RANGES: Final = 64  # ranges of hashes of each broker


@dataclass(frozen=True, slots=True)
class Hash:
    """Assigns every topic to the broker in whose range of hashes its name falls (Gupta, 5.5: the baseline Pulsar).

    Every broker has ranges at many places of a ring of hashes, so that removing a broker moves only its own topics. It
    predicts nothing. A topic whose broker has ``k`` topics already goes to the next broker on the ring that has fewer.
    Topics without processing times do not disturb each other, so any number of them may share a broker.
    """

    k: int = knob(6, "most topics on a broker", least=1)

    may_leave_unplaced: ClassVar[bool] = True
    keeps_limits: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self)

    def place(self, problem: Problem) -> Placement:
        most = max(problem.units, 1) if problem.workload.topics.processing_ms is None else self.k
        owner, end = _ring(problem.workload.brokers.ids)
        count = np.zeros(problem.brokers, np.int64)
        broker = np.full(problem.units, UNPLACED, np.int32)
        first = np.searchsorted(end, _hashes(problem.workload.topics.ids)) if problem.brokers else np.zeros(0, np.int64)
        for topic, at in enumerate(first[: most * problem.brokers].tolist()):  # then all brokers are full
            place = at % len(owner)
            while count[owner[place]] >= most:
                place = (place + 1) % len(owner)
            broker[topic] = owner[place]
            count[owner[place]] += 1
        placed = int(count.sum())
        return Placement("topic", broker, Bound("topics-per-broker", float(-(-placed // most)), "brokers_used"))


def _ring(brokers: Iterable[str]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """The broker of each range, in the order of the ring, and the last hash of the range."""
    ends = np.array([_hashes(f"{name}/{part}" for part in range(RANGES)) for name in brokers], np.uint64).reshape(-1)
    order = np.argsort(ends, kind="stable")
    return order // RANGES, ends[order]


def _hashes(names: Iterable[str]) -> NDArray[np.uint64]:
    digests = b"".join(hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, np.uint64)
