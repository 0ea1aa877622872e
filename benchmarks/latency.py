"""Latency models: simulated runs and feasibility tests per second on one core, and the time to fit each predictor.

Accuracy is measured by the experiment ``latency-accuracy``, the simulator against the paper by ``latency-sensitivity``.
Rates are per second of CPU time; set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import os
import statistics
import time
from typing import TYPE_CHECKING

import numpy as np

from trimtab.cli.output import print_table
from trimtab.model.hardware import PAPER, PROFILES
from trimtab.predict.configurations import random_sets, simulated, simulated_samples
from trimtab.predict.mlp import Mlp
from trimtab.predict.queueing import Queueing
from trimtab.predict.trim import Trim

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.predict.model import LatencyModel
    from trimtab.predict.sets import Sets

ROUNDS = int(os.environ.get("TRIMTAB_ROUNDS", "5"))
SEED = int(os.environ.get("TRIMTAB_SEED", "0"))
MOST = 6
RUNS = 60  # simulated runs of each number of topics
TESTS = 20_000  # sets of six topics
BAR_RUNS, BAR_TESTS = 300, 400_000  # per second
BOUND_MS = 1000.0


def main() -> None:
    simulator()
    feasibility()


def simulator() -> None:
    rows = []
    for name, profile in PROFILES.items():
        each = [random_sets(profile, size, RUNS, SEED) for size in range(1, MOST + 1)]
        simulated(profile, each[0].take(np.arange(2)), SEED)  # compiled before the clock runs
        seconds = _median(lambda each=each, profile=profile: [simulated(profile, sets, SEED) for sets in each])
        rate = MOST * RUNS / seconds
        rows.append((name, f"{rate:,.0f}", "yes" if rate >= BAR_RUNS else "NO"))
    columns = ["hardware", "two-minute runs/s, one core", f"at least {BAR_RUNS}"]
    print_table("The simulator: one to six topics, as many sets of each", columns, rows)


def feasibility() -> None:
    """Whether all topics of a set keep the bound: of many sets at once, and of one set at a time."""
    sets = random_sets(PAPER, MOST, TESTS, SEED)
    samples = simulated_samples(PAPER, MOST, 250, SEED)
    one = [sets.take(np.array([row])) for row in range(500)]
    models: list[tuple[LatencyModel, float]] = [(Queueing(PAPER), 0.0)]
    for predictor in (Trim(), Mlp()):
        start = time.perf_counter()
        models.append((predictor.fit(samples, seed=SEED), time.perf_counter() - start))
    rows = []
    for model, fitted_s in models:
        many = TESTS / _median(lambda model=model: _feasible(model, sets))
        single = len(one) / _median(lambda model=model: [_feasible(model, each) for each in one])
        met = "" if not isinstance(model, Queueing) else "yes" if many >= BAR_TESTS else "NO"
        rows.append((model.name, f"{fitted_s:.1f}" if fitted_s else "-", f"{many:,.0f}", f"{single:,.0f}", met))
    columns = ["model", "fitted in, s", "tests/s, in a batch", "tests/s, one at a time", f"at least {BAR_TESTS:,}"]
    print_table("Feasibility tests of sets of six topics, one core; fitted to 1,500 sets", columns, rows)


def _feasible(model: LatencyModel, sets: Sets) -> np.ndarray:
    return sets.highest(model.p90_ms(sets)) <= BOUND_MS


def _median(run: Callable[[], object]) -> float:
    """Seconds of CPU time of one thread, after one call that compiles: other work on the machine does not count."""
    run()
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return statistics.median(times)
