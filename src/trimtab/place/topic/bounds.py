"""Lower bounds on the number of brokers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from trimtab.model.placement import Bound
from trimtab.place.topic.instance import capacity
from trimtab.predict.model import Structured
from trimtab.predict.queueing import Queueing

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.place.topic.instance import Instance
    from trimtab.predict.model import LatencyModel

KIND_COUNT = "topics-per-broker"
KIND_CAPACITY = "capacity"
ROUNDING = 1e-9


def quick(problem: Problem) -> Bound:
    """The bound of a placement whose degree of co-location is not known."""
    return Bound("trivial", 0.0, "brokers_used")


def fewest(instance: Instance, placed: int, most_use: float) -> Bound:
    """No placement of as many topics uses fewer brokers, if no worker is busier than ``most_use``.

    At most k topics share a broker. If all topics are placed, their work must also be done: with worker t busy for the
    share x_t of the time, independently of the others, a broker does E[N v(N)] of work at a time, where N workers are
    busy; so at most ``max(1, most_use) * max_m m v(m)``.
    """
    by_count = math.ceil(placed / instance.most)
    topics = instance.topics
    if placed < len(topics) or not placed or not math.isfinite(most_use):
        return Bound(KIND_COUNT, float(by_count), "brokers_used")
    if not all(isinstance(model, Structured) for model in instance.models):
        return Bound(KIND_COUNT, float(by_count), "brokers_used")
    service = np.min([machine.service_ms(instance.processing_ms[topics]) for machine in instance.machines], axis=0)
    work = float((instance.rate[topics] * service).sum()) / 1000.0
    can = np.array([capacity(machine, instance.most) for machine in instance.machines])[instance.kind]
    done = max(1.0, most_use) * np.cumsum(np.sort(can)[::-1])
    by_work = int(np.searchsorted(done, work * (1.0 - ROUNDING))) + 1
    if by_work > len(can) or by_work <= by_count:
        return Bound(KIND_COUNT, float(by_count), "brokers_used")
    return Bound(KIND_CAPACITY, float(by_work), "brokers_used")


def most_use(instance: Instance) -> float:
    """The use of a worker above which the instance's models predict a latency above every bound; infinite if they do
    not promise one.

    A topic alone is placed by the queueing model of the machine, whatever model predicts for several.
    """
    highest = float(instance.bound_ms[instance.topics].max(initial=0.0))
    models = [*instance.models, *(Queueing(machine) for machine in instance.machines)]
    return max((_most_use(model, highest) for model in models), default=math.inf)


def _most_use(model: LatencyModel, bound_ms: float) -> float:
    return model.most_use(bound_ms) if isinstance(model, Structured) else math.inf
