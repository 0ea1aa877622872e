"""Keys and routings: which broker carries a link, whatever its topic is placed by."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput
from trimtab.model.key import Key, RoutingTable
from trimtab.model.placement import UNITS

NAMES = st.sampled_from(["a", "b", "a.b", "c-1"])


@given(st.sampled_from(UNITS), NAMES, NAMES)
def test_a_key_has_what_its_unit_needs(unit, topic, client):
    key = Key.of(unit, topic, client)

    assert bool(key.topic) == (unit != "client")
    assert bool(key.client) == (unit != "topic")
    assert Key.of(*key) == key
    assert str(key).startswith(unit)


def test_an_unknown_unit_is_refused():
    with pytest.raises(BadInput, match="must be one of topic, client, link, but is 'broker'"):
        Key.of("broker", "a", "b")


def test_a_mixed_fleet_has_one_function_from_a_link_to_its_broker():
    routing = RoutingTable(
        {"whole": "topic", "linked": "link", "spread": "client"},
        {Key("topic", "whole", ""): "b1", Key("client", "", "ann"): "b2", Key("link", "linked", "ann"): "b3"},
    )

    assert [routing.carrier(topic, "ann") for topic in ("whole", "spread", "linked")] == ["b1", "b2", "b3"]
    assert routing.carrier("linked", "bob") == ""
    assert routing.carrier("channel:x:1", "ann") == "b2"  # results of channels go to a client's home
