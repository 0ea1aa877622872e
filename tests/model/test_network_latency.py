"""Network latencies of workloads: coordinates and measured pairs, in files and as matrices."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.errors import BadInput, BadTable, MissingColumn
from trimtab.model.coordinates import Coordinates
from trimtab.model.folder import read_workload, write_workload
from trimtab.model.ids import Ids
from trimtab.model.network import Network
from trimtab.model.problem import Problem
from trimtab.model.rtts import Rtts
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload

NAN = float("nan")
FILES = {
    "topics": "id,rate\nt,1\n",
    "clients": "id,coordinate\nx,0 0 1\ny,\nz,3 4 0.5\n",
    "brokers": "id,coordinate\nm,0 0 2\nn,0 4 0\n",
    "links": "topic,client,role\nt,x,pub\nt,y,sub\nt,z,sub\n",
    "rtt": "client,broker,rtt_ms\nx,n,7\ny,m,9\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path


def fleet(client=None, broker=None, rtt=None) -> Workload:
    return Workload(
        Topics(Ids(["t"]), [1.0]), Clients(Ids(["x", "y", "z"]), coordinate=client),
        Brokers(Ids(["m", "n"]), coordinate=broker), Links.subscriptions([0], [0]), rtt,
    )  # fmt: skip


def test_a_pair_is_estimated_unless_it_was_measured(folder):
    network = Network.of(read_workload(folder))

    times = network.rtt_ms(np.arange(3), np.arange(2))

    assert np.array_equal(times, [[0 + 1 + 2, 7.0], [9.0, NAN], [5 + 0.5 + 2, 3 + 0.5]], equal_nan=True)
    assert np.array_equal(network.rtt_ms(np.array([2, 0, 0]), np.array([1])), [[3.5], [7.0], [7.0]])


def test_where_latencies_come_from(folder):
    load = read_workload(folder)
    everything = fleet(rtt=Rtts.matrix(np.ones((3, 2))))

    assert Network.of(load).source(np.arange(3)) == "mixed"
    assert Network.of(load).source(np.array([2])) == "estimated"
    assert Network.of(everything).source(np.arange(3)) == "measured"


def test_a_workload_without_latencies_has_no_network_and_the_missing_column_is_named():
    somewhere = Coordinates(np.zeros((3, 2)), np.zeros(3))

    assert Network.of(fleet()) is None
    with pytest.raises(MissingColumn, match=r"clients has no column 'coordinate' \(distances\)"):
        Network.needed(fleet(), "distances")
    with pytest.raises(MissingColumn, match=r"brokers has no column 'coordinate' \(distances\)"):
        Network.needed(fleet(client=somewhere), "distances")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_coordinates_and_measured_pairs_are_written_and_read(folder, tmp_path, form):
    load = read_workload(folder)

    write_workload(load, tmp_path / "copy", form)
    again = read_workload(tmp_path / "copy")

    assert np.array_equal(again.clients.coordinate.point, load.clients.coordinate.point, equal_nan=True)
    assert np.array_equal(again.clients.coordinate.height, [1.0, NAN, 0.5], equal_nan=True)
    assert again.clients.coordinate.known.tolist() == [True, False, True]
    assert again.rtt.rtt_ms.tolist() == [7.0, 9.0]


def test_all_digits_and_the_adjustment_survive(tmp_path):
    exact = Coordinates([[1 / 3, -1e-17], [NAN, NAN], [2e300, 5.0]], [0.1, NAN, 0.0], [-0.7, NAN, 1 / 7])
    load = fleet(exact, Coordinates([[0.0, 0.0], [1.0, 1.0]], [0.0, 0.0], [0.0, 1e-9]))

    write_workload(load, tmp_path)
    again = read_workload(tmp_path).clients.coordinate

    assert np.array_equal(again.point, exact.point, equal_nan=True)
    assert np.array_equal(again.height, exact.height, equal_nan=True)
    assert again.adjustment[[0, 2]].tolist() == [-0.7, 1 / 7]


def test_measured_pairs_of_an_earlier_workload_do_not_stay_in_the_folder(folder):
    load = read_workload(folder)

    write_workload(Workload(load.topics, load.clients, load.brokers, load.links), folder)

    assert not (folder / "rtt.csv").exists()
    assert read_workload(folder).rtt is None


def test_unusable_round_trip_times_are_left_out_and_counted(folder, caplog):
    (folder / "rtt.csv").write_text("client,broker,rtt_ms\nx,m,-1\nx,n,4\ny,m,\ny,n,nan\nz,m,inf\n")

    load = read_workload(folder)

    assert (load.rtt.rtt_ms.tolist(), load.rtt.skipped) == ([4.0], 4)
    assert "4 of 5 pairs have an rtt_ms that is empty, negative or infinite" in caplog.text


BROKEN = [
    ("clients", "id,coordinate\nx,0 0 1\ny,1 2\nz,\n",
     "clients.csv, row 2 (line 3): coordinate has 2 numbers, but that of row 1 has 3; all coordinates of a workload "
     "have the same dimension"),
    ("brokers", "id,coordinate\nm,\nn,0 1 2 3\n",
     "brokers.csv, row 2 (line 3): coordinate has 4 numbers, but those of clients have 3"),
    ("clients", "id,coordinate\nx,\ny,1 b 3\nz,\n",
     "clients.csv, row 2 (line 3): coordinate is '1 b 3', but must be finite numbers separated by spaces"),
    ("clients", "id,coordinate\nx,1 nan 3\ny,\nz,\n", "clients.csv, row 1 (line 2): coordinate is '1 nan 3', but must"),
    ("clients", "id,coordinate\nx,5\ny,\nz,\n", "row 1 (line 2): coordinate is '5', but must be at least two finite"),
    ("clients", "id,coordinate\nx,1 2 3\ny,1 2 -3\nz,\n",
     "clients.csv, row 2 (line 3): height is -3.0, but must be a finite number, zero or more"),
    ("rtt", "client,broker,rtt_ms\nx,q,1\n", "rtt.csv, row 1 (line 2): broker is 'q', which brokers.csv does not list"),
    ("rtt", "client,broker,rtt_ms\nx,m,fast\n", "rtt.csv, row 1 (line 2): rtt_ms is 'fast', but must be a number"),
    ("rtt", "client,broker\nx,m\n", "rtt.csv has no column 'rtt_ms'"),
    ("rtt", "client,broker,rtt_ms\nx,m,1\ny,m,1\nx,m,2\n",
     "rtt.csv, row 3 (line 4): client 'x' and broker 'm' stand in row 1 already; a measured pair is listed once"),
]  # fmt: skip


@pytest.mark.parametrize(("table", "text", "sentence"), BROKEN, ids=[s[:60] for _, _, s in BROKEN])
def test_trouble_is_named_by_file_row_and_value(folder, table, text, sentence):
    (folder / f"{table}.csv").write_text(text)

    with pytest.raises(BadInput) as caught:
        read_workload(folder)

    assert sentence in str(caught.value)


def test_two_files_of_measured_pairs_are_ambiguous(folder):
    (folder / "rtt.parquet").touch()

    with pytest.raises(BadInput, match=r"both rtt.csv and rtt.parquet; keep one"):
        read_workload(folder)


def test_coordinates_of_tables_must_match_them():
    with pytest.raises(BadTable, match="clients: there are 2 coordinates, but 3 ids"):
        fleet(Coordinates(np.zeros((2, 2)), np.zeros(2)))
    with pytest.raises(BadTable, match="rtt, row 1: rtt_ms is -1, but must be a finite number"):
        Rtts([0], [0], [-1.0])
    with pytest.raises(BadTable, match="rtt, row 1: broker 5 is not one of the 2"):
        fleet(rtt=Rtts([0], [5], [1.0]))


@pytest.mark.parametrize("leg", [0.0, 1.5, NAN])
def test_a_leg_is_a_share_of_the_round_trip(leg):
    with pytest.raises(BadInput, match=r"problem: leg must be a share of the round-trip time, above 0 and at most 1"):
        Problem(fleet(), "topic", leg=leg)
