"""Khare et al. (SEC'18), Figure 3: the heuristics for k-topic co-location, and trimtab's policies beside them.

The paper's oracle, a neural network for each number of topics on a broker, is trained on 1,000 simulated configurations
for each number, as in VI-B. The judge simulates every broker of every placement.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from trimtab.lab.answer import ask
from trimtab.lab.experiment import Bar, Job, Report, Row, grouped, markdown_table, mean, select
from trimtab.lab.experiments import colocation_claims
from trimtab.lab.worlds.colocation import KINDS, Colocation
from trimtab.model.hardware import PAPER
from trimtab.model.problem import Problem
from trimtab.predict.configurations import simulated_samples
from trimtab.predict.registry import predictor

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.lab.answer import Answer
    from trimtab.predict.model import LatencyModel

K: Final = 6
K_PRIME: Final = 3
SIZES: Final = tuple(range(10, 101, 10))
SAMPLES: Final = 1000  # configurations for each number of topics (VI-B)
ILP_UP_TO: Final = 50  # topics
SEED: Final = 1  # of the training configurations and of the networks
POLICIES: Final = (  # policy, oracle
    ("topic/ffd", "mlp"), ("topic/lfs-ffd", "mlp"), ("topic/lfs", "mlp"), ("topic/ffd", "queueing"),
    ("topic/lfs-ffd", "queueing"), ("topic/lfs", "queueing"),
    ("topic/trim", "queueing"), ("topic/ilp", "queueing"),
)  # fmt: skip
PAPER_SAYS: Final = "up to 13 % of topics and 9 % of messages are out of bound (VI-C)"


class Figure3:
    title = "Co-location of topics (Khare Figure 3)"
    seeds = 5
    timed = True

    def jobs(self, seeds: int, most: int = SIZES[-1], samples: int = SAMPLES) -> list[Job]:
        return [
            {"kind": kind, "topics": topics, "seed": seed, "samples": samples}
            for kind in KINDS for topics in SIZES if topics <= most for seed in range(seeds)
        ]  # fmt: skip

    def run(self, job: Job) -> list[Row]:
        problem = Problem(Colocation(job["kind"], job["topics"]).make(job["seed"]), "topic")
        rows = []
        for name, oracle in POLICIES:
            if name == "topic/ilp" and job["topics"] > ILP_UP_TO:
                continue
            model = paper_model(job["samples"]) if oracle == "mlp" else None
            answer = ask(name, problem, k=K, k_prime=K_PRIME, model=model)
            rows.append({"policy": name, "oracle": oracle, **figures(answer)})
        return rows

    def report(self, rows: list[Row], out: Path) -> Report:
        _draw(rows, out)
        largest = max(row["topics"] for row in rows)
        text = (
            "Requests of three kinds: rates up to what a broker sustains (`u`), up to 6 messages/s below that (`u5`), "
            "and one half each from the top and the bottom five of that range (`skew`). k = 6, bound 1 s, hybrid with "
            f"k' = 3. In the paper, {PAPER_SAYS}; its requests are called random, and its code draws `u5` or `skew`. "
            "Means over requests; placements are judged by simulation.\n\n"
            + "\n\n".join(f"![Figure 3, {kind}](figure-3-{kind}.png)" for kind in KINDS)
            + f"\n\n{largest} topics (the integer program: up to {ILP_UP_TO}):\n\n"
            + _table(rows)
            + "\n\nLFS ends a search for sets of one size after 400,000 tests, and searches smaller sets from then on. "
            "No answer is limited by the clock.\n\n"
            "What the paper says of Figure 3, and what was found here, by kind of request and oracle (at each n, the "
            "mean over requests):\n\n" + colocation_claims.figure_3(rows)
        )
        return Report(text, _bars(rows), {"brokers": _means(rows)})


@lru_cache(maxsize=2)
def paper_model(samples: int) -> LatencyModel:
    """The paper's neural networks, trained on this many simulated configurations for each number of topics."""
    training = simulated_samples(PAPER, K, samples, SEED)
    with threadpool_limits(1):  # matrices are small, and threads would wait for each other
        return predictor("mlp").fit(training, seed=SEED)


def figures(answer: Answer) -> Row:
    """The six dimensions of Figure 3, and the bound."""
    judgement, latency = answer.judgement, answer.judgement.latency
    assert latency is not None
    return {
        "brokers": judgement.brokers_used,
        "seconds": answer.seconds,
        "cpu_s": answer.cpu_s,
        "cpu": float(latency.cpu[latency.cpu > 0.0].mean()),
        "p90_ms": float(np.nanmean(latency.p90_ms)),
        "messages_out": latency.messages_out_of_bound,
        "topics_out": latency.topics_out_of_bound / len(latency.topics),
        "unplaced": judgement.unplaced,
        "bound": answer.bound.value,
        "optimal": answer.proven_optimal,
    }


