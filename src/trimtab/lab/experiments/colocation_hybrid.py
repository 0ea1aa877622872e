"""Khare et al. (SEC'18), Figure 4: the hybrid heuristic by k', for requests with 50 topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trimtab.lab.answer import ask
from trimtab.lab.experiment import Bar, Job, Report, Row, markdown_table, mean, select
from trimtab.lab.experiments import colocation_claims
from trimtab.lab.experiments.colocation import SAMPLES, K, draw_panels, figures, paper_model
from trimtab.lab.worlds.colocation import KINDS, Colocation
from trimtab.model.problem import Problem

if TYPE_CHECKING:
    from pathlib import Path

TOPICS: Final = 50
PRINTED: Final = {"messages_out": 6.0, "topics_out": 12.0}  # most in the paper
NAMES: Final = {"lfs-ffd, mlp": "hybrid, mlp", "lfs-ffd, queueing": "hybrid, queueing"}


class Figure4:
    title = "The hybrid of LFS and FFD by k' (Khare Figure 4)"
    seeds = 5
    timed = True

    def jobs(self, seeds: int, most: int = TOPICS, samples: int = SAMPLES) -> list[Job]:
        return [
            {"kind": kind, "topics": min(most, TOPICS), "seed": seed, "samples": samples}
            for kind in KINDS for seed in range(seeds)
        ]  # fmt: skip

    def run(self, job: Job) -> list[Row]:
        problem = Problem(Colocation(job["kind"], job["topics"]).make(job["seed"]), "topic")
        rows = []
        for oracle, model in (("mlp", paper_model(job["samples"])), ("queueing", None)):
            for k_prime in range(1, K + 1):
                answer = ask("topic/lfs-ffd", problem, k=K, k_prime=k_prime, model=model)
                rows.append({"policy": "topic/lfs-ffd", "oracle": oracle, "k_prime": k_prime, **figures(answer)})
            ffd = ask("topic/ffd", problem, k=K, model=model)
            rows.append({"policy": "topic/ffd", "oracle": oracle, "k_prime": 0, **figures(ffd)})
        return rows

    def report(self, rows: list[Row], out: Path) -> Report:
        hybrid = select(rows, policy="topic/lfs-ffd")
        for kind in KINDS:
            draw_panels(select(hybrid, kind=kind), "k_prime", PRINTED, out / f"figure-4-{kind}.png", NAMES)
        lines = [
            (
                f"{kind}, {oracle}, k' = {k_prime}", f"{mean(part, 'brokers'):.1f}",
                f"{1e3 * mean(part, 'cpu_s'):,.1f}", f"{100 * mean(part, 'cpu'):.0f}", f"{mean(part, 'p90_ms'):,.0f}",
                f"{100 * mean(part, 'messages_out'):.2f}", f"{100 * mean(part, 'topics_out'):.2f}",
            )
            for kind in KINDS for oracle in ("mlp", "queueing") for k_prime in range(1, K + 1)
            for part in [select(hybrid, kind=kind, oracle=oracle, k_prime=k_prime)]
        ]  # fmt: skip
        columns = ["request, oracle, k'", "brokers", "CPU ms", "CPU %", "mean p90 ms", "messages out %", "topics out %"]
        text = (
            f"{rows[0]['topics']} topics, k = 6, bound 1 s. The paper says that higher k' gives fewer brokers, takes "
            "longer, and leaves up to 12 % of topics and 6 % of messages out of bound. Means over requests; placements "
            "are judged by simulation.\n\n"
            + "\n\n".join(f"![Figure 4, {kind}](figure-4-{kind}.png)" for kind in KINDS)
            + "\n\n" + markdown_table(columns, lines)
            + "\n\nWhat the paper says of Figure 4, and what was found here (k' from 1 to 6; means over requests):\n\n"
            + colocation_claims.figure_4(hybrid)
        )  # fmt: skip
        first, ffd = mean(hybrid, "brokers", k_prime=1), mean(select(rows, policy="topic/ffd"), "brokers")
        last = mean(hybrid, "brokers", k_prime=K)
        bars = (
            Bar.at_most("difference in brokers between k' = 1 and FFD", abs(first - ffd), 0.0),
            Bar.at_most(f"brokers with k' = {K}, over those with k' = 1", last / first, 1.02),
        )
        return Report(text, bars)
