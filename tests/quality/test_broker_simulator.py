"""The simulated broker against the printed figures of Khare et al. (SEC'18), and the queueing model against it."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.model.hardware import PAPER
from trimtab.predict.queueing import Queueing
from trimtab.predict.sets import Sets
from trimtab.predict.simulator import Hosted, simulate

BOUND_MS = 1000.0
HIGHEST = {10: 78, 20: 37, 30: 24, 40: 20}  # messages/s that a topic alone sustains, by processing_ms (VI-B)


def p90_ms(topics, seed, subscribers=1):
    """Of the first topic; topics are pairs of rate and processing_ms."""
    rate, processing = (np.array(column, float) for column in zip(*topics, strict=True))
    counts = np.ones(len(topics), int)
    counts[0] = subscribers
    return float(simulate(PAPER, Hosted.of(rate, processing, subscribers=counts), seed=seed).p90_ms[0])


def sustained(processing, neighbours=(), seeds=5):
    """The highest rate at which the median run keeps the bound."""
    rate = 1
    while np.median([p90_ms([(rate, processing), *neighbours], seed) for seed in range(seeds)]) <= BOUND_MS:
        rate += 1
    return rate - 1


@pytest.mark.parametrize(("processing", "rate"), HIGHEST.items())
def test_a_topic_alone_sustains_the_printed_rate(processing, rate):
    below, above = ([p90_ms([(each, processing)], seed) for seed in range(9)] for each in (rate, rate + 1))

    assert np.median(below) <= BOUND_MS < np.median(above)


@pytest.mark.slow
@pytest.mark.parametrize(("neighbours", "printed"), [(0, 38), (7, 15), (11, 8)])
def test_background_load_lowers_the_sustained_rate_as_in_figure_1d(neighbours, printed):
    found = []
    for seed in range(25):
        rng = np.random.default_rng((seed, neighbours))
        kinds = rng.choice(list(HIGHEST), neighbours).tolist()
        found.append(sustained(20, [(rng.integers(1, HIGHEST[kind] + 1), kind) for kind in kinds], seeds=3))

    assert abs(np.median(found) - printed) <= 1


@pytest.mark.parametrize(("neighbours", "printed_ms"), [(0, 72.0), (6, 180.0)])
def test_background_load_raises_the_latency_as_in_figure_1b(neighbours, printed_ms):
    """A topic with 200 subscribers beside topics of ten messages/s, until the cores are in use."""
    topics = [(1, 50), *[(10, 50)] * neighbours]

    mean = np.mean([p90_ms(topics, seed, subscribers=200) for seed in range(20)])

    assert mean == pytest.approx(printed_ms, rel=0.05)


@pytest.mark.slow
def test_the_queueing_model_finds_the_side_of_the_bound():
    """Configurations of the paper's training set, up to six topics; 1.5 % on the wrong side at most."""
    rng = np.random.default_rng(7)
    wrong = total = 0
    for count in range(1, 7):
        processing = rng.choice(list(HIGHEST), (60, count))
        rate = np.array([[rng.integers(1, HIGHEST[kind] + 1) for kind in row] for row in processing.tolist()], float)
        sets = Sets(np.arange(0, rate.size + 1, count), rate.ravel(), processing.ravel().astype(float))
        predicted = Queueing(PAPER).p90_ms(sets).reshape(rate.shape)
        for row in range(len(rate)):
            measured = simulate(PAPER, Hosted.of(rate[row], processing[row].astype(float)), seed=(count, row)).p90_ms
            wrong += int(((predicted[row] > BOUND_MS) != (measured > BOUND_MS)).sum())
            total += count

    assert wrong <= 0.015 * total