def label(row: Row) -> str:
    name = row["policy"].split("/")[-1]
    return f"{name}, {row['oracle']}"


def _table(rows: list[Row]) -> str:
    lines = []
    for kind in KINDS:
        for policy, part in grouped(select(rows, kind=kind), label).items():
            topics = max(row["topics"] for row in part)
            last = select(part, topics=topics)
            lines.append((
                f"{kind}, {topics}: {policy}", f"{mean(last, 'brokers'):.1f}", f"{1e3 * mean(last, 'seconds'):,.1f}",
                f"{1e3 * mean(last, 'cpu_s'):,.1f}",
                f"{100 * mean(last, 'cpu'):.0f}", f"{mean(last, 'p90_ms'):,.0f}",
                f"{100 * mean(last, 'messages_out'):.2f}", f"{100 * mean(last, 'topics_out'):.2f}",
                f"{mean(last, 'bound'):.1f}",
            ))  # fmt: skip
    columns = ["request, topics, policy", "brokers", "ms", "CPU ms", "CPU %", "mean p90 ms", "messages out %",
               "topics out %", "lower bound"]  # fmt: skip
    return markdown_table(columns, lines)


def _means(rows: list[Row]) -> dict[str, Any]:
    return {
        f"{kind} {topics} {policy}": mean(part, "brokers")
        for (kind, topics, policy), part in grouped(rows, lambda r: (r["kind"], r["topics"], label(r))).items()
    }


def _bars(rows: list[Row]) -> tuple[Bar, ...]:
    trim = select(rows, policy="topic/trim")
    bars = [
        Bar.at_most(f"topics out of bound under trim, {kind}, %", 100 * mean(trim, "topics_out", kind=kind), 1.0)
        for kind in KINDS
    ]
    paper = select(rows, policy="topic/ffd", oracle="mlp")
    bars += [
        Bar.at_most(f"brokers of trim over those of the paper's FFD, {kind}",
                    mean(trim, "brokers", kind=kind) / mean(paper, "brokers", kind=kind), 1.0)
        for kind in ("u5", "skew")
    ]  # fmt: skip
    hundred = select(trim, kind="u5", topics=100)
    if hundred:
        bars.append(Bar.at_most("brokers of trim, u5, 100 topics", mean(hundred, "brokers"), 17.4))
        bars.append(Bar.at_most("seconds of trim, u5, 100 topics, mean", mean(hundred, "seconds"), 1.0))
    fifty = select(rows, policy="topic/ilp", kind="u", topics=50)
    if fifty:
        bars.append(Bar.at_least("share of u, 50 topics, that ilp proves optimal", mean(fifty, "optimal"), 1.0))
        bars.append(Bar.at_most("seconds of ilp, u, 50 topics, slowest", max(r["seconds"] for r in fifty), 10.0))
    return tuple(bars)


PANELS: Final = (
    ("brokers", 1.0, "a: brokers used"), ("cpu_s", 1.0, "b: CPU time to place, s"), ("cpu", 100.0, "c: CPU in use, %"),
    ("p90_ms", 1.0, "d: mean p90 latency, ms"), ("messages_out", 100.0, "e: messages out of bound, %"),
    ("topics_out", 100.0, "f: topics out of bound, %"),
)  # fmt: skip
PRINTED: Final = {"messages_out": 9.0, "topics_out": 13.0}  # most in the paper


def draw_panels(rows: list[Row], across: str, printed: dict[str, float], path: Path, names: dict[str, str]) -> None:
    """Six panels as in the paper: a line for each policy over the column ``across``."""
    from trimtab.lab import plots

    sheet, panels = plots.figure(2, 3, width=4.0, height=2.8)
    for panel, (column, times, title) in zip(panels.flat, PANELS, strict=True):
        for policy, part in grouped(rows, label).items():
            at = sorted({row[across] for row in part})
            values = [times * mean(part, column, **{across: each}) for each in at]
            look = {"linestyle": "--", "markerfacecolor": "white"} if policy.endswith("mlp") else {}
            plots.line(panel, at, values, part[0]["policy"], label=names.get(policy, policy), **look)
        if column in printed:
            panel.axhline(printed[column], color="black", linewidth=0.8, linestyle=":")
            panel.annotate("most in the paper", (0.01, printed[column]), xycoords=("axes fraction", "data"),
                           textcoords="offset points", xytext=(0, 2), fontsize=7)  # fmt: skip
        if column == "cpu_s":
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=0.0)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel(across if across != "k_prime" else "k'")
    panels.flat[0].legend(fontsize=7)
    plots.save(sheet, path)


def _draw(rows: list[Row], out: Path) -> None:
    for kind in KINDS:
        draw_panels(select(rows, kind=kind), "topics", PRINTED, out / f"figure-3-{kind}.png", {})
