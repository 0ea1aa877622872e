"""``topic/trim`` by network and processing: one promise over both.

The bound of a topic at a broker is its latency bound minus its worst network latency there. The topics of a broker
keep their promises together if the p90 of processing, predicted for all of them, is within these bounds. Promises come
first, then nearness, then few moves; the number of brokers does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import TooLarge
from trimtab.model.nearness import Nearness
from trimtab.model.network import Network
from trimtab.model.placement import UNPLACED, Placement
from trimtab.model.present import Present, gain_needed
from trimtab.place.client.policy import nowhere
from trimtab.place.topic.assign import LISTED, assign
from trimtab.place.topic.by_network import ByPairs, InTurn, decide
from trimtab.place.topic.crowd import Crowd
from trimtab.place.topic.instance import Instance
from trimtab.place.topic.near import WHY, least_violations
from trimtab.place.topic.room import Room
from trimtab.place.topic.strain import Strain

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Rows
    from trimtab.place.topic.trim import Trim
    from trimtab.predict.sets import Ints

LARGEST: Final = 50_000_000  # topics x brokers
ROUNDS: Final = 3  # over all topics, to bring them nearer to their clients


def place(problem: Problem, knobs: Trim) -> Placement:
    if problem.units * problem.brokers > LARGEST:
        raise TooLarge(f"{problem.units:,} topics on {problem.brokers:,} brokers are too many for both latencies at "
                       f"once ({LARGEST:,} pairs): set by=network or by=processing")  # fmt: skip
    nearness = Nearness.of(problem, Network.needed(problem.workload, WHY))
    bound = least_violations(nearness)
    if not problem.brokers:
        return Placement("topic", nowhere(problem.units), bound)
    instance = Instance.of(problem, knobs.k, knobs.model)
    room = Room.of(problem, knobs.fill, knobs.messages)
    home = nowhere(problem.units) if problem.current is None else problem.current.broker
    crowd = Crowd.of(Strain(instance, knobs.use, knobs.growth, knobs.coverage), nearness, room, home)
    processed = np.flatnonzero(instance.processing_ms > 0.0)
    _with_processing(crowd, processed, home, knobs)
    # Topics without processing only need a near broker with room beside the others.
    home = np.where(instance.processing_ms > 0.0, crowd.home, home).astype(np.int32)
    present = Present.of(nearness, home, knobs.margin, knobs.margin_ms)
    present.located[processed] = False
    home = decide(nearness.ranked(LISTED), present, room, home, ByPairs(nearness), knobs.probe)
    lost = np.flatnonzero((home == UNPLACED) & ~nearness.located & (instance.processing_ms == 0.0)).astype(np.int32)
    home = assign(lost, np.full(len(lost), problem.brokers), InTurn(problem.brokers), room, home)
    return Placement("topic", home, bound)


def _with_processing(crowd: Crowd, topics: Ints, current: Rows, knobs: Trim) -> None:
    """Homes for topics with processing: those that keep their promise stay, unless another broker is much nearer."""
    margin = gain_needed(crowd.network_ms[topics, np.maximum(current[topics], 0)], knobs.margin, knobs.margin_ms)
    crowd.settle(topics, np.where(current[topics] == UNPLACED, 0.0, margin))
    waiting = topics[crowd.home[topics] == UNPLACED]
    waiting = waiting[crowd.strain.instance.alone[waiting].any(axis=1)]  # the others are too much for every broker
    if knobs.probe is not None:
        crowd.probe(waiting, knobs.probe)
    left = [topic for topic in crowd.in_order_of_choice(waiting) if not crowd.insert(topic)]
    for _ in range(ROUNDS):
        left = [topic for topic in left if not crowd.make_room(topic)]
        moved = False
        for topic in crowd.in_order_of_gain(topics).tolist():
            if knobs.stop.left_s() <= 0.0:
                break
            stays = current[topic] != UNPLACED and crowd.home[topic] == current[topic]
            moved |= crowd.bring_nearer(topic, knobs if stays else None)
        left = [topic for topic in left if not crowd.insert(topic)]
        if not moved or knobs.stop.left_s() <= 0.0:
            break
    for topic in left:
        crowd.insert_late(topic)
