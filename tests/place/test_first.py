"""First placements: where clients and topics go before anything is known of them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import UnknownName
from trimtab.place.first import RULES, SHOWS_S, Candidate, FirstPlacement


def brokers(*loads, **more):
    return [Candidate(f"b{at}", load, keys=10, **more) for at, load in enumerate(loads)]


@given(st.sampled_from(RULES), st.lists(st.floats(0.0, 1e9), max_size=5), st.integers(0, 30))
def test_every_rule_names_a_broker_that_is_there(rule, loads, times):
    placement = FirstPlacement(rule)

    chosen = [placement.choose(float(at), brokers(*loads), (47.0, 15.0)) for at in range(times)]

    assert set(chosen) <= ({f"b{at}" for at in range(len(loads))} or {None})


def test_the_roomiest_has_least_for_its_strength():
    candidates = [Candidate("weak", 50.0, 100.0), Candidate("strong", 80.0, 400.0)]

    assert FirstPlacement().choose(0.0, candidates) == "strong"


def test_newcomers_count_until_their_traffic_shows():
    """A crowd that comes at once is spread; later the measured load has the last word."""
    placement = FirstPlacement()

    crowd = Counter(placement.choose(0.0, brokers(1000.0, 1000.0, 1000.0)) for _ in range(9))

    assert set(crowd.values()) == {3}
    assert placement.choose(SHOWS_S + 1.0, brokers(1000.0, 999.0, 1000.0)) == "b1"


def test_newcomers_stop_to_count_one_by_one():
    placement = FirstPlacement()
    for at, broker in enumerate(("b0", "b1", "b0")):
        others = {"b0": 1e9, "b1": 1e9} | {broker: 0.0}
        assert placement.choose(float(at), [Candidate(name, load) for name, load in others.items()]) == broker

    later = [placement.choose(SHOWS_S + at, brokers(1000.0, 1000.0)) for at in (0.5, 1.5)]
    assert later == ["b0", "b1"]  # first one each is left, then one of b0 besides the newcomer at b0


def test_an_idle_fleet_is_filled_by_number():
    placement = FirstPlacement()
    candidates = [Candidate("b0", keys=3), Candidate("b1", keys=1)]

    assert placement.choose(0.0, candidates) == "b1"


def test_round_robin_takes_turns_and_random_repeats_with_its_seed():
    turns, draws = FirstPlacement("round-robin"), [FirstPlacement("random", seed=3) for _ in range(2)]

    assert [turns.choose(0.0, brokers(0, 0, 0)) for _ in range(4)] == ["b0", "b1", "b2", "b0"]
    one, other = ([each.choose(0.0, brokers(0, 0, 0)) for _ in range(20)] for each in draws)
    assert one == other
    assert len(set(one)) == 3


def test_nearest_goes_by_distance_and_by_room_where_positions_are_unknown():
    placement = FirstPlacement("nearest")
    graz, vienna = Candidate("graz", 9e9, position=(47.07, 15.44)), Candidate("vienna", position=(48.21, 16.37))

    assert placement.choose(0.0, [graz, vienna], (47.0, 15.4)) == "graz"
    assert placement.choose(0.0, [graz, vienna]) == "vienna"


def test_an_unknown_rule_is_named_with_those_that_exist():
    with pytest.raises(UnknownName, match="roomiest, nearest, round-robin, random"):
        FirstPlacement("roomy")
