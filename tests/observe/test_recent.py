"""The newest round-trip times of a number of peers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.observe.coordinates.node import MOST_RTT_MS
from trimtab.observe.recent import SAMPLES, RecentRtts

times = st.floats(0.01, 1000.0)


@given(samples=st.lists(times, min_size=1, max_size=12))
def test_the_typical_time_is_the_lower_quartile_of_the_newest_samples(samples):
    recent = RecentRtts(4)
    for at, rtt_ms in enumerate(samples):
        assert recent.add("b1", rtt_ms, float(at))

    newest = sorted(samples[-SAMPLES:])
    assert recent.typical("b1") == newest[(len(newest) - 1) // 4]
    assert recent.last("b1") == len(samples) - 1


@given(base=times, queued=st.lists(st.floats(0.0, 500.0), min_size=SAMPLES - 2, max_size=SAMPLES - 2))
def test_samples_that_wait_in_queues_do_not_count_while_two_of_five_do_not_wait(base, queued):
    recent = RecentRtts(1)
    for more in (*queued, 0.0, 0.0):
        recent.add("b1", base + more, 0.0)

    assert recent.typical("b1") == base


@pytest.mark.parametrize("rtt_ms", [0.0, -1.0, math.nan, math.inf, MOST_RTT_MS + 1.0])
def test_impossible_times_are_refused(rtt_ms):
    recent = RecentRtts(4)

    assert not recent.add("b1", rtt_ms, 0.0)
    assert ("b1" in recent, recent.typical("b1"), recent.last("b1")) == (False, None, None)


def test_the_peer_measured_longest_ago_is_dropped_first_and_old_times_expire():
    recent = RecentRtts(2)
    for at, peer in enumerate(["b1", "b2", "b1", "b3"]):
        recent.add(peer, 10.0 + at, float(at))

    assert recent.nearest(9) == {"b1": 10.0, "b3": 13.0}
    assert recent.nearest(1) == {"b1": 10.0}
    assert recent.expire(3.0) == ["b1"]
    assert recent.nearest(9) == {"b3": 13.0}
    recent.clear()
    assert recent.nearest(9) == {}
