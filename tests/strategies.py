"""Made-up problems for property tests, and a second opinion on what a placement does."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from trimtab.model.ids import Ids
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload

if TYPE_CHECKING:
    from trimtab.model.problem import Problem

whole = st.integers(0, 12).map(float)
real = st.floats(0.0, 12.0, allow_subnormal=False)


def workload(rate, bandwidth, subscriptions, clients=None, publications=()) -> Workload:
    """A workload from plain lists; ``subscriptions`` and ``publications`` are (topic, client) pairs."""
    pairs = [*subscriptions, *publications]
    role = [SUB] * len(subscriptions) + [PUB] * len(publications)
    count = clients if clients is not None else max((c for _, c in pairs), default=-1) + 1
    topic, client = np.array(pairs, np.int32).reshape(-1, 2).T
    return Workload(
        Topics(Ids.numbered("t", len(rate)), rate),
        Clients(Ids.numbered("c", count)),
        Brokers(Ids.numbered("b", len(bandwidth)), bandwidth),
        Links(topic, client, np.array(role, np.int8)),
    )


@st.composite
def workloads(draw, topics=6, clients=5, brokers=4) -> Workload:
    """Small and odd: rates and bandwidths may be zero, whole or real, brokers unequal, some links publish."""
    number = draw(st.sampled_from([whole, real]))
    rate = draw(st.lists(number, min_size=0, max_size=topics))
    bandwidth = draw(st.lists(number.map(lambda b: 4 * b), min_size=0, max_size=brokers))
    many = draw(st.integers(1, clients))
    pairs = st.tuples(st.integers(0, max(len(rate) - 1, 0)), st.integers(0, many - 1))
    subscriptions = draw(st.lists(pairs, unique=True, max_size=20)) if rate else []
    publications = draw(st.lists(pairs, unique=True, max_size=4)) if rate else []
    return workload(rate, bandwidth, subscriptions, many, publications)


def loads(problem: Problem, broker) -> list[float]:
    """``sum_k d[k] (z[j,k] + n[j,k])`` of a link placement, straight from its definition."""
    total = []
    for j in range(problem.brokers):
        carried = [int(problem.topic[s]) for s in range(len(broker)) if broker[s] == j]
        total.append(sum(problem.data_rate[k] * (carried.count(k) + 1) for k in set(carried)))
    return total


def most_data(problem: Problem) -> float:
    """The most data any link placement can carry, by trying all counts: for very small problems only."""
    rate, bandwidth = problem.data_rate, problem.bandwidth
    degree = np.bincount(problem.topic, minlength=len(rate))
    splits = [[split for split in product(range(d + 1), repeat=problem.brokers) if sum(split) <= d] for d in degree]
    best = 0.0
    for choice in product(*splits):
        count = np.array(choice).reshape(len(rate), problem.brokers)
        if (rate @ (count + (count > 0)) <= bandwidth * (1 + 1e-12)).all():
            best = max(best, float(rate @ count.sum(axis=1)))
    return best
