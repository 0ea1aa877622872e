"""The contract of all registered models of coordinates: what their nodes survive, count and answer."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput, BadKnob, UnknownName
from trimtab.observe.coordinates.coordinate import Coordinate
from trimtab.observe.coordinates.draws import node_seed
from trimtab.observe.coordinates.node import MOST_PEERS, MOST_RTT_MS
from trimtab.observe.coordinates.probing import Probing
from trimtab.observe.coordinates.registry import MODELS, coordinate_model
from trimtab.observe.coordinates.robust import WARM, Robust
from trimtab.observe.coordinates.samples import KINDS, Lies, Samples
from trimtab.observe.coordinates.serf import Serf
from trimtab.observe.coordinates.truth import cities, drift, zones

NAMES = sorted(MODELS)
PLACE = (3.0, -4.0) + (0.0,) * 6
PEER = Coordinate(PLACE, 2.0, 0.0, 0.5)

anything = st.floats(allow_nan=True, allow_infinity=True)
wild_coordinates = st.builds(Coordinate, st.lists(anything, max_size=10).map(tuple), anything, anything, anything)
plausible = st.builds(
    Coordinate, st.tuples(*[st.floats(-1e6, 1e6)] * 8), st.floats(0.0, 1e6), st.floats(-1e6, 1e6), st.floats(0.0, 1e9)
)  # fmt: skip
times = st.one_of(anything, st.floats(1e-9, MOST_RTT_MS))


def state(node):
    return node.coordinate(), node.resets


@pytest.mark.parametrize("name", NAMES)
@given(samples=st.lists(st.tuples(st.sampled_from("abc"), st.one_of(wild_coordinates, plausible), times), max_size=40))
def test_whatever_a_node_hears_its_own_coordinate_can_be_used(name, samples):
    node = coordinate_model(name).node(1)

    for peer, coordinate, rtt in samples:
        node.update(peer, coordinate, rtt)

    assert node.coordinate().usable
    assert len(node.coordinate().point) == 8
    assert 0 <= node.rejected <= len(samples)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rtt", [0.0, -1.0, math.nan, math.inf, MOST_RTT_MS * 1.01])
def test_impossible_times_are_counted_and_change_nothing(name, rtt):
    node = coordinate_model(name).node()
    node.update("a", PEER, 20.0)
    before = state(node)

    node.update("a", PEER, rtt)

    assert state(node) == before
    assert node.rejected == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "poison",
    [
        Coordinate((math.nan,) * 8, 1.0), Coordinate((math.inf, -math.inf) + (0.0,) * 6, 1.0), Coordinate(PLACE, -1.0),
        Coordinate(PLACE, 1.0, math.nan), Coordinate(PLACE, 1.0, 0.0, -0.1), Coordinate((1.0, 2.0), 1.0),
        Coordinate((), 1.0), Coordinate((1e300,) * 8, 1.0), Coordinate(PLACE, 1e300),
    ],
)  # fmt: skip
def test_poisoned_coordinates_are_counted_and_change_nothing(name, poison):
    node = coordinate_model(name).node()
    node.update("a", PEER, 20.0)
    before = state(node)

    node.update("a", poison, 20.0)

    assert state(node) == before
    assert node.rejected == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_node_whose_own_state_is_poisoned_starts_anew_and_says_so(name):
    node = coordinate_model(name).node()
    node.update("a", PEER, 20.0)
    node._height = math.nan

    node.update("a", PEER, 20.0)

    assert node.resets == 1
    assert node.coordinate().usable


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_and_samples_give_the_same_node(name):
    one, again = (coordinate_model(name).node(7) for _ in range(2))

    for node in (one, again):
        for rtt in (10.0, 12.0, 30.0):
            node.update("a", Coordinate((0.0,) * 8, 0.01), rtt)

    assert state(one) == state(again)


@pytest.mark.parametrize("name", NAMES)
def test_two_nodes_that_start_at_one_place_move_apart(name):
    one, other = (coordinate_model(name).node(seed) for seed in (1, 2))

    for _ in range(200):
        one.update("other", other.coordinate(), 40.0)
        other.update("one", one.coordinate(), 40.0)

    assert one.coordinate().rtt_ms(other.coordinate()) == pytest.approx(40.0, rel=0.05)


def test_a_measured_pair_overrides_the_robust_estimate():
    node = coordinate_model("robust").node()
    for rtt in (20.0, 500.0, 20.5, 21.0, 20.2):
        node.update("near", PEER, rtt)
    far = Coordinate((100.0,) + (0.0,) * 7, 1.0)

    assert node.estimate("near") == (20.2, True)  # the lower quartile of five
    assert node.estimate("near", far) == (20.2, True)
    assert node.estimate("far", far) == (node.coordinate().rtt_ms(far), False)


def test_serf_estimates_by_coordinates_alone():
    node = coordinate_model("serf").node()
    node.update("a", PEER, 20.0)

    assert node.estimate("a") == (node.coordinate().rtt_ms(PEER), False)


@pytest.mark.parametrize("name", NAMES)
def test_a_forgotten_peer_is_unknown(name):
    node = coordinate_model(name).node()
    node.update("a", PEER, 20.0)
    node.update("b", PEER, 20.0)

    node.forget("a")
    node.forget("never heard of")

    with pytest.raises(UnknownName, match="there is no peer 'a'; known: b"):
        node.estimate("a")
    assert not node.estimate("a", PEER).measured
    node.update("b", PEER, 20.0)
    assert node.coordinate().usable


@pytest.mark.parametrize("name", NAMES)
def test_a_node_remembers_a_bounded_number_of_peers(name):
    node = coordinate_model(name).node()
    for peer in range(MOST_PEERS):
        node.update(str(peer), PEER, 20.0)
    node.update("0", PEER, 20.0)

    node.update("one more", PEER, 20.0)

    assert node.estimate("0")
    with pytest.raises(UnknownName):
        node.estimate("1")  # heard of longest ago


def test_coordinates_of_different_models_are_not_compared():
    with pytest.raises(BadInput, match="coordinates of 8 and of 3 dimensions cannot be compared"):
        PEER.rtt_ms(Coordinate((1.0, 2.0, 3.0), 1.0))


def test_an_adjustment_never_makes_an_estimate_negative():
    one, other = Coordinate((3.0,), 1.0, -1.0), Coordinate((0.0,), 1.0, -30.0)

    assert one.rtt_ms(other) == 5.0
    assert one.rtt_ms(Coordinate((0.0,), 1.0, -2.0)) == 2.0


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**32), rounds=st.integers(1, 60))
def test_a_simulation_does_what_its_nodes_do(name, seed, rounds):
    """The compiled form, which experiments use, and the one of live processes."""
    model = coordinate_model(name)
    samples = Probing.random(cities(12, seed % 5), 6, seed).samples(rounds, seed, both_ends=model.both_ends)
    nodes = [model.node(node_seed(seed, node)) for node in range(12)]

    for learner, teacher, rtt in zip(samples.learner, samples.teacher, samples.rtt_ms, strict=True):
        nodes[learner].update(str(teacher), nodes[teacher].coordinate(), float(rtt))
    embedding = model.simulate(samples, seed)

    coordinates = [node.coordinate() for node in nodes]
    assert embedding.coordinates.point == pytest.approx(np.array([c.point for c in coordinates]), rel=1e-4, abs=1e-5)
    assert embedding.coordinates.height == pytest.approx(np.array([c.height for c in coordinates]), rel=1e-4, abs=1e-5)
    assert embedding.error == pytest.approx(np.array([c.error for c in coordinates]), rel=1e-4, abs=1e-6)
    if name == "robust":
        for learner, teacher, rtt in zip(embedding.learner, embedding.teacher, embedding.measured_ms, strict=True):
            assert nodes[learner].estimate(str(teacher)) == (rtt, True)


@pytest.mark.parametrize("name", NAMES)
def test_a_simulation_repeats_bit_for_bit(name):
    model = coordinate_model(name)
    samples = Probing.random(cities(20, 0), 8, 3).samples(50, 3, both_ends=model.both_ends)

    one, again = (model.simulate(samples, 3).coordinates for _ in range(2))

    assert one.point.tobytes() == again.point.tobytes()
    assert one.height.tobytes() == again.height.tobytes()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"honest"}))
def test_liars_move_only_those_who_hear_them(name, kind):
    """Node 0 lies, node 2 learns from honest nodes only."""
    model = coordinate_model(name)
    learner, teacher = np.array([1, 2, 3] * 20), np.array([0, 3, 2] * 20)
    samples = Samples(4, learner, teacher, np.full(60, 25.0))
    liars = np.arange(4) == 0

    lied, honest = (model.simulate(samples, 1, lies) for lies in (Lies.of(liars, kind, 8, 1), None))

    moved = (lied.coordinates.point != honest.coordinates.point).any(axis=1)
    assert moved.tolist() == [False, True, False, False]


def test_a_robust_node_notices_that_the_network_has_changed():
    truth = drift(24, 2, 1, share=0.5)
    probing = Probing.random(truth, 8, 1)
    samples = probing.samples(4 * WARM, 1, both_ends=True)
    model = Robust(floor=0.0)

    frozen = Robust(floor=0.0, rate=1e-9).simulate(samples, 1).error
    error = model.simulate(samples, 1).error

    assert np.median(error) < 0.05 < np.median(frozen)


def test_a_rare_short_link_is_kept():
    """Each node is 1 ms from one other and 30 ms from all others: the partner must come out as the nearest node."""
    truth = zones(32)
    samples = Probing.random(truth, 31, 0).samples(600, 0, both_ends=True)
    embedding = Robust().simulate(samples, 0)

    best = embedding.best_ms()
    np.fill_diagonal(best, np.inf)
    assert (best.argmin(axis=1) == np.arange(32) ^ 1).all()
    by_coordinates = embedding.rtt_ms()
    np.fill_diagonal(by_coordinates, np.inf)
    assert (by_coordinates.argmin(axis=1) == np.arange(32) ^ 1).mean() > 0.9


@pytest.mark.parametrize(
    ("model", "knobs", "sentence"),
    [
        (Serf, {"dimensions": 0}, "serf: dimensions must be 1 or more, but is 0"),
        (Serf, {"cc": math.nan}, "serf: cc must be a positive number, but is nan"),
        (Robust, {"batch": 0}, "robust: batch must be 1 or more, but is 0"),
        (Robust, {"width": -1.0}, "robust: width must be a positive number"),
        (Robust, {"plateau": 1.0}, r"robust: plateau must be in \[0, 1\), but is 1.0"),
    ],
)
def test_knobs_out_of_range_are_refused(model, knobs, sentence):
    with pytest.raises(BadKnob, match=sentence):
        model(**knobs)


def test_an_unknown_model_is_refused():
    with pytest.raises(UnknownName, match="there is no coordinate model 'serv'; did you mean 'serf'"):
        coordinate_model("serv")


@pytest.mark.parametrize("name", NAMES)
def test_a_live_node_loads_neither_numpy_nor_a_compiler(name):
    """Every client of a fleet runs one."""
    script = (
        "import sys\n"
        "from trimtab.observe.coordinates.registry import coordinate_model\n"
        f"node = coordinate_model({name!r}).node()\n"
        "node.update('a', node.coordinate(), 10.0)\n"
        "print(sorted({'numpy', 'numba'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
