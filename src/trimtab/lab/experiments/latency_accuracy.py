"""Khare et al. (SEC'18), Table I and Figure 2: how accurate latency models are, those of the paper and ``trim``.

Samples are simulated. All figures are of samples that a model was not fitted on, unless they are called "training".
Besides random sets, models are tested on sets that an optimiser has chosen with the very model: it finds the sets for
which the model is too hopeful.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.lab.experiments import latency_figure_2, latency_report
from trimtab.lab.worlds.colocation import KINDS, Colocation
from trimtab.model.hardware import PAPER, hardware
from trimtab.model.problem import Problem
from trimtab.place.topic.ffd import Ffd
from trimtab.predict.accuracy import Accuracy
from trimtab.predict.card import Evaluation
from trimtab.predict.configurations import packed_sets, random_sets, simulated, simulated_samples
from trimtab.predict.mlp import Mlp, Network, layers
from trimtab.predict.poly4 import Poly4
from trimtab.predict.queueing import Queueing
from trimtab.predict.samples import Samples
from trimtab.predict.sets import Sets, features
from trimtab.predict.trim import Trim, TrimModel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trimtab.lab.experiment import Job, Report, Row
    from trimtab.model.hardware import Hardware
    from trimtab.model.workload import Floats
    from trimtab.predict.model import LatencyModel

MOST: Final = 6
TRAIN, VALIDATION, TEST = 1000, 50, 500  # sets of each size; the first two are the paper's
ALONE: Final = 180  # data points for one topic, in the paper
PACKED: Final = 4000
REQUESTS: Final = 8  # of each kind, that an optimiser places
TOPICS: Final = 100
GROWTH: Final = 0.02  # of a margin on load
LEAST: Final = 40  # samples of a kind, however small the scale is
RUNS: Final = 5  # of the sets that trim is tested on
CURVE: Final = (50, 100, 200, 400, 700, 1000)
CURVE_SIZES: Final = (4, 6)
OTHERS: Final = ("two-slow-cores", "two-cores-smt", "memory-bound")
FEW, MANY = 50, 1500  # sets of all sizes together that models of other hardware are fitted on


class LatencyAccuracy:
    title = "Accuracy of latency models (Khare et al., Table I and Figure 2)"
    seeds = 3
    timed = False

    def jobs(self, seeds: int, scale: int = 100) -> list[Job]:
        """``scale``: percent of the samples; less is for trying it out."""
        parts: list[Job] = [{"part": "table", "k": k} for k in range(1, MOST + 1)]
        parts += [{"part": "alone", "k": 1}]
        parts += [{"part": "curve", "k": k} for k in CURVE_SIZES]
        parts += [{"part": "trim", "k": 0}]
        parts += [{"part": "transfer", "k": 0, "profile": name} for name in OTHERS]
        return [job | {"seed": seed, "scale": scale} for seed in range(seeds) for job in parts]

    def run(self, job: Job) -> list[Row]:
        kind = {"table": _table, "alone": _alone, "curve": _curve, "trim": _trim, "transfer": _transfer}[job["part"]]

        def scaled(count: int) -> int:
            return max(int(count * job["scale"] / 100), LEAST)

        return kind(job, scaled)

    def report(self, rows: list[Row], out: Path) -> Report:
        return latency_report.report(rows, out)


def _drawn(machine: Hardware, size: int, count: int, seed: int) -> Samples:
    sets = random_sets(machine, size, count, seed)
    return Samples(machine, sets, *simulated(machine, sets, seed))


def _seed(job: Job, number: int) -> int:
    """Of samples; no two parts of the experiment share any."""
    seed: int = job["seed"]
    return 1000 * seed + number


def _table(job: Job, scaled: Callable[[int], int]) -> list[Row]:
    """Table I: the models of the paper with its numbers of samples, and 500 more sets to test with."""
    k = job["k"]
    test, validation = (_drawn(PAPER, k, scaled(count), _seed(job, n)) for n, count in ((1, TEST), (2, VALIDATION)))
    train = _drawn(PAPER, k, scaled(ALONE if k == 1 else TRAIN), _seed(job, 0))
    if k == 1:
        share, model = 0.6, Poly4().fit(train, seed=job["seed"])
        part, rest = train.split(share, job["seed"])
        answers = [(each, model.p90_ms(each.sets)) for each in (part, rest, validation, test)]
    else:
        part, rest = train.split(0.95, job["seed"])
        network = Network.learned(part, layers(k), Mlp().rounds, job["seed"])
        answers = [(each, np.exp(network.answer(features(each.sets)))) for each in (part, rest, validation, test)]
    found = dict(zip(("training", "held out", "validation", "test"), answers, strict=True))
    rows: list[Row] = [
        {"model": "paper", "on": name, "topics": len(each.p90_ms)} | _accuracy(each, predicted)
        for name, (each, predicted) in found.items()
    ]
    if k in latency_figure_2.SHOWN:
        name, panel = latency_figure_2.SHOWN[k]
        rows += latency_figure_2.points_of(panel, *found[name])
    return rows


def _alone(job: Job, scaled: Callable[[int], int]) -> list[Row]:
    """Figure 2a: the polynomial beyond the highest rates."""
    return latency_figure_2.alone(scaled(ALONE), _seed(job, 40))


def _accuracy(samples: Samples, predicted: Floats) -> Row:
    values = Accuracy.of(samples.p90_ms, predicted).as_json()
    return {name: values[name] for name in ("r2", "error", "error_of_nine", "wrong", "missed")}


def _curve(job: Job, scaled: Callable[[int], int]) -> list[Row]:
    """Figure 2e and 2f: training and validation error by the number of sets."""
    k = job["k"]
    train, test = (_drawn(PAPER, k, scaled(count), _seed(job, n)) for n, count in ((10, TRAIN), (11, TEST)))
    rows = []
    for count in CURVE:
        part = train.take(np.arange(min(scaled(count), len(train))))
        network = Network.learned(part, layers(k), Mlp().rounds, job["seed"])
        for name, each in (("training", part), ("validation", test)):
            accuracy = _accuracy(each, np.exp(network.answer(features(each.sets))))
            rows.append({"model": "paper", "on": name, "sets": count} | accuracy)
    return rows


def _trim(job: Job, scaled: Callable[[int], int]) -> list[Row]:
    """One model for every size, on random sets and on sets that an optimiser chooses with it."""
    random = simulated_samples(PAPER, MOST, scaled(TRAIN), _seed(job, 20))
    chosen = packed_sets(Queueing(PAPER), MOST, scaled(PACKED), _seed(job, 21))
    packed = Samples(PAPER, chosen, *simulated(PAPER, chosen, _seed(job, 21)))
    model = Trim().fit(Samples.joined([random, packed]), seed=job["seed"])
    few = random.take(np.arange(0, len(random), max(len(random) // 300, 1)))
    smaller = Trim().fit(few, seed=job["seed"])
    rows = []
    for k in range(1, MOST + 1):
        test, steady_ms, ceiling = _repeated(k, scaled(TEST), _seed(job, 22))
        for name, each in (("trim", model), ("trim, 300 sets", smaller)):
            steady = {"steady_r2": Accuracy.of(steady_ms, each.p90_ms(test.sets)).r2, "ceiling": ceiling}
            rows.append({"model": name, "on": "test", "topics_on_broker": k} | _evaluated(each, test) | steady)
    for kind in KINDS:
        requests = max(REQUESTS * job["scale"] // 100, 1)
        test = _chosen(model, kind, _seed(job, 23), requests)
        rows.append({"model": "trim", "on": f"optimiser, {kind}", "topics_on_broker": 0} | _evaluated(model, test))
        limited = _chosen(model, kind, _seed(job, 24), requests, margin_ms=100.0)
        rows.append({"model": "trim", "on": f"optimiser, {kind}, 100 ms margin", "topics_on_broker": 0}
                    | _evaluated(model, limited))  # fmt: skip
        with_growth = _chosen(model, kind, _seed(job, 25), requests, growth=GROWTH)
        rows.append({"model": "trim", "on": f"optimiser, {kind}, {GROWTH:.0%} margin on load", "topics_on_broker": 0}
                    | _evaluated(model, with_growth))  # fmt: skip
    return rows


def _repeated(k: int, count: int, seed: int) -> tuple[Samples, Floats, float]:
    """Random sets, each run five times: the samples of the first run, (M,) the geometric mean of p90 over all runs, and
    the R2 that the mean of the other runs reaches on the first one. No model can know more than that mean."""
    test = _drawn(PAPER, k, count, seed)
    others = [simulated(PAPER, test.sets, 1_000_000 * run + seed)[0] for run in range(1, RUNS)]
    logs = np.log(np.stack([test.p90_ms, *others]))
    return test, np.exp(logs.mean(axis=0)), Accuracy.of(test.p90_ms, np.exp(logs[1:].mean(axis=0))).r2


def _evaluated(model: LatencyModel, samples: Samples) -> Row:
    values = Evaluation.of(model, samples).as_json()
    names = ("topics", "r2", "error", "error_of_nine", "wrong", "missed", "covered", "above")
    return {name: values[name] for name in names}


def _chosen(
    model: TrimModel, kind: str, seed: int, requests: int, margin_ms: float = 0.0, growth: float = 0.0
) -> Samples:  # fmt: skip
    """Sets of requests that First Fit Decreasing places with this model, each simulated once."""
    parts = []
    for request in range(requests):
        workload = Colocation(kind=kind, topics=TOPICS).make(seed * REQUESTS + request)
        policy = Ffd(k=MOST, margin_ms=margin_ms, growth=growth, model=model)
        broker = policy.place(Problem(workload, "topic")).broker
        assert workload.topics.processing_ms is not None
        groups = [np.flatnonzero(broker == each) for each in np.unique(broker[broker >= 0])]
        sets = Sets.of(groups, workload.topics.rate, workload.topics.processing_ms)
        parts.append(Samples(PAPER, sets, *simulated(PAPER, sets, seed * REQUESTS + request)))
    return Samples.joined(parts)


def _transfer(job: Job, scaled: Callable[[int], int]) -> list[Row]:
    """Other hardware: ``trim`` from 50 sets with the paper's hardware as its prior, the networks from 1,500."""
    machine = hardware(job["profile"])
    train = simulated_samples(machine, MOST, max(scaled(MANY) // MOST, 30), _seed(job, 30))
    test = simulated_samples(machine, MOST, max(scaled(TEST) // MOST, 20), _seed(job, 31))
    order = np.random.default_rng(_seed(job, 32)).permutation(len(train))
    few = train.take(np.sort(order[:FEW]))
    models: dict[str, LatencyModel] = {
        f"trim, {FEW} sets": Trim(prior=PAPER).fit(few, seed=job["seed"]),
        f"networks, {MANY} sets": Mlp().fit(train, seed=job["seed"]),
        "trim of the paper's hardware": TrimModel(Queueing(PAPER), None, MOST),
    }
    return [{"model": name, "on": "test"} | _evaluated(model, test) for name, model in models.items()]
