"""CPU times measured at brokers of unequal speed, as they would be at the speed of the hardware profile."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from trimtab.model.owners import link_owners
from trimtab.model.workload import PUB
from trimtab.place.wire import weights

if TYPE_CHECKING:
    from trimtab.model.key import RoutingTable
    from trimtab.model.workload import Floats, Topics, Workload


def at_profile_speed(workload: Workload, routing: RoutingTable, speed: Floats) -> Topics:
    """The topics with nominal CPU times per message. ``speed``: (B,) of one core of each broker.

    A message is processed at the broker where it enters. So the measured mean CPU time is the nominal one, divided by
    the speeds of these brokers, each with its share of the topic's messages.
    """
    topics, links = workload.topics, workload.links
    if topics.processing_ms is None:
        return topics
    keys = tuple(routing.brokers)
    row = {name: number for number, name in enumerate(workload.brokers.ids)}
    slowness = np.array([1.0 / speed[row[name]] if name in row else np.nan for name in routing.brokers.values()])
    published = np.flatnonzero(links.role == PUB)
    owner = link_owners(workload, routing, keys)[published]
    share = weights(workload)[published]
    at = np.where(owner >= 0, slowness[owner], np.nan) if len(keys) else np.full(len(published), np.nan)
    known = np.isfinite(at)
    count = len(topics)
    total = np.bincount(links.topic[published][known], weights=share[known], minlength=count)
    slow = np.bincount(links.topic[published][known], weights=(share * at)[known], minlength=count)
    mean = np.divide(slow, total, out=np.ones(count), where=total > 0.0)
    return replace(topics, processing_ms=topics.processing_ms / mean)
