"""Network coordinates: Gupta et al. (SEC'21), Figure 3, and how well pairs that nobody probed are estimated."""

from __future__ import annotations

import hashlib
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.lab.experiments.coordinates_report import report
from trimtab.observe.coordinates.coordinate import Coordinate
from trimtab.observe.coordinates.matrix import read_matrix
from trimtab.observe.coordinates.probing import Accuracy, Noise, Probing, all_pairs
from trimtab.observe.coordinates.registry import coordinate_model
from trimtab.observe.coordinates.samples import Lies
from trimtab.observe.coordinates.truth import TRUTHS, star

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.lab.experiment import Job, Report, Row
    from trimtab.model.workload import Floats

MODELS: Final = ("serf", "robust")
PEERS: Final = 32
ROUNDS: Final = 3000  # probes of each node
NOISE: Final = Noise(jitter=0.05, outliers=0.01, factor=5.0)
LIARS: Final = 0.1  # share of the nodes
LIES: Final = {  # name -> kind of lie, longest delay of such a liar's answers in ms, factor of the times that it tells
    "elsewhere": ("elsewhere", 0.0, 1.0), "scaled": ("scaled", 0.0, 1.0), "jumping": ("jumping", 200.0, 1.0),
    "beside": ("beside", 500.0, 1.0), "short": ("beside", 0.0, 0.01),
}  # fmt: skip
NETWORK_NODES: Final = 160  # of a made-up network
STAR_NODES: Final = (4, 8, 16, 32, 64, 128)
STAR_RTT_MS: Final = (10.0, 20.0, 50.0, 100.0, 200.0)
STAR_ROUNDS: Final = 600
STAR_NOISE: Final = Noise(jitter=0.01)
MIDDLE_MS: Final = 50.0  # round-trip time of the star when the number of nodes varies
CPU_UPDATES: Final = 4000


class NetworkCoordinates:
    title = "Network coordinates (Gupta et al., Figure 3, and matrices of round-trip times)"
    seeds = 3
    timed = False

    def jobs(self, seeds: int, matrix: Sequence[str] = (), unit: str = "ms", peers: int = PEERS) -> list[Job]:
        """``matrix``: files of round-trip times; without any, the made-up networks."""
        networks: list[Job] = [{"network": name, "digest": "", "unit": "ms"} for name in (() if matrix else TRUTHS)] + [
            {"network": path, "digest": digest(path), "unit": unit} for path in matrix
        ]
        for network in networks:  # a fault in a file is found before anything is computed
            truth, _ = _network(network["network"], network["digest"], network["unit"], 0)
            if not Probing.random(truth, peers, 0).held_out().any():
                raise BadInput(
                    f"{network['network']}: with {peers} peers, every pair of its {truth.shape[-1]} nodes is probed, "
                    "and none is left to judge estimates by; choose fewer --peers"
                )
        stars = [(nodes, rtt) for nodes in STAR_NODES for rtt in STAR_RTT_MS if nodes == 16 or rtt == MIDDLE_MS]
        return [
            *(
                {"part": "star", "model": model, "nodes": nodes, "rtt_ms": rtt, "seed": seed}
                for seed in range(seeds) for model in MODELS for nodes, rtt in stars
            ),
            *({"part": "cpu", "model": model, "seed": seed} for seed in range(seeds) for model in MODELS),
            *(
                {"part": "matrix", **network, "case": case, "model": model, "peers": peers, "seed": seed}
                for network in networks for case in _cases(network) for model in MODELS for seed in range(seeds)
            ),
        ]  # fmt: skip

    def run(self, job: Job) -> list[Row]:
        return {"star": _star, "cpu": _cpu, "matrix": _matrix}[job["part"]](job)

    def report(self, rows: list[Row], out: Path) -> Report:
        return report(rows, out)


def _cases(network: Job) -> list[str]:
    """Liars and noise are tried on real networks and on made-up ones with triangle violations."""
    plain = ["plain", "other ends"]
    if network["digest"] or network["network"] in ("cities", "clusters"):
        return [*plain, "noise", *(f"liars: {kind}" for kind in LIES)]
    return plain


