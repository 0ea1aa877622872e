"""The key of every link of a workload, in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.model.key import UNITS, Key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.model.key import Routing
    from trimtab.model.workload import Rows, Workload


def link_owners(workload: Workload, routing: Routing, keys: Sequence[Key]) -> Rows:
    """(L,) the row in ``keys`` of every link's key; -1 if the key is not in ``keys``.

    The same as ``routing.key`` for every link.
    """
    links = workload.links
    if not len(links):
        return np.zeros(0, np.int32)
    rows = {key: row for row, key in enumerate(keys)}
    of_topic = np.array([rows.get(Key("topic", name, ""), -1) for name in workload.topics.ids], np.int32)
    of_client = np.array([rows.get(Key("client", "", name), -1) for name in workload.clients.ids], np.int32)
    unit = np.array([UNITS.index(routing.unit_of(name)) for name in workload.topics.ids], np.int8)[links.topic]
    owner = np.where(unit == UNITS.index("topic"), of_topic[links.topic], of_client[links.client])
    for link in np.flatnonzero(unit == UNITS.index("link")).tolist():
        topic, client = workload.topics.ids[links.topic[link]], workload.clients.ids[links.client[link]]
        owner[link] = rows.get(Key("link", topic, client), -1)
    return np.asarray(owner, np.int32)
