"""The key of every link of a workload, in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.model.key import UNITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from trimtab.model.ids import Ids
    from trimtab.model.key import Key, RoutingTable, Unit
    from trimtab.model.workload import Rows, Workload


def link_owners(workload: Workload, routing: RoutingTable, keys: Sequence[Key]) -> Rows:
    """(L,) the row in ``keys`` of every link's key; -1 if the key is not in ``keys``.

    The same as ``routing.key`` for every link.
    """
    links = workload.links
    topic = placed_by("topic", workload.topics.ids, routing)[links.topic]
    link = placed_by("link", workload.topics.ids, routing)[links.topic]
    of_topic = _rows(workload.topics.ids, [(key.topic, row) for row, key in enumerate(keys) if key.unit == "topic"])
    of_client = _rows(workload.clients.ids, [(key.client, row) for row, key in enumerate(keys) if key.unit == "client"])
    owner = of_client[links.client]
    owner[topic] = of_topic[links.topic[topic]]
    owner[link] = _owners_of_links(workload, np.flatnonzero(link), keys)
    return owner


def placed_by(unit: Unit, topics: Ids, routing: RoutingTable) -> NDArray[np.bool_]:
    """(K,) whether each topic is placed by ``unit``. Topics that the routing does not name count as it says."""
    assert unit in UNITS
    placed = np.full(len(topics), routing.unit_of("") == unit)
    rows = topics.find(routing.units.keys())
    named = np.fromiter((own == unit for own in routing.units.values()), bool, len(routing.units))
    placed[rows[rows >= 0]] = named[rows >= 0]
    return placed


def _owners_of_links(workload: Workload, links: NDArray[np.int64], keys: Sequence[Key]) -> Rows:
    rows = {(key.topic, key.client): row for row, key in enumerate(keys) if key.unit == "link"}
    topics = workload.topics.ids.take(workload.links.topic[links]).to_pylist()
    clients = workload.clients.ids.take(workload.links.client[links]).to_pylist()
    pairs = zip(topics, clients, strict=True)
    return np.fromiter((rows.get(pair, -1) for pair in pairs), np.int32, len(links))


def _rows(ids: Ids, named: Sequence[tuple[str, int]]) -> Rows:
    """(ids,) the number that comes with each id, -1 for an id that is not named."""
    numbers = np.full(len(ids), -1, np.int32)
    found = ids.find([name for name, _ in named])
    known = found >= 0
    numbers[found[known]] = np.array([number for _, number in named], np.int32)[known]
    return numbers