def _star(job: Job) -> list[Row]:
    model, seed = coordinate_model(job["model"]), job["seed"]
    truth = star(job["nodes"], job["rtt_ms"])
    probing = Probing.random(truth, job["nodes"], seed)
    samples = probing.samples(STAR_ROUNDS, seed, both_ends=model.both_ends, noise=STAR_NOISE)
    return [_row(Accuracy.of(model.simulate(samples, seed).rtt_ms(), truth, all_pairs(truth)))]


def _matrix(job: Job) -> list[Row]:
    """One network, one model. ``other ends``: both ends learn from a probe if by default one does, and vice versa."""
    model, seed, case = coordinate_model(job["model"]), job["seed"], job["case"]
    truth, skipped = _network(job["network"], job["digest"], job["unit"], seed)
    probing = Probing.random(truth, job["peers"], seed)
    honest, lies, delay_ms, told = np.ones(probing.nodes, np.bool_), None, None, None
    if case.startswith("liars: "):
        kind, longest, factor = LIES[case.removeprefix("liars: ")]
        rng = np.random.default_rng((seed, 9))
        honest[rng.permutation(probing.nodes)[: round(LIARS * probing.nodes)]] = False
        lies = Lies.of(~honest, kind, getattr(model, "dimensions", 8), seed)
        delay_ms = np.where(honest, 0.0, rng.random(probing.nodes) * longest)
        told = np.where(honest, 1.0, factor)
    samples = probing.samples(
        ROUNDS, seed, both_ends=model.both_ends != (case == "other ends"),
        noise=NOISE if case == "noise" else None, delay_ms=delay_ms, told=told,
    )  # fmt: skip
    embedding = model.simulate(samples, seed, lies)
    last = truth if truth.ndim == 2 else truth[-1]
    estimate, both_honest = embedding.rtt_ms(), honest[:, None] & honest[None, :]
    row = _row(Accuracy.of(estimate, last, probing.held_out() & both_honest))
    nearest = probing.probed() & both_honest
    best = embedding.best_ms() if job["model"] == "robust" else estimate
    probed = Accuracy.of(best, last, nearest)
    return [row | {
        "nodes": probing.nodes, "skipped": skipped, "probed_median": probed.median, "probed_p90": probed.p90,
        "updates": len(samples.rtt_ms) / probing.nodes,
    }]  # fmt: skip


def _cpu(job: Job) -> list[Row]:
    """CPU time of a live node's update: 32 peers, or 64 where both ends learn from a probe."""
    model = coordinate_model(job["model"])
    rng = np.random.default_rng((job["seed"], 7))
    count = 2 * PEERS if model.both_ends else PEERS
    peers = [(f"node-{peer}", Coordinate(tuple(rng.normal(scale=50.0, size=8).tolist()), 2.0, 0.0, 0.1))
             for peer in range(count)]  # fmt: skip
    rtts = rng.uniform(20.0, 200.0, CPU_UPDATES).tolist()
    node = model.node(job["seed"])
    for peer, coordinate in peers:
        node.update(peer, coordinate, 100.0)
    begin = time.process_time()
    for place, rtt in enumerate(rtts):
        peer, coordinate = peers[place % count]
        node.update(peer, coordinate, rtt)
    return [{"us_per_update": (time.process_time() - begin) / CPU_UPDATES * 1e6}]


def _row(accuracy: Accuracy) -> Row:
    return {
        "pairs": accuracy.pairs, "median": accuracy.median, "mean": accuracy.mean, "p90": accuracy.p90,
        "p95": accuracy.p95, "max": accuracy.max,
    }  # fmt: skip


@lru_cache(maxsize=4)
def _network(name: str, digest: str, unit: str, seed: int) -> tuple[Floats, int]:
    """The true times of a made-up network or of a file, and how many entries of the file were left out."""
    if not digest:
        return TRUTHS[name](NETWORK_NODES, seed), 0
    matrix = read_matrix(name, unit)
    return matrix.rtt_ms, matrix.skipped


def digest(path: str) -> str:
    """Part of a job's key, so that a file with other contents is not taken for the one of an earlier run."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
