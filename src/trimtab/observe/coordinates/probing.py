"""Which peers the nodes of a simulated network probe, what they measure, and how good the estimates are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimtab.errors import BadInput
from trimtab.observe.coordinates.samples import Samples

if TYPE_CHECKING:
    from trimtab.model.workload import Floats
    from trimtab.observe.coordinates.samples import Flags, Ints


@dataclass(frozen=True, slots=True)
class Noise:
    """How measured times differ from true ones."""

    jitter: float = 0.0  # up to this share is added to each sample, uniformly
    outliers: float = 0.0  # share of the samples that are
    factor: float = 1.0  # times too long


@dataclass(frozen=True, slots=True, eq=False)
class Probing:
    """A network, and the peers that each node probes: round ``r`` has one probe of every node."""

    truth_ms: Floats  # (N, N), or (T, N, N) for a network that changes T - 1 times; NaN: cannot be measured
    peers: tuple[Ints, ...]  # of each node

    @classmethod
    def random(cls, truth_ms: Floats, peers: int, seed: int) -> Probing:
        """``peers`` random peers for each node, or all if there are fewer."""
        if peers < 1:
            raise BadInput(f"a node needs at least one peer, but {peers} were asked for")
        rng = np.random.default_rng((seed, 5))
        known = _measurable(truth_ms)
        chosen = []
        for row in known:
            candidates = np.flatnonzero(row)
            chosen.append(rng.permutation(candidates)[:peers].astype(np.int64))
        return cls(truth_ms, tuple(chosen))

    @property
    def nodes(self) -> int:
        return len(self.peers)

    def probed(self) -> Flags:
        """(N, N) whether either end probes the other."""
        flags = np.zeros((self.nodes, self.nodes), np.bool_)
        for node, peers in enumerate(self.peers):
            flags[node, peers] = True
        return flags | flags.T

    def held_out(self) -> Flags:
        """(N, N) pairs that neither end probes, and whose true time is known."""
        return _measurable(self.truth_ms) & ~self.probed()

    def samples(
        self, rounds: int, seed: int, *, both_ends: bool, noise: Noise | None = None, delay_ms: Floats | None = None,
        told: Floats | None = None,
    ) -> Samples:  # fmt: skip
        """Each node probes its peers once in order, then at random. ``delay_ms`` is what a node adds to its answers.

        With ``both_ends`` the probed node learns from the probe too, by the time that the prober tells it: the measured
        one times the prober's factor ``told``.
        """
        noise, rng = noise or Noise(), np.random.default_rng((seed, 6))
        active = np.array([node for node, peers in enumerate(self.peers) if len(peers)], np.int64)
        count = np.array([len(self.peers[node]) for node in active], np.int64)
        table = np.zeros((len(active), int(count.max(initial=1))), np.int64)
        for row, node in enumerate(active):
            table[row, : count[row]] = self.peers[node]
        turn = np.arange(rounds)[:, None]
        pick = np.where(turn < count, turn, (rng.random((rounds, len(active))) * count).astype(np.int64))
        peer = table[np.arange(len(active)), pick].ravel()
        prober = np.tile(active, rounds)
        truth = self.truth_ms if self.truth_ms.ndim == 3 else self.truth_ms[None]
        period = np.repeat(np.arange(rounds) * len(truth) // max(rounds, 1), len(active))
        rtt = truth[period, prober, peer]
        if noise.jitter:
            rtt = rtt * (1.0 + noise.jitter * rng.random(len(rtt)))
        if noise.outliers:
            rtt = np.where(rng.random(len(rtt)) < noise.outliers, rtt * noise.factor, rtt)
        learner, teacher = (prober, peer) if not both_ends else (_turns(prober, peer), _turns(peer, prober))
        rtt = rtt if not both_ends else np.repeat(rtt, 2)
        if both_ends and told is not None:
            rtt[1::2] *= told[teacher[1::2]]
        if delay_ms is not None:
            rtt = rtt + delay_ms[teacher]
        return Samples(self.nodes, learner, teacher, rtt)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Relative errors, |estimate - truth| / truth."""

    pairs: int
    median: float
    mean: float
    p90: float
    p95: float
    max: float

    @classmethod
    def of(cls, estimate_ms: Floats, truth_ms: Floats, pairs: Flags) -> Accuracy:
        """Over the given pairs; raises ``BadInput`` without any."""
        if not pairs.any():
            raise BadInput("no pair of nodes is left to judge estimates by: every pair is probed; choose fewer --peers")
        errors = np.abs(estimate_ms[pairs] - truth_ms[pairs]) / truth_ms[pairs]
        median, p90, p95 = np.percentile(errors, (50, 90, 95))
        return cls(len(errors), *(float(x) for x in (median, errors.mean(), p90, p95, errors.max())))


def all_pairs(truth_ms: Floats) -> Flags:
    return _measurable(truth_ms)


def _measurable(truth_ms: Floats) -> Flags:
    """(N, N) whether there is a positive time between two nodes, in every period."""
    positive = truth_ms > 0.0
    return np.asarray(positive if positive.ndim == 2 else positive.all(axis=0))


def _turns(first: Ints, second: Ints) -> Ints:
    """Both columns in turns: first, second, first, second."""
    return np.stack([first, second], axis=1).ravel()
