"""The view of a workload folder: no fleet runs, so every topic is placed as a whole, and nothing is placed yet."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from trimtab.control.view import View
from trimtab.errors import BadInput
from trimtab.model.ids import Ids
from trimtab.model.key import Key, RoutingTable
from trimtab.model.workload import PUB, Clients, Links, Workload
from trimtab.observe.snapshot import Snapshot

SOURCE = "(publisher)"  # publishes topics for which the folder lists no publisher


def view_of(workload: Workload) -> View:
    """All topics at the first broker, for a start."""
    if not len(workload.brokers):
        raise BadInput("the workload has no brokers, so nothing is known about what a broker can carry")
    names = list(workload.topics.ids)
    keys = {Key("topic", name, ""): workload.brokers.ids[0] for name in names}
    routing = RoutingTable(dict.fromkeys(names, "topic"), keys)
    return View.of(Snapshot(0.0, _published(workload), units=dict(routing.units)), routing, list(workload.brokers.ids))


def _published(workload: Workload) -> Workload:
    """With a publisher of every topic."""
    links, count = workload.links, len(workload.topics)
    without = np.setdiff1d(np.arange(count), links.topic[links.role == PUB]).astype(np.int32)
    if not len(without):
        return workload
    clients = Clients(Ids([*workload.clients.ids, SOURCE], table="clients"))
    source = np.full(len(without), len(workload.clients), np.int32)
    weight = None if links.weight is None else np.concatenate([links.weight, np.ones(len(without))])
    return replace(
        workload, clients=clients,
        links=Links(
            np.concatenate([links.topic, without]), np.concatenate([links.client, source]),
            np.concatenate([links.role, np.full(len(without), PUB, np.int8)]), weight,
        ),
    )  # fmt: skip
