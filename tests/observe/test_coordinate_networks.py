"""Made-up networks are what they say, matrices are read or refused in one sentence, and probing holds pairs out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput, TooLarge, UnknownName
from trimtab.observe.coordinates import truth
from trimtab.observe.coordinates.matrix import read_matrix
from trimtab.observe.coordinates.node import MOST_PEERS
from trimtab.observe.coordinates.probing import Accuracy, Noise, Probing
from trimtab.observe.coordinates.samples import Lies, Samples
from trimtab.observe.coordinates.serf import Serf


@pytest.mark.parametrize("name", sorted(truth.TRUTHS))
def test_every_made_up_network_is_a_matrix_of_round_trip_times(name):
    network = truth.TRUTHS[name](18, 4)

    assert (network == truth.TRUTHS[name](18, 4)).all()
    assert network.shape[-2:] == (18, 18)
    assert np.allclose(network, np.swapaxes(network, -1, -2))
    assert (np.diagonal(network, axis1=-2, axis2=-1) == 0.0).all()
    assert (network[..., ~np.eye(18, dtype=bool)] > 0.0).all()


def test_networks_have_the_shapes_of_their_names():
    assert truth.line(4)[0].tolist() == [0.0, 10.0, 20.0, 30.0]
    assert truth.grid(4)[0].tolist() == pytest.approx([0.0, 10.0, 10.0, 200**0.5])
    assert truth.star(3, 20.0).tolist() == [[0, 20, 20], [20, 0, 20], [20, 20, 0]]
    assert truth.split(4)[0].tolist() == [0.0, 1.0, 11.0, 11.0]
    assert truth.zones(4)[2].tolist() == [30.0, 30.0, 0.0, 1.0]
    before, after = truth.drift(10, 2, 3, share=0.2)
    assert ((before != after).sum(axis=1) > 2).sum() == 2  # nodes that moved
    with pytest.raises(BadInput, match="a network has 2 nodes or more, but 1 were asked for"):
        truth.star(1)


@pytest.mark.parametrize("name", ["cities", "clusters"])
def test_realistic_networks_violate_triangles(name):
    network = truth.TRUTHS[name](80, 0)

    shortest = np.array([[np.min(network[i] + network[:, j]) for j in range(80)] for i in range(80)])
    violated = (shortest < network - 1e-9)[~np.eye(80, dtype=bool)].mean()

    assert 0.1 < violated < 0.99


def text_of(matrix, separator="\t"):
    return "\n".join(separator.join(f"{value:.6f}" for value in row) for row in matrix) + "\n"


@pytest.mark.parametrize("end", [",", ""])
def test_lines_may_end_with_a_separator(tmp_path, end):
    path = tmp_path / "matrix"
    path.write_text("\n".join(",".join(f"{value:.6f}" for value in row) + end for row in truth.line(5)))

    assert read_matrix(path).rtt_ms == pytest.approx(truth.line(5))


@given(
    nodes=st.integers(4, 9), separator=st.sampled_from(["\t", " ", ",", ";", ", "]), unit=st.sampled_from(["ms", "s"])
)
def test_a_square_text_is_read_in_any_separator_and_unit(tmp_path_factory, nodes, separator, unit):
    path = tmp_path_factory.mktemp("m") / "matrix"
    network = truth.cities(nodes, 1)
    path.write_text(text_of(network / (1000.0 if unit == "s" else 1.0), separator))

    matrix = read_matrix(path, unit)

    assert matrix.rtt_ms == pytest.approx(network, abs=1e-3)
    assert matrix.skipped == 0
    assert matrix.names == tuple(str(node) for node in range(nodes))


def test_rows_are_read_with_and_without_a_header(tmp_path):
    rows = "a,b,10\nb,c,20\nc,d,30\nd,a,40\na,c,50\nc,a,55\n"
    (tmp_path / "plain").write_text(rows)
    (tmp_path / "named").write_text("from,to,rtt\n" + rows)

    plain, named = (read_matrix(tmp_path / name) for name in ("plain", "named"))

    assert plain.names == named.names == ("a", "b", "c", "d")
    assert np.array_equal(plain.rtt_ms, named.rtt_ms, equal_nan=True)
    assert (plain.rtt_ms[0, 1], plain.rtt_ms[1, 0]) == (10.0, 10.0)  # given once: both directions
    assert (plain.rtt_ms[0, 2], plain.rtt_ms[2, 0]) == (50.0, 55.0)
    assert np.isnan(plain.rtt_ms[1, 3])


def test_entries_that_cannot_be_right_are_skipped_and_counted(tmp_path):
    path = tmp_path / "matrix"
    path.write_text("0,1,-2,3,4\n1,0,nan,,5\n6,7,0,0,8\n9,-,1,0,20000\n1,2,3,inf,0\n")

    matrix = read_matrix(path)

    assert matrix.skipped == 7
    assert np.isnan(matrix.rtt_ms).sum() == 7
    assert np.diagonal(matrix.rtt_ms).tolist() == [0.0] * 5


def test_skipped_rows_are_counted(tmp_path):
    path = tmp_path / "rows"
    path.write_text("a,b,10\nb,c,-1\nc,d,nan\nd,a,40\na,c,\n")

    assert read_matrix(path).skipped == 3


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 2 3 4\n1 2 3 4\n1 2 3\n1 2 3 4\n", "is not square: it has 4 rows, but line 3 has 3 numbers"),
        ("1 2 3 4\n1 2 3 4\n", "is not square: it has 2 rows, but line 1 has 4 numbers"),
        ("0 1 2\n1 0 2\n1 2 0\n", "has 3 nodes, but coordinates need 4 or more"),
        ("a,b,1\nb,c,2\n", "has 3 nodes, but coordinates need 4 or more"),
        ("", "is empty"),
        ("\n  \n# nothing\n", "is empty"),
        ("0 1 x 3\n1 0 2 3\n1 2 0 3\n1 2 3 0\n", "line 1: 'x' is not a number"),
        ("0 -1 -1 -1\n" * 4, "has no round-trip time between 0 and 10,000 ms; check --unit, now ms"),
    ],
)
def test_a_matrix_that_cannot_be_used_is_refused_in_a_sentence(tmp_path, text, sentence):
    path = tmp_path / "matrix"
    path.write_text(text)

    with pytest.raises(BadInput, match=sentence):
        read_matrix(path)


def test_files_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00\x81" * 10)

    with pytest.raises(BadInput, match="is not a text file"):
        read_matrix(tmp_path / "bytes")
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        read_matrix(tmp_path / "missing")
    with pytest.raises(BadInput, match="cannot be read: Is a directory"):
        read_matrix(tmp_path)
    with pytest.raises(BadInput, match="unit 'h' must be one of ms, s"):
        read_matrix(tmp_path / "bytes", "h")


@given(nodes=st.integers(4, 20), peers=st.integers(1, 25), seed=st.integers(0, 1000), both_ends=st.booleans())
def test_nodes_probe_their_peers_only(nodes, peers, seed, both_ends):
    network = truth.cities(nodes, seed)
    network[0, 1] = np.nan  # cannot be measured from here
    probing = Probing.random(network, peers, seed)

    samples = probing.samples(12, seed, both_ends=both_ends)

    probers, probed = (samples.learner[::2], samples.teacher[::2]) if both_ends else (samples.learner, samples.teacher)
    assert len(probers) == 12 * nodes
    assert all(peer in probing.peers[node] for node, peer in zip(probers, probed, strict=True))
    assert not probing.held_out()[samples.learner, samples.teacher].any()
    assert all(len(chosen) <= peers and node not in chosen for node, chosen in enumerate(probing.peers))
    assert 1 not in probing.peers[0]
    assert (samples.rtt_ms > 0.0).all()


def test_noise_is_as_large_as_it_says():
    probing = Probing.random(truth.star(50, 100.0), 10, 0)

    rtt = probing.samples(400, 0, both_ends=False, noise=Noise(0.05, 0.01, 5.0)).rtt_ms

    usual = rtt[rtt < 200.0]
    assert (usual >= 100.0).all()
    assert usual.max() <= 105.0
    assert usual.mean() == pytest.approx(102.5, abs=0.1)
    assert 1 - len(usual) / len(rtt) == pytest.approx(0.01, abs=0.002)


def test_delays_are_those_of_the_node_that_answers():
    probing = Probing.random(truth.star(4, 10.0), 3, 0)

    samples = probing.samples(3, 0, both_ends=True, delay_ms=np.array([0.0, 100.0, 0.0, 0.0]))

    assert ((samples.rtt_ms == 110.0) == (samples.teacher == 1)).all()


def test_a_liar_tells_other_times_to_those_it_probes():
    probing = Probing.random(truth.star(4, 10.0), 3, 0)

    samples = probing.samples(3, 0, both_ends=True, told=np.array([1.0, 0.1, 1.0, 1.0]))

    assert (samples.rtt_ms[::2] == 10.0).all()
    assert ((samples.rtt_ms[1::2] == 1.0) == (samples.teacher[1::2] == 1)).all()


def test_accuracy_needs_pairs():
    network = truth.line(4)
    with pytest.raises(BadInput, match="every pair is probed; choose fewer --peers"):
        Accuracy.of(network, network, Probing.random(network, 3, 0).held_out())
    with pytest.raises(BadInput, match="a node needs at least one peer, but 0 were asked for"):
        Probing.random(network, 0, 0)
    with pytest.raises(UnknownName, match="there is no kind of lie 'white'"):
        Lies.of(np.ones(3, bool), "white", 8, 0)
    with pytest.raises(BadInput, match="a simulated round-trip time must be positive"):
        Samples(2, np.array([0]), np.array([1]), np.array([np.nan]))


def test_a_simulated_node_has_as_many_peers_as_a_live_one():
    count = MOST_PEERS + 1
    samples = Samples(count + 1, np.zeros(count, int), np.arange(1, count + 1), np.ones(count))

    with pytest.raises(TooLarge, match="a node has 1,025 peers, but remembers 1,024 at most"):
        Serf().simulate(samples)
