"""Whole networks of ``serf`` and ``robust`` nodes in compiled form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.errors import TooLarge
from trimtab.model.coordinates import Coordinates
from trimtab.observe.coordinates import kernels
from trimtab.observe.coordinates.draws import node_seed
from trimtab.observe.coordinates.node import MOST_PEERS
from trimtab.observe.coordinates.robust import FIRST_ERROR
from trimtab.observe.coordinates.samples import Embedding, Lies

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats
    from trimtab.observe.coordinates.robust import Robust
    from trimtab.observe.coordinates.samples import Ints, Samples
    from trimtab.observe.coordinates.serf import Serf


def simulate_serf(model: Serf, samples: Samples, seed: int, lies: Lies | None) -> Embedding:
    slot, _, learner, teacher = _slots(samples)
    point, height, state = _start(samples.nodes, model.dimensions, model.height_min, seed)
    adjustment, error = np.zeros(samples.nodes), np.full(samples.nodes, model.error_max)
    measured = np.zeros(len(learner))
    lies = lies or _honest(samples.nodes, model.dimensions)
    kernels.serf_run(
        samples.learner, samples.teacher, slot, samples.rtt_ms, lies.kind, lies.claimed,
        point, height, adjustment, error, state, measured,
        model.error_max, model.ce, model.cc, model.window, model.height_min, model.filter, model.gravity_rho,
    )  # fmt: skip
    return Embedding(Coordinates(point, height, adjustment), error, learner, teacher, measured)


def simulate_robust(model: Robust, samples: Samples, seed: int, lies: Lies | None) -> Embedding:
    slot, first, learner, teacher = _slots(samples)
    point, height, state = _start(samples.nodes, model.dimensions, model.height_min, seed)
    error, measured = np.full(samples.nodes, FIRST_ERROR), np.zeros(len(learner))
    lies = lies or _honest(samples.nodes, model.dimensions)
    kernels.robust_run(
        samples.learner, samples.teacher, slot, first, samples.rtt_ms, lies.kind, lies.claimed,
        point, height, error, state, measured,
        model.batch, model.width, model.plateau, model.trust, model.near, model.rate, model.floor, model.horizon,
        model.height_min, model.filter, model.gravity_rho,
    )  # fmt: skip
    return Embedding(Coordinates(point, height), error, learner, teacher, measured)


def _slots(samples: Samples) -> tuple[Ints, Ints, Ints, Ints]:
    """Pairs numbered by learner, then by first sample: the pair of each sample, the first pair of each node, pairs."""
    pair = samples.learner * samples.nodes + samples.teacher
    pairs, start, which = np.unique(pair, return_index=True, return_inverse=True)
    order = np.lexsort((start, pairs // samples.nodes))
    slot = np.empty(len(pairs), np.int64)
    slot[order] = np.arange(len(pairs))
    learner, teacher = pairs[order] // samples.nodes, pairs[order] % samples.nodes
    first = np.searchsorted(learner, np.arange(samples.nodes))
    most = int(np.bincount(learner, minlength=1).max(initial=0))
    if most > MOST_PEERS:
        raise TooLarge(f"a node has {most:,} peers, but remembers {MOST_PEERS:,} at most; choose fewer peers")
    return slot[which], first.astype(np.int64), learner, teacher


def _start(nodes: int, dimensions: int, height_min: float, seed: int) -> tuple[Floats, Floats, NDArray[np.uint64]]:
    seeds = np.array([node_seed(seed, node) for node in range(nodes)], np.uint64)
    return np.zeros((nodes, dimensions)), np.full(nodes, height_min), seeds


def _honest(nodes: int, dimensions: int) -> Lies:
    return Lies(np.zeros(nodes, np.int64), np.zeros((nodes, dimensions)))
