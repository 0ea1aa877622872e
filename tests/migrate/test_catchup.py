"""The catch-up rule, number by number and under any order two routes can produce."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from trimtab.migrate import catchup as catchup_module
from trimtab.migrate.catchup import Catchup


@dataclass(frozen=True)
class Numbered:
    source: str
    number: int


def feed(catchup, numbers, *, source="a", now=0.0):
    """The numbers that come out while these go in."""
    out = []
    for number in numbers:
        out += catchup.accept(Numbered(source, number), now)
    return [message.number for message in out]


def overdue(catchup, now):
    return [message.number for message in catchup.overdue(now)]


def test_the_next_number_is_delivered():
    assert feed(Catchup(), [1, 2, 3]) == [1, 2, 3]


def test_whoever_comes_later_starts_with_the_first_number_seen():
    catchup = Catchup()

    assert feed(catchup, [41, 42]) == [41, 42]
    assert (catchup.missed, catchup.duplicates) == (0, 0)


def test_a_number_seen_before_is_a_duplicate():
    catchup = Catchup()

    assert feed(catchup, [1, 2, 2, 1, 3]) == [1, 2, 3]
    assert catchup.duplicates == 2


def test_what_is_behind_a_gap_waits_until_the_gap_is_filled():
    catchup = Catchup()

    assert feed(catchup, [1, 4, 3]) == [1]
    assert catchup.holds
    assert feed(catchup, [2]) == [2, 3, 4]
    assert not catchup.holds
    assert (catchup.missed, catchup.duplicates) == (0, 0)


def test_a_message_that_waits_already_is_a_duplicate():
    catchup = Catchup()

    assert feed(catchup, [1, 3, 3, 2]) == [1, 2, 3]
    assert catchup.duplicates == 1


def test_one_source_does_not_wait_for_another():
    catchup = Catchup()

    feed(catchup, [1, 3], source="a")

    assert feed(catchup, [7, 8], source="b") == [7, 8]
    assert catchup.positions() == {"a": 1, "b": 8}


def test_a_gap_is_given_up_when_it_is_overdue_and_its_numbers_count_as_missed():
    catchup = Catchup(wait_s=1.0)
    feed(catchup, [1, 4, 5], now=10.0)

    assert overdue(catchup, 10.9) == []
    assert overdue(catchup, 11.0) == [4, 5]
    assert catchup.missed == 2
    assert not catchup.holds


def test_the_time_of_a_gap_runs_from_the_first_message_behind_it():
    catchup = Catchup(wait_s=1.0)
    feed(catchup, [1, 3], now=10.0)
    feed(catchup, [4], now=10.8)

    assert overdue(catchup, 11.0) == [3, 4]


def test_a_second_gap_is_waited_for_anew():
    catchup = Catchup(wait_s=1.0)
    feed(catchup, [1, 3, 5], now=0.0)

    assert overdue(catchup, 1.0) == [3]
    assert overdue(catchup, 1.5) == []
    assert overdue(catchup, 2.0) == [5]
    assert catchup.missed == 2


def test_what_comes_after_it_was_given_up_is_dropped():
    """Otherwise it would be delivered out of order."""
    catchup = Catchup()
    feed(catchup, [1, 3])
    catchup.overdue(5.0)

    assert feed(catchup, [2, 4]) == [4]
    assert (catchup.missed, catchup.duplicates) == (1, 1)


def test_what_comes_late_is_delivered_once_where_nothing_may_be_lost():
    catchup = Catchup(keep_late=True)
    feed(catchup, [1, 4])
    catchup.overdue(5.0)

    assert catchup.missed == 2
    assert feed(catchup, [2, 2, 4]) == [2]
    assert (catchup.missed, catchup.duplicates) == (1, 2)
    assert feed(catchup, [3, 5]) == [3, 5]
    assert catchup.missed == 0


def test_everything_up_to_a_position_taken_over_has_been_dealt_with():
    catchup = Catchup()

    catchup.resume({"a": 5})

    assert catchup.position("a") == 5
    assert feed(catchup, [4, 5, 7, 6]) == [6, 7]
    assert catchup.duplicates == 2


def test_a_position_taken_over_never_leads_back():
    catchup = Catchup()
    feed(catchup, [1, 2, 3])

    catchup.resume({"a": 2, "b": 0})

    assert catchup.positions() == {"a": 3, "b": 0}
    assert feed(catchup, [2, 1], source="b") == [1, 2]


def test_positions_are_a_copy():
    catchup = Catchup()
    feed(catchup, [1])

    catchup.positions()["a"] = 99

    assert catchup.position("a") == 1
    assert catchup.position("unheard of") is None


def test_messages_without_a_source_pass_as_they_come():
    catchup = Catchup()

    assert feed(catchup, [-1, -1, 5, 2], source="") == [-1, -1, 5, 2]
    assert catchup.positions() == {}


def test_a_gap_with_too_much_behind_it_is_given_up(monkeypatch):
    monkeypatch.setattr(catchup_module, "MOST_HELD", 3)
    catchup = Catchup()

    assert feed(catchup, [1, 3, 4, 6]) == [1]
    assert feed(catchup, [7]) == [3, 4]
    assert catchup.missed == 1
    assert catchup.holds
    assert feed(catchup, [5]) == [5, 6, 7]


def test_the_oldest_of_too_many_sources_are_forgotten(monkeypatch):
    monkeypatch.setattr(catchup_module, "MOST_SOURCES", 20)
    catchup = Catchup()
    for number in range(21):
        feed(catchup, [1], source=f"s{number}")

    assert len(catchup.positions()) == 19
    assert catchup.position("s0") is catchup.position("s1") is None
    assert feed(catchup, [1], source="s0") == [1]
    assert feed(catchup, [1], source="s20") == []


def test_a_source_with_messages_that_wait_is_not_forgotten(monkeypatch):
    monkeypatch.setattr(catchup_module, "MOST_SOURCES", 10)
    catchup = Catchup()
    feed(catchup, [1, 3], source="waits")
    for number in range(50):
        feed(catchup, [1], source=f"s{number}")

    assert feed(catchup, [2], source="waits") == [2, 3]


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
        assert catchup.position(source) == each[-1]
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
    reached = sum((catchup.position(source) or 0) - number + 1 for source, number in first.items())
    assert catchup.missed == reached - len(came)
