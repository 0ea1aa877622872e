"""Who is there, as far as the keeper could have heard it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trimtab.fleet.hub.presence import ALIVE_S, DEAF_S, TICK_S, Presence

KNOWN = ("b1", "b2", "b3")


def listening(until, *, presence=None, since=0.0, calls=(), hears=True):
    """Ticks from ``since`` on, with a call of each of ``calls`` a second."""
    presence = presence or Presence(since)
    for number, now in enumerate(np.arange(since + TICK_S, until + TICK_S / 2, TICK_S)):
        presence.tick(float(now), hears=hears)
        if number % 2 == 0 and hears:
            for each in calls:
                presence.called(each)
    return presence


def test_until_it_has_listened_long_enough_nobody_is_away():
    begun = listening(ALIVE_S - TICK_S, calls=["b1"])

    assert (begun.sure, begun.alive(KNOWN), begun.heard()) == (False, list(KNOWN), ["b1"])
    listening(ALIVE_S, presence=begun, since=ALIVE_S - TICK_S, calls=["b1"])
    assert (begun.sure, begun.alive(KNOWN)) == (True, ["b1"])


def test_whoever_does_not_call_is_away_and_comes_back_with_a_call():
    presence = listening(10.0, calls=KNOWN)
    listening(10.0 + ALIVE_S + 1.0, presence=presence, since=10.0, calls=["b1", "b3"])
    assert presence.alive(KNOWN) == ["b1", "b3"]

    presence.called("b2")
    assert presence.alive(KNOWN) == list(KNOWN)


def test_a_keeper_that_slept_has_missed_nobody():
    presence = listening(10.0, calls=KNOWN)

    presence.tick(10.0 + 60.0, hears=True)
    presence.called("b2")

    assert presence.alive(KNOWN) == list(KNOWN)
    listening(70.0 + ALIVE_S + 1.0, presence=presence, since=70.0, calls=["b2"])
    assert presence.alive(KNOWN) == ["b2"]


def test_a_hub_that_hangs_is_no_reason_to_miss_anybody():
    presence = listening(10.0, calls=KNOWN)

    listening(40.0, presence=presence, since=10.0, hears=False)
    listening(40.0 + ALIVE_S - 1.0, presence=presence, since=40.0, calls=["b3"])

    assert presence.alive(KNOWN) == list(KNOWN)
    listening(50.0, presence=presence, since=40.0 + ALIVE_S - 1.0, calls=["b3"])
    assert presence.alive(KNOWN) == ["b3"]


def test_whoever_was_away_before_a_pause_is_so_after_it():
    presence = listening(10.0, calls=["b1"])

    presence.tick(20.0, hears=False)
    presence.tick(20.0 + TICK_S, hears=True)

    assert presence.alive(KNOWN) == ["b1"]


@given(gaps=st.lists(st.tuples(st.floats(0.1, 30.0), st.booleans()), max_size=30))
def test_a_broker_that_calls_whenever_it_can_be_heard_is_never_away(gaps):
    presence = listening(10.0, calls=KNOWN)
    now = 10.0
    for gap, hears in gaps:
        now += min(gap, DEAF_S) if hears else gap
        presence.tick(now, hears=hears)
        assert presence.alive(KNOWN) == list(KNOWN)
        if hears:
            for each in KNOWN:
                presence.called(each)
