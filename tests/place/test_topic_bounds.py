"""Lower bounds on the number of brokers follow from what the latency model promises."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.lab.worlds.colocation import Colocation
from trimtab.model.hardware import PAPER
from trimtab.model.ids import Ids
from trimtab.model.problem import Problem
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.place.registry import policy
from trimtab.place.topic.bounds import fewest, most_use
from trimtab.place.topic.instance import Instance
from trimtab.predict.configurations import random_sets
from trimtab.predict.queueing import Queueing, Shape
from trimtab.predict.trees import Growth, Trees
from trimtab.predict.trim import RISING, TrimModel, corrected_features


def problem_of(rate, processing, bound=1000.0) -> Problem:
    count = len(rate)
    topics = Topics(Ids.numbered("t", count), rate, processing_ms=processing, latency_ms=[bound] * count)
    load = Workload(topics, Clients(Ids([])), Brokers(Ids.numbered("b", count)), Links([], [], []))
    return Problem(load, "topic")


@pytest.mark.parametrize("run_ms", [2_000.0, 30_000.0, 120_000.0])
@pytest.mark.parametrize(("kind", "seed"), [("u", 2), ("u5", 3)])
@pytest.mark.parametrize("name", ["topic/ffd", "topic/lfs-ffd"])
def test_no_policy_of_the_paper_uses_fewer_brokers_than_its_bound(run_ms, kind, seed, name):
    """In short runs an overload piles up less, so a model of them allows workers to be busier."""
    model = Queueing(PAPER, Shape(run_ms=run_ms))
    problem = Problem(Colocation(kind, topics=30).make(seed), "topic")

    placement = policy(name, k=12, model=model).place(problem)

    assert placement.bound.value <= len(np.unique(placement.broker))
    if run_ms == 2_000.0:  # a limit on use that is right for runs of two minutes would prove too much
        limit = most_use(Instance.of(problem, 12, Queueing(PAPER)))
        assert fewest(Instance.of(problem, 12, model), 30, limit).value > len(np.unique(placement.broker))


def test_a_model_with_trees_limits_the_use_of_no_worker():
    """Trees may take back most of what the structure rises by, so no use of a worker is ruled out."""
    structure, sets = Queueing(PAPER), random_sets(PAPER, 2, 100, 1)
    rows = corrected_features(structure, sets)
    trees = Trees.grown(rows, np.zeros(len(rows)), RISING, 1, Growth(rounds=2))
    problem = problem_of([20.0] * 4, [20.0] * 4)

    assert most_use(Instance.of(problem, 2, TrimModel(structure, trees, 2))) == np.inf
    assert 1.0 < most_use(Instance.of(problem, 2, TrimModel(structure, None, 2))) < 1.01
