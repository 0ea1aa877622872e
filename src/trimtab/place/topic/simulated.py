"""The judge's figures of latency: every broker is simulated with its topics, whichever model made the placement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.model.judgement import Latency
from trimtab.model.workload import PUB
from trimtab.predict.queueing import Queueing
from trimtab.predict.sets import Sets
from trimtab.predict.simulator import DURATION_S, WARM_UP_S, Hosted, Run, repeated

if TYPE_CHECKING:
    from trimtab.model.hardware import Hardware
    from trimtab.model.placement import Placement
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats
    from trimtab.predict.sets import Ints

RUNS: Final = 3  # of every broker, pooled: latencies at full use vary from run to run
SEED: Final = 20_181  # of the first run; no policy and no model draws from this seed
MOST_MESSAGES: Final = 2e6  # of one run; a broker with more is predicted instead


def latency_of(problem: Problem, placement: Placement) -> Latency | None:
    """None unless whole topics are placed and the workload has their processing times.

    A topic whose processing time is zero has no processor: it is not simulated, and its p90 is NaN.
    """
    topics = problem.workload.topics
    processing = topics.processing_ms
    if placement.unit != "topic" or processing is None:
        return None
    count = len(topics)
    bound = np.full(count, np.nan) if topics.latency_ms is None else topics.latency_ms
    publishers, subscribers = _endpoints(problem)
    p90, messages, late = np.full(count, np.nan), np.zeros(count), np.zeros(count)
    cpu = np.zeros(problem.brokers)
    machines, kind = problem.machines
    order = np.argsort(placement.broker, kind="stable")
    first = np.searchsorted(placement.broker[order], np.arange(problem.brokers + 1))
    for broker in range(problem.brokers):
        rows = order[first[broker] : first[broker + 1]]
        rows = rows[processing[rows] > 0.0]
        if not len(rows):
            continue
        limit = np.where(np.isnan(bound[rows]), np.inf, bound[rows])
        machine = machines[kind[broker]]
        if topics.rate[rows].sum() * DURATION_S > MOST_MESSAGES:
            sets = Sets(np.array([0, len(rows)]), topics.rate[rows], processing[rows], subscribers[rows])
            run = _predicted(machine, sets, limit)
        else:
            hosted = Hosted.of(
                topics.rate[rows], processing[rows], publishers[rows], subscribers[rows].astype(np.int64)
            )  # fmt: skip
            seeds = [(SEED, broker, number) for number in range(RUNS)]
            run = repeated(machine, hosted, seeds=seeds, bound_ms=limit)
        p90[rows], messages[rows], late[rows], cpu[broker] = run.p90_ms, run.messages, run.late, run.cpu
    return Latency(tuple(topics.ids), p90, bound, messages, late, cpu)


def _endpoints(problem: Problem) -> tuple[Ints, Floats]:
    """(K,) publishers of each topic, one for each message per second where the workload has none; (K,) subscribers."""
    workload = problem.workload
    links, count = workload.links, len(workload.topics)
    publishers = np.bincount(links.topic[links.role == PUB], minlength=count)
    with np.errstate(invalid="ignore"):
        assumed = np.clip(np.rint(workload.topics.rate), 1.0, MOST_MESSAGES).astype(np.int64)
    return np.where(publishers > 0, publishers, assumed), workload.copies


def _predicted(machine: Hardware, sets: Sets, bound_ms: Floats) -> Run:
    """The queueing model's figures, for more messages than a simulation can process."""
    model = Queueing(machine)
    p90 = model.p90_ms(sets)
    sent = sets.rate * (DURATION_S - WARM_UP_S) * RUNS
    unknown = np.full(len(p90), np.nan)
    late = np.where(p90 > bound_ms, sent, 0.0)
    quantiles = np.stack([unknown, p90, unknown], axis=1)
    return Run(sent, quantiles, late, float(model.cpu(sets)[0]))  # type: ignore[arg-type]
