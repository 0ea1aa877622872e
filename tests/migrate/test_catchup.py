"""The catch-up rule, number by number."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.migrate import catchup as catchup_module
from trimtab.migrate.catchup import RECENT, Catchup, Seen


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


def test_a_second_gap_is_not_waited_for_anew():
    """What is behind it has waited as long."""
    catchup = Catchup(wait_s=1.0)
    feed(catchup, [1, 3, 5], now=0.0)

    assert overdue(catchup, 0.9) == []
    assert overdue(catchup, 1.0) == [3, 5]
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

    assert catchup.positions().get("a") == 5
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

    assert catchup.positions().get("a") == 1
    assert catchup.positions().get("unheard of") is None


def skip(catchup, number, *, source="a", now=0.0):
    return [message.number for message in catchup.skip(source, number, now)]


def test_nothing_waits_for_a_number_that_is_known_not_to_come():
    catchup = Catchup()
    feed(catchup, [1, 3, 4])

    assert skip(catchup, 2) == [3, 4]
    assert feed(catchup, [5]) == [5]
    assert (catchup.missed, catchup.holds) == (0, False)


def test_a_number_that_will_not_come_waits_for_the_gap_before_it():
    catchup = Catchup()
    feed(catchup, [1, 4])

    assert skip(catchup, 3) == []
    assert feed(catchup, [2]) == [2, 4]
    assert catchup.positions().get("a") == 4


def test_a_gap_before_a_number_that_will_not_come_is_given_up_too():
    catchup = Catchup(wait_s=1.0)
    feed(catchup, [1])
    skip(catchup, 3)

    assert overdue(catchup, 1.0) == []
    assert (catchup.missed, catchup.positions().get("a"), catchup.holds) == (1, 3, False)


@pytest.mark.parametrize(("source", "number"), [("a", 2), ("a", 1), ("", 7)])
def test_to_skip_what_has_been_delivered_or_has_no_source_changes_nothing(source, number):
    catchup = Catchup()
    feed(catchup, [1, 2])

    assert skip(catchup, number, source=source) == []
    assert (catchup.positions(), catchup.holds) == ({"a": 2}, False)


def test_a_message_that_waits_is_not_lost_by_being_skipped():
    catchup = Catchup()
    feed(catchup, [1, 3])

    assert skip(catchup, 3) == []
    assert feed(catchup, [2]) == [2, 3]


def test_where_gaps_mean_nothing_they_are_passed_over():
    catchup = Catchup(wait_s=0.0)

    assert feed(catchup, [1, 4, 2, 4, 5]) == [1, 4, 5]
    assert (catchup.missed, catchup.duplicates, catchup.holds) == (0, 2, False)


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
    assert catchup.positions().get("s0") is catchup.positions().get("s1") is None
    assert feed(catchup, [1], source="s0") == [1]
    assert feed(catchup, [1], source="s20") == []


def test_a_source_with_messages_that_wait_is_not_forgotten(monkeypatch):
    monkeypatch.setattr(catchup_module, "MOST_SOURCES", 10)
    catchup = Catchup()
    feed(catchup, [1, 3], source="waits")
    for number in range(50):
        feed(catchup, [1], source=f"s{number}")

    assert feed(catchup, [1, 2], source="waits") == [2, 3]


def test_what_was_given_up_and_comes_after_all_is_not_done():
    catchup = Catchup(1.0, keep_late=True)
    for number in (1, 4):
        catchup.accept(Numbered("a", number), 0.0)
    catchup.overdue(2.0)

    assert [catchup.done("a", number) for number in (1, 2, 3, 4, 5)] == [True, False, False, True, False]
    assert not catchup.done("b", 1)


def test_a_successor_takes_over_what_was_given_up():
    first, second = Catchup(1.0, keep_late=True), Catchup(1.0, keep_late=True)
    for number in (1, 3):
        first.accept(Numbered("a", number), 0.0)
    first.overdue(2.0)

    second.resume(first.positions(), first.given_up())

    assert [m.number for m in second.accept(Numbered("a", 2), 3.0)] == [2]
    assert second.accept(Numbered("a", 2), 3.0) == ()


@given(st.permutations(range(1, 40)), st.data())
def test_seen_tells_the_first_of_each_in_whatever_order_it_comes(order, data):
    seen = Seen()
    seen.is_new("a", 0)
    twice = list(order) + data.draw(st.lists(st.sampled_from(order)))

    new = [number for number in twice if seen.is_new("a", number)]

    assert new == order


def test_seen_remembers_a_bounded_number():
    seen = Seen()
    seen.is_new("a", 0)
    for number in range(2, 1_000_000, 5_000):
        assert seen.is_new("a", number)
    assert sum(map(len, seen._open.values())) <= 2 * RECENT
    assert not seen.is_new("a", 1)
