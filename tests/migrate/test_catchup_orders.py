"""The catch-up rule under any order that two routes and losses can produce."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from trimtab.migrate.catchup import Catchup


@dataclass(frozen=True)
class Numbered:
    source: str
    number: int


@st.composite
def two_routes(draw):
    """Arrivals of messages that are each on an old route, a new one, or both; a route keeps its own order."""
    routes = defaultdict(deque)
    for source in draw(st.sampled_from(["a", "ab", "abc"])):
        for number in range(2, draw(st.integers(1, 9)) + 1):  # 1 has come before the move began
            for route in draw(st.sampled_from([("old",), ("new",), ("old", "new")])):
                routes[source, route].append(Numbered(source, number))
    turns = draw(st.permutations([key for key, messages in routes.items() for _ in messages]))
    return [routes[key].popleft() for key in turns]


@given(arrivals=two_routes())
def test_two_routes_give_every_message_once_and_in_order(arrivals):
    catchup = Catchup(wait_s=1.0)
    delivered = defaultdict(lambda: [1])
    for source in "abc":
        catchup.accept(Numbered(source, 1), 0.0)

    for message in arrivals:
        for ready in catchup.accept(message, 0.5):
            delivered[ready.source].append(ready.number)
        assert catchup.overdue(0.9) == []

    last = {message.source: 1 for message in arrivals}
    for message in arrivals:
        last[message.source] = max(last[message.source], message.number)
    assert dict(delivered) == {source: list(range(1, number + 1)) for source, number in last.items()}
    assert not catchup.holds
    assert catchup.missed == 0
    assert catchup.duplicates == len(arrivals) - sum(number - 1 for number in last.values())


ANYTHING = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 12), st.sampled_from([0.0, 0.4, 1.5])), max_size=60)


def play(catchup, steps):
    """Messages delivered while these (source, number, seconds passed) happen, and the time at the end."""
    now, out = 0.0, []
    for source, number, passed in steps:
        now += passed
        out += catchup.overdue(now)
        out += catchup.accept(Numbered(source, number), now)
    return out, now


def flush(catchup, now):
    """All that still waits, gap after gap."""
    out = []
    while catchup.holds:
        now += 10.0
        out += catchup.overdue(now)
    return out


@given(steps=ANYTHING)
def test_whatever_comes_or_is_lost_nothing_is_doubled_or_out_of_order_and_all_is_accounted_for(steps):
    catchup = Catchup(wait_s=1.0)

    out, now = play(catchup, steps)

    numbers = {source: [m.number for m in out if m.source == source] for source, *_ in steps}
    for source, each in numbers.items():
        assert each == sorted(set(each))
        assert catchup.positions().get(source) == each[-1]
    reached = sum(each[-1] - each[0] + 1 for each in numbers.values())
    assert len(out) + catchup.missed == reached
    duplicates = catchup.duplicates
    held = flush(catchup, now)
    assert len(out) + duplicates + len(held) == len(steps)
    assert all(message.number > numbers[message.source][-1] for message in held)


@given(steps=ANYTHING)
def test_nothing_that_comes_late_is_lost_where_nothing_may_be_lost(steps):
    catchup = Catchup(wait_s=1.0, keep_late=True)

    out, now = play(catchup, steps)
    out += flush(catchup, now)

    first = {}
    for source, number, _ in steps:
        first.setdefault(source, number)
    came = {Numbered(source, number) for source, number, _ in steps if number >= first[source]}
    assert Counter(out) == Counter(came)
    reached = sum((catchup.positions().get(source) or 0) - number + 1 for source, number in first.items())
    assert catchup.missed == reached - len(came)
