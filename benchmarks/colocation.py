"""Co-location of topics: feasibility tests per second, brokers and topics out of bound of every policy, and proofs.

Requests are those of ``trimtab world colocation``. The paper's oracle is trained on 1,000 simulated configurations for
each number of topics. Placements are judged by simulation, three pooled runs for each broker. The limits of ``trim``
and ``ilp`` were chosen on requests with seeds from 100 on; the seeds here are others.

Times are CPU seconds, since other work on the machine changes these little.

``TRIMTAB_SEEDS`` sets the number of requests of each kind and size.
"""

from __future__ import annotations

import os
import time

import numpy as np

from trimtab.cli.output import number, print_table
from trimtab.lab.answer import Answer, ask
from trimtab.lab.experiments.colocation import SAMPLES, paper_model
from trimtab.lab.worlds.colocation import Colocation
from trimtab.model.problem import Problem
from trimtab.place.judge import judge
from trimtab.place.topic.instance import Instance
from trimtab.place.topic.strain import Strain
from trimtab.predict.queueing import Queueing
from trimtab.predict.sets import Sets

SEEDS = int(os.environ.get("TRIMTAB_SEEDS", "5"))
TESTS = 200_000
GROWTHS = (0.0, 0.01, 0.02, 0.04)
TRIALS = tuple(  # kind, topics, seed, limit of use
    (kind, topics, seed, use)
    for kind, topics, seed in (("skew", 1000, 100), ("skew", 1000, 101), ("u", 300, 100), ("u5", 1000, 100))
    for use in (0.96, 0.98)
)
LIMIT_S = 100.0  # of one answer
PAPER, OURS, EXACT = ("topic/ffd", "mlp"), ("topic/trim", "queueing"), ("topic/ilp", "queueing")
CASES = (  # kind, topics, requests, policies
    ("u5", 100, SEEDS, (PAPER, OURS)),
    ("skew", 100, SEEDS, (PAPER, OURS)),
    ("u", 100, SEEDS, (PAPER, OURS, EXACT)),
    ("u", 50, SEEDS, (PAPER, OURS, EXACT)),
    ("skew", 1000, min(SEEDS, 3), (PAPER, OURS)),
    ("u5", 1000, min(SEEDS, 3), (PAPER, OURS)),
    ("u", 1000, min(SEEDS, 3), (PAPER, OURS)),
    ("u5", 10_000, 1, (PAPER, OURS)),
)


def main() -> None:
    _tests()
    _margins()
    _policies()


def _tests() -> None:
    """Sets of six topics with rates up to what a broker sustains, as column generation and balancing test them."""
    rows = []
    for kind in ("u", "u5"):
        instance = Instance.of(Problem(Colocation(kind, topics=10_000).make(0), "topic"), 6, None)
        strain = Strain(instance, use=1.0, growth=0.02, coverage=0.8)
        members = np.random.default_rng(0).integers(0, len(instance.rate), (TESTS, 6))
        strain.of(members[:100], 0)
        rates = []
        for _ in range(5):
            start = time.process_time()
            feasible = strain.fit(members, 0)
            rates.append(TESTS / (time.process_time() - start))
        rows.append((f"{kind}, {100 * feasible.mean():.0f} % feasible", number(round(max(rates), -3)),
                     number(round(min(rates), -3))))  # fmt: skip
    print_table("feasibility tests per CPU second, sets of 6 topics, one core", ["sets", "best of 5", "slowest"], rows)


def _margins() -> None:
    """Brokers of plans with a margin on use only: which prediction tells those with topics out of bound."""
    signs: dict[str, list[np.ndarray]] = {f"use at {100 * growth:g} % more load": [] for growth in GROWTHS}
    out = []
    for kind, topics, seed, use in TRIALS:
        problem = Problem(Colocation(kind, topics).make(seed), "topic")
        placement = ask("topic/trim", problem, use=use, growth=0.0).placement
        latency = judge(problem, placement).latency
        assert latency is not None
        instance = Instance.of(problem, 6, None)
        rows = [np.flatnonzero(placement.broker == broker) for broker in np.unique(placement.broker)]
        late = latency.p90_ms > latency.bound_ms
        out += [bool(late[row].any()) for row in rows]
        for growth, sign in zip(GROWTHS, signs.values(), strict=True):
            sets = Sets.of(rows, (1.0 + growth) * instance.rate, instance.processing_ms)
            sign.append(sets.highest(Queueing(problem.hardware).use(sets)))
    bad = np.array(out)
    rows_of_signs = []
    for name, parts in signs.items():
        values = np.concatenate(parts)
        area = (values[bad][:, None] > values[~bad][None, :]).mean()
        level = np.quantile(values[bad], 0.1)
        rows_of_signs.append((name, f"{area:.3f}", f"{level:.3f}", f"{100 * (values[~bad] > level).mean():.1f}"))
    print_table(
        f"{len(bad):,} brokers planned with a limit on use only, {bad.sum()} of them with topics out of bound",
        ["sign", "area under its curve", "level that finds 90 %", "good brokers above it, %"], rows_of_signs,
    )  # fmt: skip


def _policies() -> None:
    rows = []
    for kind, topics, seeds, policies in CASES:
        problems = [Problem(Colocation(kind, topics).make(seed), "topic") for seed in range(seeds)]
        for name, oracle in policies:
            model = paper_model(SAMPLES) if oracle == "mlp" else None
            answers = [ask(name, problem, time_limit_s=LIMIT_S, model=model) for problem in problems]
            rows.append((f"{kind}, {topics:,}, {seeds}", f"{name.split('/')[1]}, {oracle}", *_cells(answers)))
    print_table(
        "k = 6, bound 1 s; means over seeds",
        ["request, topics, seeds", "policy", "brokers", "lower bound", "most above it", "topics out %", "worst %",
         "messages out %", "CPU s", "slowest"],
        rows, left=(0, 1),
    )  # fmt: skip


def _cells(answers: list[Answer]) -> tuple[str, ...]:
    latencies = [answer.judgement.latency for answer in answers]
    assert all(latency is not None for latency in latencies)
    out = [100.0 * each.topics_out_of_bound / len(each.topics) for each in latencies if each]
    messages = [100.0 * each.messages_out_of_bound for each in latencies if each]
    used = np.array([answer.judgement.brokers_used for answer in answers])
    bound = np.array([answer.bound.value for answer in answers])
    seconds = [answer.cpu_s for answer in answers]
    return (
        f"{used.mean():,.1f}", f"{bound.mean():,.1f}", f"{(used - bound).max():.0f}", f"{np.mean(out):.2f}",
        f"{max(out):.2f}", f"{np.mean(messages):.2f}", f"{np.mean(seconds):.2f}", f"{max(seconds):.2f}",
    )  # fmt: skip
