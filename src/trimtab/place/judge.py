"""The only referee: what a placement does, whoever made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.errors import BadTable
from trimtab.model.judgement import TOLERANCE, Judgement, Load, Violation
from trimtab.model.placement import UNPLACED

if TYPE_CHECKING:
    from trimtab.model.placement import Placement
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows


def judge(problem: Problem, placement: Placement) -> Judgement:
    """Everything that is known of ``placement``, from the placement and the workload alone.

    O(L log L) time for L links, and about 25 bytes of memory a link.
    """
    _refuse_another_problems_placement(problem, placement)
    carrier = carriers(problem, placement)
    carried = carrier != UNPLACED
    topic, broker = (problem.topic, carrier) if carried.all() else (problem.topic[carried], carrier[carried])
    outgoing = problem.data_rate[topic]
    load: Floats = np.bincount(broker, weights=outgoing, minlength=problem.brokers).astype(np.float64)
    load += incoming(problem, placement, topic, broker)
    served = int(np.count_nonzero(placement.broker != UNPLACED))
    return Judgement(
        received=float(outgoing.sum()),
        offered=float(problem.data_rate[problem.topic].sum()),
        brokers_used=int(np.count_nonzero(np.bincount(placement.broker + 1, minlength=problem.brokers + 1)[1:])),
        placed=served,
        unplaced=problem.units - served,
        violations=_exceeded(problem, "bandwidth", load, problem.bandwidth),
        load=Load(load),
    )


def carriers(problem: Problem, placement: Placement) -> Rows:
    """The broker of every subscription, whatever the unit: here the three families become one."""
    if placement.unit == "topic":
        return placement.broker[problem.topic]
    if placement.unit == "client":
        return placement.broker[problem.client]
    return placement.broker


def incoming(problem: Problem, placement: Placement, topic: Rows, broker: Rows) -> Floats:
    """``sum_k d[k] z[j,k]``: one copy of a topic enters each broker that carries it for somebody.

    A broker that hosts a whole topic takes it in even while nobody subscribes.
    """
    if placement.unit == "topic":
        hosted = np.flatnonzero(placement.broker != UNPLACED)
        enters, topics = placement.broker[hosted], hosted
    else:
        count = max(len(problem.data_rate), 1)
        pairs = np.sort(broker.astype(np.int64) * count + topic)
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]
        enters, topics = pairs // count, pairs % count
    return np.bincount(enters, weights=problem.data_rate[topics], minlength=problem.brokers).astype(np.float64)


def _exceeded(problem: Problem, resource: str, used: Floats, limit: Floats) -> tuple[Violation, ...]:
    names = problem.workload.brokers.ids
    over = np.flatnonzero(used > limit * (1.0 + TOLERANCE))
    return tuple(Violation(resource, names[int(j)], float(used[j]), float(limit[j])) for j in over)


def _refuse_another_problems_placement(problem: Problem, placement: Placement) -> None:
    if placement.unit != problem.unit:
        raise BadTable("placement", f"places {placement.unit}s, but the question is about {problem.unit}s")
    if len(placement) != problem.units:
        raise BadTable("placement", f"has {len(placement)} {problem.unit}s, but the workload has {problem.units}")
    outside = (placement.broker < UNPLACED) | (placement.broker >= problem.brokers)
    if outside.any():
        row = int(np.flatnonzero(outside)[0])
        raise BadTable("placement", f"broker {placement.broker[row]} is not one of the {problem.brokers}", row)
