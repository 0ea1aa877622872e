"""Cases of topics with processors and latency bounds: traffic grows and falls, and brokers are filled and emptied."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.control.settings import Settings
from trimtab.lab.stability.case import Case
from trimtab.lab.stability.register import case

if TYPE_CHECKING:
    from trimtab.model.workload import Floats

BROKERS: Final = 4
CORES: Final = 2.0
TOPICS: Final = 24
SIZE: Final = 100.0  # bytes of a message
PROCESSING_MS: Final = 20.0
BOUND_MS: Final = 300.0
ABREAST: Final = 20.0  # no goal but promises and thrift acts at such an ``alpha``


def regions(
    rng: np.random.Generator, name: str, about: str, brokers: int, rate: float, settings: Settings
) -> Case:  # fmt: skip
    """Topics with a processor, a publisher and a subscriber each, on ``brokers`` of the four brokers."""
    rates = rate * SIZE * rng.uniform(0.7, 1.3, TOPICS)
    rows = np.arange(TOPICS, dtype=np.int32)
    base = Case(
        name, about, BROKERS, rates, rows, rows, np.zeros(0, np.int32), units=("topic",) * TOPICS,
        publisher=rows, size=np.full(TOPICS, SIZE), cores=np.full(BROKERS, CORES),
        processing_ms=np.full(TOPICS, PROCESSING_MS), latency_ms=np.full(TOPICS, BOUND_MS), settings=settings,
    )  # fmt: skip
    return replace(base, home=np.arange(len(base.keys), dtype=np.int32) % brokers)


@case("processed topics with a bound: traffic grows slowly until one broker is too few")
def _growing(rng: np.random.Generator, name: str, about: str) -> Case:
    base = regions(rng, name, about, 1, 1.5, Settings(alpha=ABREAST, idle=0.0))

    def changing(second: int) -> Floats:
        return np.full(TOPICS, 1.0 + 3.0 * min(1.0, max(0.0, (second - 120) / 600)))

    return replace(base, changing=changing, changes=tuple(range(120, 780, 60)))


@case("processed topics with a bound, nights of one broker and days of three or four; thrift is on")
def _nights(rng: np.random.Generator, name: str, about: str) -> Case:
    base = regions(rng, name, about, BROKERS, 1.5, Settings(alpha=ABREAST, idle=0.0, thrift=True))

    def changing(second: int) -> Floats:
        rises = min(1.0, max(0.0, (second - 300) / 180))
        falls = min(1.0, max(0.0, (second - 720) / 180))
        return np.full(TOPICS, 1.0 + 5.0 * (rises - falls))

    # Thrift empties one broker at a time, so it takes some minutes until all are empty that are not needed.
    changes = (*range(60, 300, 60), *range(300, 540, 60), *range(720, 1140, 60))
    return replace(base, changing=changing, changes=changes)
