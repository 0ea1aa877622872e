"""Where those go whom nobody knows yet."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trimtab.control.newcomers import Newcomers
from trimtab.control.view import View
from trimtab.model.ids import Ids
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot


def view(homes, bandwidth=None):
    """Everybody has a topic of his own, of 1,000 bytes/s."""
    count, brokers = len(homes), 3
    rows = np.arange(count, dtype=np.int32)
    workload = Workload(
        Topics(Ids.numbered("t", count), np.full(count, 1000.0)), Clients(Ids.numbered("c", count)),
        Brokers(Ids.numbered("b", brokers), bandwidth=bandwidth), Links.subscriptions(rows, rows),
    )  # fmt: skip
    known = {f"c{row}": f"b{home}" for row, home in enumerate(homes)}
    return View.of(Snapshot(0.0, workload), known, [f"b{row}" for row in range(brokers)])


def made(homes, unfit=(), **more):
    newcomers = Newcomers()
    newcomers.look(view(homes, **more), unfit)
    return newcomers


def test_without_a_measurement_it_stays_where_it_came():
    assert Newcomers().place("b7") == "b7"


def test_it_stays_where_it_came_unless_that_has_more_than_the_mean():
    newcomers = made([0, 0, 0, 0, 1, 1, 1, 2])

    assert newcomers.place("b2") == "b2"
    assert newcomers.place("b0") == "b2"


def test_those_who_came_since_the_last_look_count():
    newcomers = made([0, 1, 2])

    placed = [newcomers.place("b0") for _ in range(9)]

    assert {name: placed.count(name) for name in set(placed)} == {"b0": 3, "b1": 3, "b2": 3}


def test_nobody_goes_to_a_broker_that_is_unfit_or_unknown():
    newcomers = made([0, 0, 0, 1, 1, 2], unfit=["b2"])

    assert newcomers.place("b2") == "b1"
    assert newcomers.place("b9") in ("b0", "b1")


def test_a_strong_broker_takes_more():
    newcomers = made([0, 1, 2], bandwidth=np.array([1e6, 1e6, 4e6]))

    placed = [newcomers.place("b0") for _ in range(60)]

    assert placed.count("b2") > 2 * placed.count("b0") > 0


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.lists(st.integers(0, 2), max_size=40))
def test_newcomers_never_raise_the_spread_above_what_it_was_or_one_of_them(homes, came):
    newcomers = made(homes)
    count = np.bincount(homes, minlength=3)
    before = count.max() - count.min()

    for broker in came:
        count[int(newcomers.place(f"b{broker}")[1:])] += 1

    assert count.max() - count.min() <= max(before, 1)
