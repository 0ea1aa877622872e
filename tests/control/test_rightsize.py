"""Rightsizing: the fewest brokers that keep every bound with the expected traffic, and why not one less."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.test_promises import processed
from trimtab.control.offline import view_of
from trimtab.control.rightsize import FULL, History, expected, needed, with_growth
from trimtab.control.settings import Settings
from trimtab.errors import BadInput
from trimtab.lab.worlds.colocation import Colocation
from trimtab.model.ids import Ids
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.predict.forecast import UNKNOWN

SETTINGS = Settings()


def kept(need):
    """No bound is missed with the placement, and every key is at a needed broker."""
    hosting = need.hosting
    rate = hosting.rates(need.placement)
    strains = hosting.strain(rate, range(len(rate)))
    names = {need.view.brokers[row] for row in need.placement.tolist()}
    return strains.max() <= FULL * (1 + 1e-9) and names <= {*need.kept, *need.added}


def test_at_night_one_broker_is_enough():
    need = needed(processed([2.0] * 6, [0, 0, 1, 1, 2, 2]), SETTINGS)

    assert (need.needed, need.in_use, len(need.idle), need.added) == (1, 3, 2, ())
    assert kept(need)


def test_in_the_rush_brokers_are_added_and_named():
    need = needed(processed([35.0] * 9, [0, 1, 2] * 3), SETTINGS, names=["b7", "b9"])

    assert need.added[0] == "b7"
    assert need.needed == 3 + len(need.added)
    assert kept(need)
    assert need.too_few or need.bound == need.needed


def test_growth_is_what_makes_the_difference():
    view = processed([9.0] * 6, [0, 0, 1, 1, 2, 2])

    quiet = needed(view, SETTINGS).needed
    rush = needed(with_growth(view, {f"t{row}": 4.0 for row in range(6)}), SETTINGS).needed

    assert quiet < rush


def test_the_reason_names_what_one_broker_less_lacks():
    need = needed(processed([32.8] * 6, [0, 1, 2] * 2), SETTINGS)

    assert (need.bound, need.needed) == (2, 3)
    assert "2 would have too little time to keep all latency bounds" in need.too_few


def test_a_topic_too_much_for_any_broker_is_named_and_left_where_it_is():
    need = needed(processed([60.0, 5.0, 5.0], [1, 1, 2]), SETTINGS)

    assert need.hopeless == ("t0",)
    row = [str(key) for key in need.view.keys].index("topic t0")
    assert need.view.brokers[need.placement[row]] == "b1"


def test_closed_brokers_are_not_counted_on():
    need = needed(processed([35.0] * 4, [0, 0, 1, 1]), SETTINGS, closed=["b1", "b2"], names=["b9"])

    assert need.kept == ("b0",)
    assert need.added == ("b9",)
    assert kept(need)


def test_brokers_without_any_limit_are_refused_with_the_way_out():
    view = processed([5.0] * 3, [0, 1, 2], bound=np.nan)
    plain = Workload(
        view.workload.topics, view.workload.clients, Brokers(Ids(["b0", "b1"])), view.snapshot.workload.links
    )

    with pytest.raises(BadInput, match="trimtab topic set NAME --latency 200ms"):
        needed(view_of(plain), SETTINGS)


@given(
    rates=st.lists(st.floats(0.5, 40.0), min_size=1, max_size=12),
    ms=st.floats(2.0, 20.0),
    seed=st.integers(0, 99),
)
def test_bounds_hold_and_no_placement_needs_fewer_than_the_bound(rates, ms, seed):
    view = processed(rates, np.random.default_rng(seed).integers(3, size=len(rates)).tolist(), ms=ms)

    need = needed(view, SETTINGS)

    assert 1 <= need.bound <= need.needed
    assert need.hopeless or kept(need)
    assert set(need.kept) | set(need.idle) == {"b0", "b1", "b2"}


def test_the_papers_requests_need_hardly_more_than_the_bound():
    need = needed(view_of(Colocation("u5", 50, 1000.0).make(1)), SETTINGS)

    assert kept(need)
    assert need.needed <= need.bound + 1


def test_a_workload_without_brokers_is_refused():
    empty = Workload(
        Topics(Ids(["t"]), np.ones(1)), Clients(Ids(["c"])), Brokers(Ids([])),
        Links.subscriptions(np.zeros(1, np.int32), np.zeros(1, np.int32)),
    )  # fmt: skip

    with pytest.raises(BadInput, match="has no brokers"):
        view_of(empty)


# Expected traffic.


def test_without_history_the_present_traffic_gets_a_margin():
    assert expected({"t": 10.0}, None, 86_400.0)["t"].peak == pytest.approx(10.0 * UNKNOWN)


def test_yesterdays_rush_is_expected_again():
    """Windows of an hour: at eight in the evening traffic is quiet, and yesterday at nine it was four times as high."""
    day = np.where(np.arange(24) == 21, 40.0, 10.0)
    past = History(("t",), np.concatenate([day, day, day[:20]])[None, :], 3600.0)

    one = expected({"t": 10.0}, past, 86_400.0)["t"]

    assert one.forecast.seasonal
    assert one.peak >= 40.0


def test_a_topic_that_is_new_gets_the_margin_and_no_peak_is_below_the_present():
    past = History(("old",), np.full((1, 60), 5.0), 300.0)

    rates = expected({"new": 3.0, "old": 50.0}, past, 86_400.0)

    assert rates["new"].peak == pytest.approx(3.0 * UNKNOWN)
    assert rates["old"].peak == 50.0
