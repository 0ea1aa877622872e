"""Columns are checked and made read-only on entry."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.strategies import workload
from trimtab.errors import BadInput, BadTable, MissingColumn
from trimtab.model.ids import Ids
from trimtab.model.placement import Bound, Placement
from trimtab.model.problem import Problem
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload


def test_columns_are_read_only_copies():
    rate = np.array([1.0, 2.0])

    topics = Topics(Ids(["a", "b"]), rate)
    rate[0] = 9.0

    assert topics.rate.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        topics.rate[0] = 5.0


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), -float("inf")])
def test_a_rate_must_be_finite_and_not_negative(bad):
    with pytest.raises(BadTable, match=r"topics, row 2: rate is .*, but must be a finite number, zero or more"):
        Topics(Ids(["a", "b"]), [1.0, bad])


def test_an_empty_latency_bound_means_none():
    topics = Topics(Ids(["a", "b"]), [1, 1], latency_ms=[5.0, float("nan")])

    assert np.isnan(topics.latency_ms[1])


def test_a_position_may_be_negative():
    assert Clients(Ids(["a"]), lat=[-33.8], lon=[151.2]).lat.tolist() == [-33.8]


def test_ids_must_differ_and_the_error_names_both_rows():
    with pytest.raises(BadTable, match=r"row 3: id 'a' stands in row 1 already; ids must differ"):
        Ids(["a", "b", "a"])


def test_an_id_must_not_be_empty():
    with pytest.raises(BadTable, match=r"row 2: id is empty"):
        Ids(["a", ""])


def test_a_column_of_the_wrong_length_is_refused():
    with pytest.raises(BadTable, match=r"rate has shape \(1,\), but there are 2 ids"):
        Topics(Ids(["a", "b"]), [1.0])


def test_a_link_to_nowhere_is_refused():
    with pytest.raises(BadTable, match=r"links, row 1: topic 5 is not one of the 1"):
        workload([1.0], [1.0], [(5, 0)])


def test_a_link_stands_once():
    with pytest.raises(BadTable, match=r"links, row 2: topic 't0', client 'c0', role sub stands in row 1 already"):
        workload([1.0], [1.0], [(0, 0), (0, 0)])


def test_a_client_may_publish_and_subscribe_to_the_same_topic():
    assert len(workload([1.0], [1.0], [(0, 0)], publications=[(0, 0)]).links) == 2


def test_data_rate_is_rate_times_size():
    assert Topics(Ids(["a"]), [2.0], size_bytes=[100.0]).data_rate.tolist() == [200.0]
    assert Topics(Ids(["a"]), [2.0]).data_rate.tolist() == [2.0]


def test_links_are_asked_for_their_bandwidth_by_name():
    load = workload([1.0], [1.0], [(0, 0)])
    bare = Workload(load.topics, load.clients, Brokers(Ids(["b"])), load.links)

    with pytest.raises(MissingColumn, match=r"brokers has no column 'bandwidth' \(data/s; .*\); it has: id"):
        Problem(bare, "link")
    assert Problem(bare, "topic").bandwidth.tolist() == [np.inf]


def test_rates_that_do_not_add_up_in_a_double_are_refused():
    with pytest.raises(BadInput, match="use larger units"):
        Problem(workload([1e308, 1e308], [1.0], [(0, 0), (1, 0)]), "link")


def test_only_subscriptions_are_units_of_the_link_family():
    problem = Problem(workload([1.0, 1.0], [1.0], [(1, 0)], publications=[(0, 0)]), "link")

    assert problem.topic.tolist() == [1]
    assert problem.units == 1


def test_ten_million_links_are_not_copied():
    topic = np.zeros(4, np.int32)

    links = Links.subscriptions(topic, np.arange(4, dtype=np.int32))

    assert np.shares_memory(links.topic, topic)
    with pytest.raises(ValueError, match="read-only"):
        links.topic[0] = 1


def test_ids_find_and_take_rows():
    ids = Ids.numbered("t", 12)

    assert ids.find(["t11", "nobody", "t0"]).tolist() == [11, -1, 0]
    assert ids.take(np.array([2, -1])).to_pylist() == ["t2", None]
    assert (len(ids), ids[3], list(ids)[:2]) == (12, "t3", ["t0", "t1"])


def test_a_placement_of_an_unknown_unit_is_refused():
    with pytest.raises(BadTable, match="unit is 'rack'"):
        Placement("rack", np.zeros(1, np.int32))


def test_a_bound_proves_what_reaches_it():
    assert Bound("x", 10.0).proves(10.0 - 1e-12)
    assert not Bound("x", 10.0).proves(9.99)
