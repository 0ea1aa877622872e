"""Random sets of topics to measure or simulate, as Khare et al. drew theirs (SEC'18, VI-B).

Processing times are drawn from 10, 20, 30 and 40 ms, unless others are given. Rates are drawn from 1 to the highest
rate at which a topic of that processing time keeps the bound when it is alone on the hardware.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import BadKnob
from trimtab.predict.accuracy import BOUND_MS
from trimtab.predict.model import Structured
from trimtab.predict.queueing import Queueing
from trimtab.predict.samples import Samples
from trimtab.predict.sets import Sets
from trimtab.predict.simulator import Hosted, simulate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.model.hardware import Hardware
    from trimtab.model.workload import Floats
    from trimtab.predict.model import LatencyModel
    from trimtab.predict.sets import Ints

PROCESSING_MS: Final = (10.0, 20.0, 30.0, 40.0)
MOST_RATE: Final = 1000
REQUEST: Final = 100  # topics that are packed together
LIMITS: Final = (0.9, 0.95, 0.97, 0.98, 0.99)  # of a worker's use, of which a request draws one
WITH_LIMIT: Final = 0.5  # share of requests with such a limit; the others are limited by latency alone, as in the paper
MARGINS: Final = (0.9, 1.0, 1.0)  # part of the bound that is used then; 0.9 is what the authors' code does
BELOW: Final = 6  # messages/s by which a request may stay below the highest rates


def highest_rates(
    hardware: Hardware, bound_ms: float = BOUND_MS, processing_ms: Sequence[float] = PROCESSING_MS
) -> Ints:  # fmt: skip
    """Messages/s that a topic alone sustains, for each of ``processing_ms``; at least 1."""
    model = Queueing(hardware)
    rate = np.arange(1, MOST_RATE + 1, dtype=np.float64)
    alone = np.arange(len(rate) + 1)
    kept = [
        int((model.p90_ms(Sets(alone, rate, np.full(len(rate), ms))) <= bound_ms).sum()) for ms in processing_ms
    ]  # fmt: skip
    return np.maximum(np.array(kept, np.int64), 1)


def random_set(
    highest: Ints, size: int, seed: int, row: int, processing_ms: Sequence[float] = PROCESSING_MS
) -> tuple[Floats, Floats]:  # fmt: skip
    """(size,) rates and processing times of one set. The same size, seed and row give the same set."""
    rng = np.random.default_rng((seed, size, row))
    kind = rng.integers(0, len(processing_ms), size)
    return rng.integers(1, highest[kind] + 1).astype(np.float64), np.array(processing_ms)[kind]


def random_sets(hardware: Hardware, size: int, count: int, seed: int) -> Sets:
    """Sets of ``size`` topics: of the rows 0, 1, ... of this seed."""
    if size < 1:
        raise BadKnob("configurations", "size", size, "one topic or more")
    highest = highest_rates(hardware)
    drawn = [random_set(highest, size, seed, row) for row in range(count)]
    rate, processing = (np.concatenate([each[column] for each in drawn]) if drawn else np.zeros(0) for column in (0, 1))
    return Sets(np.arange(0, count * size + 1, size), rate, processing)


def simulated(hardware: Hardware, sets: Sets, seed: int, run_s: float = 120.0) -> tuple[Floats, Floats]:
    """(M,) p90 of every topic and (S,) share of the cores in use, of one run of each set."""
    p90, cpu = np.empty(len(sets.rate)), np.empty(len(sets))
    for row in range(len(sets)):
        topics = slice(int(sets.begin[row]), int(sets.begin[row + 1]))
        hosted = Hosted.of(
            sets.rate[topics], sets.processing_ms[topics], subscribers=np.rint(sets.subscribers[topics])
        )  # fmt: skip
        run = simulate(hardware, hosted, seed=(seed, len(hosted.rate), row), duration_s=run_s)
        p90[topics], cpu[row] = run.p90_ms, run.cpu
    return p90, cpu


def simulated_samples(hardware: Hardware, most: int, count: int, seed: int, run_s: float = 120.0) -> Samples:
    """``count`` random sets of each size from 1 to ``most``."""
    parts = []
    for size in range(1, most + 1):
        sets = random_sets(hardware, size, count, seed)
        parts.append(Samples(hardware, sets, *simulated(hardware, sets, seed, run_s), run_s))
    return Samples.joined(parts)


def packed_request(
    model: LatencyModel,
    highest: Ints,
    most: int,
    seed: int,
    number: int,
    bound_ms: float = BOUND_MS,
    processing_ms: Sequence[float] = PROCESSING_MS,
) -> list[tuple[Floats, Floats]]:
    """Sets as an optimiser chooses them, as full as the model allows: rates and processing times of each.

    Random sets are rarely like them, and an optimiser seeks the sets on which its model is too hopeful. So a model that
    is to guide one is fitted and calibrated on such sets too, as in dataset aggregation (Ross et al., AISTATS 2011).
    The topics of a request are packed by First Fit Decreasing (Khare et al., SEC'18, V-C).
    """
    rng = np.random.default_rng((seed, most, number, 1))
    kind = rng.integers(0, len(processing_ms), REQUEST)
    rate, ms = _request(rng, highest[kind]), np.array(processing_ms)[kind]
    if rng.random() < WITH_LIMIT:
        limit = float(rng.choice(LIMITS))
    else:
        limit, bound_ms = np.inf, bound_ms * float(rng.choice(MARGINS))
    return [(rate[group], ms[group]) for group in _first_fit(model, rate, ms, most, limit, bound_ms)]


def packed_sets(
    model: LatencyModel, most: int, count: int, seed: int, processing_ms: Sequence[float] = PROCESSING_MS,
    bound_ms: float = BOUND_MS,
) -> Sets:  # fmt: skip
    """The first ``count`` sets of the requests 0, 1, ... of this seed."""
    highest = highest_rates(model.hardware, bound_ms, processing_ms)
    sets: list[tuple[Floats, Floats]] = []
    for number in itertools.count():
        if len(sets) >= count:
            break
        sets += packed_request(model, highest, most, seed, number, bound_ms, processing_ms)
    sets = sets[:count]
    begin = np.concatenate([[0], np.cumsum([len(rate) for rate, _ in sets])])
    return Sets(begin, *(np.concatenate([each[column] for each in sets] or [np.zeros(0)]) for column in (0, 1)))


def _request(rng: np.random.Generator, highest: Ints) -> Floats:
    """Rates of a request: up to the highest, up to some below it, or half of them high and half low."""
    shape = rng.integers(0, 3)
    most = np.maximum(highest - (0 if shape == 0 else BELOW), 1)
    rate = rng.integers(1, most + 1)
    if shape == 2:
        few = np.maximum(np.minimum(most, BELOW - 1), 1)
        low, high = rng.integers(1, few + 1), most - rng.integers(0, few)
        rate = np.where(rng.random(len(most)) < 0.5, low, high)
    return np.asarray(rate, np.float64)


def _first_fit(
    model: LatencyModel, rate: Floats, ms: Floats, most: int, limit: float, bound_ms: float
) -> list[list[int]]:  # fmt: skip
    """Rows of the topics on each broker: no use above the limit and no p90 above the bound, but for a topic alone."""
    alone = model.p90_ms(Sets(np.arange(len(rate) + 1), rate, ms))
    groups: list[list[int]] = []
    for topic in np.argsort(-alone, kind="stable").tolist():
        free = [group for group in groups if len(group) < most]
        sets = Sets.of([[*group, topic] for group in free], rate, ms)
        fits = sets.highest(model.p90_ms(sets)) <= bound_ms
        if limit < np.inf and isinstance(model, Structured):
            fits &= sets.highest(model.use(sets)) <= limit
        if fits.any():
            free[int(fits.argmax())].append(topic)
        else:
            groups.append([topic])
    return groups
