"""The key of every link, in columns, is the key that the routing gives for the link."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from helpers.strategies import workload as small_workload
from helpers.strategies import workloads
from trimtab.model.key import UNITS, Key, RoutingTable
from trimtab.model.owners import link_owners, placed_by


@given(workloads(), st.data())
def test_every_link_has_the_key_of_the_routing(workload, data):
    topics, clients = list(workload.topics.ids), list(workload.clients.ids)
    units = {topic: data.draw(st.sampled_from(UNITS)) for topic in [*topics, "unmeasured"] if data.draw(st.booleans())}
    routing = RoutingTable(units, {})
    links = workload.links
    link_keys = [
        routing.key(topics[topic], clients[client]) for topic, client in zip(links.topic, links.client, strict=True)
    ]
    extra = [Key("topic", "unmeasured", ""), Key("client", "", "absent"), Key("link", "unmeasured", "absent")]
    keys = [key for key in sorted({*link_keys, *extra}) if data.draw(st.booleans())]

    owners = link_owners(workload, routing, keys)

    assert owners.tolist() == [keys.index(key) if key in keys else -1 for key in link_keys]
    for unit in UNITS:
        assert placed_by(unit, workload.topics.ids, routing).tolist() == [
            routing.unit_of(topic) == unit for topic in topics
        ]


def test_a_workload_without_links_has_no_owners():
    owners = link_owners(small_workload([1.0], [1.0], []), RoutingTable({"t0": "topic"}, {}), [Key("topic", "t0", "")])

    assert owners.dtype == np.int32
    assert len(owners) == 0
