"""Distances for policies: by position, or else by the network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import strategies
from trimtab.errors import MissingColumn
from trimtab.model import distances
from trimtab.model.coordinates import Coordinates
from trimtab.model.ids import Ids
from trimtab.model.network import Network
from trimtab.model.problem import Problem
from trimtab.model.rtts import Rtts
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.place.client.delays import Field, has_delays
from trimtab.place.client.otos import OtosCentroid
from trimtab.place.client.reloc import Reloc
from trimtab.place.client.simple import Nearest
from trimtab.place.judge import judge

NAN = float("nan")


def line(client, broker, rtt=None, **more) -> Workload:
    """Clients and brokers on a line of the network, each behind 1 ms of its own."""
    places = [Coordinates(np.array([[at] for at in each], float), np.where(np.isnan(each), NAN, 1.0))
              for each in (client, broker)]  # fmt: skip
    count = len(client)
    return Workload(
        Topics(Ids(["t"]), [float(count)], spool=[1.0]),
        Clients(Ids.numbered("c", count), coordinate=places[0], **more),
        Brokers(Ids.numbered("b", len(broker)), storage=[100.0] * len(broker), compute=[100.0] * len(broker),
                coordinate=places[1]),
        Links(np.zeros(2 * count, int), np.repeat(np.arange(count), 2), np.tile([0, 1], count)), rtt,
    )  # fmt: skip


def everywhere(load: Workload) -> list[int]:
    return list(range(len(load.brokers)))


def test_the_nearest_broker_is_that_of_the_least_latency_and_measured_pairs_override():
    load = line([0.0, 10.0, 21.0], [1.0, 20.0])

    assert list(distances.nearest(load, np.arange(2))) == [0, 0, 1]
    assert list(Nearest().homes(Problem(load, "client"))) == [0, 0, 1]
    measured = replace(load, rtt=Rtts([0, 2], [0, 0], [50.0, 1.0]))
    assert list(distances.nearest(measured, np.arange(2))) == [1, 0, 0]


def test_positions_come_before_the_network():
    load = line([0.0, 0.0], [0.0, 9.0], x_km=[8.0, 1.0], y_km=[0.0, 0.0])
    placed = replace(load, brokers=replace(load.brokers, x_km=[0.0, 9.0], y_km=[0.0, 0.0]))

    assert list(distances.nearest(load, np.arange(2))) == [0, 0]
    assert list(distances.nearest(placed, np.arange(2))) == [1, 0]


def test_a_client_of_unknown_latency_goes_to_the_median_clients_broker():
    load = line([19.0, NAN, 21.0, 0.0], [1.0, 20.0])

    assert list(distances.nearest(load, np.arange(2))) == [1, 1, 1, 0]


def test_a_broker_of_unknown_latency_is_as_far_as_the_farthest():
    load = line([0.0, 5.0], [NAN, 1.0])

    far = distances.between(load)

    assert np.array_equal(far, [[6.0, 3.0], [6.0, 6.0]])


def test_without_positions_and_coordinates_the_column_is_named():
    load = replace(line([0.0], [0.0]), clients=Clients(Ids(["c0"])))

    with pytest.raises(MissingColumn, match=r"clients has no column 'lat' .* or coordinate"):
        distances.nearest(load, np.arange(1))


def test_delays_are_half_a_round_trip_and_policies_by_delay_take_them():
    load = line([0.0, 10.0, 20.0, 21.0], [1.0, 20.0])
    problem = Problem(load, "client")

    field = Field.of(problem)

    assert has_delays(problem)
    assert np.array_equal(field.home_ms[:2], [[1.5, 11.0], [5.5, 6.0]])
    assert np.array_equal(field.server_ms, [[0.0, 10.5], [10.5, 0.0]])
    for policy in (OtosCentroid(), Reloc(clusters=2)):
        delay = judge(problem, policy.place(problem)).delay
        assert delay is not None
        assert delay.near_ms > 0.0


@given(load=strategies.workloads(), data=st.data())
def test_nearest_by_network_is_the_least_of_all_latencies(load, data):
    load = replace(
        load, clients=replace(load.clients, x_km=None, y_km=None),
        brokers=replace(load.brokers, x_km=None, y_km=None),
    )  # fmt: skip
    network = Network.of(load)
    if network is None or not len(load.brokers):
        return
    among = np.array(data.draw(st.lists(st.sampled_from(everywhere(load)), min_size=1, unique=True)), np.int32)

    chosen = distances.nearest(load, among)

    times = network.rtt_ms(np.arange(len(load.clients), dtype=np.int32), among)
    for row, of in enumerate(times):
        if np.isfinite(of).all():
            assert of[chosen[row]] == of.min()
