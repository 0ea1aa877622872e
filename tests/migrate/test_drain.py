"""Where a drain puts what must leave."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput
from trimtab.migrate.drain import spread

counts = st.dictionaries(st.sampled_from(["b1", "b2", "b3", "b4"]), st.integers(0, 9), min_size=1)
names = st.lists(st.text("xyz", min_size=1, max_size=3), unique=True, max_size=20)


def test_each_unit_goes_to_the_broker_that_carries_fewest_then():
    target = spread(["x", "y", "z"], {"b1": 3, "b2": 1, "b3": 0}, "b1")

    assert target == {"x": "b3", "y": "b2", "z": "b3"}


def test_a_broker_that_carries_much_gets_nothing():
    assert set(spread("uvwxyz", {"b1": 6, "b2": 100, "b3": 0}, "b1").values()) == {"b3"}


def test_ties_go_by_name_so_that_a_plan_can_be_repeated():
    forth = spread(["x", "y"], {"b2": 0, "b3": 0, "b1": 2}, "b1")
    back = spread(["y", "x"], {"b3": 0, "b1": 2, "b2": 0}, "b1")

    assert forth == back == {"x": "b2", "y": "b3"}


def test_a_broker_that_leaves_need_not_be_counted():
    assert spread(["x"], {"b2": 4}, "b1") == {"x": "b2"}


def test_with_nothing_to_move_there_is_nothing_to_do():
    assert spread([], {"b1": 0, "b2": 0}, "b1") == {}


@pytest.mark.parametrize("carried", [{"b1": 2}, {}])
def test_the_last_broker_cannot_be_emptied(carried):
    with pytest.raises(BadInput) as caught:
        spread(["x", "y"], carried, "b1")

    assert str(caught.value) == "b1 is the last broker: there is nowhere to move what it serves; add a broker first"


@given(units=names, carried=counts)
def test_every_unit_finds_a_place_and_no_broker_gets_more_than_balance_asks_for(units, carried):
    before = dict(carried)

    target = spread(units, carried, "gone")

    assert carried == before
    assert set(target) == set(units)
    assert set(target.values()) <= set(carried)
    after = {broker: count + list(target.values()).count(broker) for broker, count in carried.items()}
    even = ceil(sum(after.values()) / len(after))
    for broker, count in after.items():
        assert count <= max(carried[broker], even)
