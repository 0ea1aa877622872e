"""Which topics can take the places of which others, and who takes which place in the end.

By the queueing model, a topic can take the place of another one on any broker if it needs no more of a core, has no
longer messages and no tighter bound. All workers of the set are then busy for at most as long as before, and so is the
worker of the new topic, so no latency is higher. The argument needs intervals whose upper end does not fall while use
rises; sets are therefore tested again after an exchange.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

from trimtab.place.topic.pricing import Pricing

if TYPE_CHECKING:
    from trimtab.place.topic.instance import Bools
    from trimtab.place.topic.patterns import Types
    from trimtab.place.topic.strain import Strain
    from trimtab.predict.sets import Ints


def lighter(oracle: Strain, types: Types) -> Bools:
    """(Y, Y) whether a topic of the first type can take the place of one of the second on every kind of broker."""
    instance, count = oracle.instance, len(types)
    less = np.ones((count, count), np.bool_)
    for kind in np.unique(instance.kind).tolist():
        if not Pricing.knows(oracle, kind):
            return np.eye(count, dtype=np.bool_)
        service = instance.machines[kind].service_ms(instance.processing_ms[types.topic])
        load, bound = instance.rate[types.topic] * service, instance.bound_ms[types.topic]
        alone = instance.alone[types.topic, kind]
        less &= (load[:, None] <= load[None, :]) & (service[:, None] <= service[None, :])
        less &= (bound[:, None] >= bound[None, :]) & (alone[:, None] >= alone[None, :])
    both = less & less.T  # types that are equal to the model: one direction is enough
    return np.asarray(less & ~(both & np.tri(count, k=-1, dtype=np.bool_)))


def steps(less: Bools) -> list[tuple[int, int]]:
    """The pairs of different types of which all others follow."""
    strictly = less & ~np.eye(len(less), dtype=np.bool_)
    over_another = (strictly.astype(np.float32) @ strictly.astype(np.float32)) > 0.0
    return [(int(a), int(b)) for a, b in np.argwhere(strictly & ~over_another)]


def taken(places: Ints, topics: Ints, less: Bools) -> Ints | None:
    """(Y, Y) how many places of the first type topics of the second take, if all topics find one: a maximum flow.

    ``places`` and ``topics`` are numbers by type.
    """
    count = len(less)
    source, sink = 2 * count, 2 * count + 1
    of_topic, of_place = np.nonzero(less)
    begin = np.concatenate([np.full(count, source), of_place, count + np.arange(count)])
    end = np.concatenate([np.arange(count), count + of_topic, np.full(count, sink)])
    amount = np.concatenate([places, np.minimum(places[of_place], topics[of_topic]), topics]).astype(np.int32)
    network = csr_array((amount, (begin, end)), shape=(2 * count + 2, 2 * count + 2), dtype=np.int32)
    flow = maximum_flow(network, source, sink)
    if flow.flow_value < topics.sum():
        return None
    return np.asarray(flow.flow[:count, count : 2 * count].toarray(), np.int64)
