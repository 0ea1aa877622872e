"""Accuracy of coordinates as numbers: relative errors of both models on seeded networks, as in Serf's own tests."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.lab.experiments.coordinates import LIES
from trimtab.observe.coordinates.probing import Accuracy, Noise, Probing, all_pairs
from trimtab.observe.coordinates.registry import coordinate_model
from trimtab.observe.coordinates.samples import Lies
from trimtab.observe.coordinates.truth import TRUTHS, cities, drift, star

NOISE = Noise(0.05, 0.01, 5.0)


def accuracy(name, network, peers, *, rounds=600, noise=None, lie=None, seed=0, held_out=True):
    model = coordinate_model(name)
    probing = Probing.random(network, peers, seed)
    honest, lies, delay_ms, told = np.ones(probing.nodes, bool), None, None, None
    if lie:
        kind, longest, factor = LIES[lie]
        honest = np.random.default_rng(seed).permutation(probing.nodes) >= probing.nodes // 10
        lies = Lies.of(~honest, kind, 8, seed)
        delay_ms = np.where(honest, 0.0, longest * np.random.default_rng(seed).random(probing.nodes))
        told = np.where(honest, 1.0, factor)
    samples = probing.samples(rounds, seed, both_ends=model.both_ends, noise=noise, delay_ms=delay_ms, told=told)
    last = network if network.ndim == 2 else network[-1]
    pairs = (probing.held_out() if held_out else all_pairs(network)) & honest[:, None] & honest[None, :]
    return Accuracy.of(model.simulate(samples, seed, lies).rtt_ms(), last, pairs)


@pytest.mark.parametrize(
    ("name", "network", "median", "p90"),
    [
        ("serf", "line", 0.011, 0.20), ("robust", "line", 0.006, 0.021),
        ("serf", "grid", 0.009, 0.063), ("robust", "grid", 0.002, 0.006),
        ("serf", "star", 0.055, 0.15), ("robust", "star", 0.011, 0.058),
        ("serf", "split", 0.003, 0.12), ("robust", "split", 0.007, 0.20),
        ("serf", "zones", 0.053, 0.17), ("robust", "zones", 0.025, 0.11),
        ("serf", "drift", 0.017, 0.10), ("robust", "drift", 0.005, 0.025),
        ("serf", "cities", 0.14, 0.66), ("robust", "cities", 0.068, 0.22),
        ("serf", "clusters", 0.125, 0.50), ("robust", "clusters", 0.093, 0.27),
    ],
)  # fmt: skip
def test_held_out_pairs_of_made_up_networks(name, network, median, p90):
    """96 nodes, 16 peers each."""
    found = accuracy(name, TRUTHS[network](96, 0), 16)

    assert found.median <= median
    assert found.p90 <= p90


@pytest.mark.parametrize("nodes", [4, 8, 16, 32, 64, 128])
def test_every_pair_of_a_star_is_within_5_percent(nodes):
    """Gupta et al. (SEC'21), Figure 3; nineteen of twenty pairs, 1 % jitter."""
    assert accuracy("robust", star(nodes), nodes, noise=Noise(0.01), held_out=False).p95 <= 0.05


@pytest.mark.parametrize("nodes", [4, 16, 64])
def test_serf_fits_the_median_pair_of_a_star(nodes):
    assert accuracy("serf", star(nodes), nodes, noise=Noise(0.01), held_out=False).median <= 0.09


@pytest.mark.slow
def test_noise_costs_little():
    network = cities(160, 1)
    clean, noisy = (accuracy("robust", network, 32, noise=noise) for noise in (None, NOISE))

    assert clean.median <= 0.06
    assert clean.p90 <= 0.25
    assert noisy.median <= min(0.08, 1.2 * clean.median)
    assert noisy.p90 <= 0.30


@pytest.mark.parametrize("lie", sorted(LIES))
def test_one_liar_in_ten_nodes_is_bounded(lie):
    network = cities(160, 1)

    lied = accuracy("robust", network, 32, lie=lie)

    assert lied.median <= 0.10
    assert lied.median < 0.7 * accuracy("serf", network, 32, lie=lie).median


@pytest.mark.slow
def test_the_robust_loss_halves_the_error_of_serf():
    for seed in range(3):
        network = cities(160, seed)
        serf, robust = (accuracy(name, network, 32, rounds=1000, seed=seed) for name in ("serf", "robust"))

        assert robust.median < 0.6 * serf.median
        assert robust.p90 < 0.6 * serf.p90


def test_a_network_that_changed_is_learned_anew():
    """Half of all nodes move after a third of the probes, and again after two thirds."""
    found = accuracy("robust", drift(64, 3, 2, share=0.5), 16, rounds=1500)

    assert found.median <= 0.005
    assert found.p90 <= 0.02
