"""``topic/trim`` by processing: the fewest brokers by balancing and by patterns of topics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from trimtab.model.placement import Bound, Placement
from trimtab.place.client.policy import nowhere
from trimtab.place.topic.balance import Balance
from trimtab.place.topic.bounds import fewest
from trimtab.place.topic.cover import Cover, Effort
from trimtab.place.topic.ffd import first_fit
from trimtab.place.topic.instance import Instance
from trimtab.place.topic.strain import Strain

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.place.topic.policy import Groups
    from trimtab.place.topic.trim import Trim

PATIENCE: Final = 30  # rounds of exchanges without progress
TESTS: Final = 300_000  # of feasibility, after which searches for patterns become no wider
WIDTHS: Final = (1000, 4000, 20_000, 80_000)  # of the searches for patterns, one after the other
NODES: Final = 10  # of the search for whole numbers of patterns
BALANCED: Final = 2  # numbers of brokers, from the lower bound on, for which balancing is tried
LEVELS: Final = (0.99, 0.98, 0.97, 0.96, 0.94, 0.92, 0.90, 0.85, 0.80)  # strains to which brokers are relieved at last
HOPELESS: Final = 0.05  # mean excess of strain after the first rounds at which balancing is given up
FIRST_ROUNDS: Final = 10


def place(problem: Problem, knobs: Trim) -> Placement:
    instance = Instance.of(problem, knobs.k, knobs.model)
    if not problem.brokers or not len(instance.topics):
        return Placement("topic", nowhere(problem.units), fewest(instance, 0, 1.0))
    strain = Strain(instance, knobs.use, knobs.growth, knobs.coverage)
    groups = first_fit(instance, strain, instance.in_order_of_latency())
    if sum(len(topics) for _, topics in groups) < len(instance.topics):
        groups = _with_patterns(knobs, instance, strain, groups)[0]
        placed = sum(len(topics) for _, topics in groups)
        return instance.placement(groups, fewest(instance, placed, knobs.use))
    bound = fewest(instance, len(instance.topics), knobs.use)
    lowest = int(bound.value)
    for brokers in range(lowest, min(lowest + BALANCED, len(groups))):
        balanced = _balanced(knobs, instance, strain, brokers)
        if balanced is not None:
            groups = balanced
            break
    if len(groups) > lowest:
        groups, proven = _with_patterns(knobs, instance, strain, groups)
        bound = max(bound, proven, key=lambda each: each.value)
    return instance.placement(_relieved(knobs, instance, strain, groups), bound)


def _patience(knobs: Trim) -> int:
    return math.ceil(PATIENCE * knobs.effort)


def _balanced(knobs: Trim, instance: Instance, strain: Strain, brokers: int) -> Groups | None:
    """All topics on this number of brokers, without strain above 1; None if exchanges do not get there."""
    balance = Balance.spread(instance, strain, instance.order[:brokers], knobs.seed)
    if not balance.complete:
        return None
    first = min(FIRST_ROUNDS, _patience(knobs))
    if not balance.relieve(1.0, first, knobs.stop, rounds=first) and balance.excess() > HOPELESS:
        return None
    return balance.groups() if balance.relieve(1.0, _patience(knobs), knobs.stop) else None


def _with_patterns(knobs: Trim, instance: Instance, strain: Strain, groups: Groups) -> tuple[Groups, Bound]:
    cover = Cover.of(instance, strain, groups)
    widths = [max(1, math.ceil(width * knobs.effort)) for width in WIDTHS]
    effort = Effort(widths, math.ceil(NODES * knobs.effort), TESTS * knobs.effort)
    return cover.solve(groups, effort, knobs.stop)


def _relieved(knobs: Trim, instance: Instance, strain: Strain, groups: Groups) -> Groups:
    """The same brokers with less strain."""
    balance = Balance.of(instance, strain, groups, knobs.seed)
    for level in LEVELS:
        if not balance.relieve(level, math.ceil(_patience(knobs) / 3), knobs.stop):
            break
    return balance.groups()
