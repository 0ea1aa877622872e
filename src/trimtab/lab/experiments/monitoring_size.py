"""Gupta et al. (SEC'21), Figure 6: the size of latency reports, by topics and by clients of a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.lab.embedding import Sites
from trimtab.lab.experiment import Bar, Report, grouped, markdown_table, mean, select
from trimtab.lab.worlds.mmog import Mmog, cities, to_brokers
from trimtab.model.centroids import Centroids
from trimtab.model.nearness import Nearness
from trimtab.model.network import Network
from trimtab.model.problem import ROUND_TRIP, Problem
from trimtab.observe.best_brokers import BestBrokers
from trimtab.observe.summary import best_brokers, centroid_summaries, client_coordinates, wire_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from msgspec import Struct

    from trimtab.lab.experiment import Job, Row

TOPICS: Final = (128, 512, 1024)  # of one broker
CLIENTS: Final = (4, 8, 16, 32, 64, 128)  # subscribers of a topic
SITES: Final = 20
PERIOD_S: Final = 5.0  # of reports
NAMES: Final = {
    "trim": "two best brokers (trim)",
    "centroid": "centroids (paper)",
    "all-pairs": "all clients (AllPairs)",
}


class Figure6:
    title = "Size of latency reports (Gupta Figure 6)"
    seeds = 3
    timed = False

    def jobs(self, seeds: int, most: int = TOPICS[-1]) -> list[Job]:
        return [
            {"topics": topics, "clients": clients, "seed": seed}
            for topics in TOPICS if topics <= most for clients in CLIENTS for seed in range(seeds)
        ]  # fmt: skip

    def run(self, job: Job) -> list[Row]:
        rng = np.random.default_rng((job["seed"], job["clients"]))
        between = cities(SITES, rng)[2]
        sites = Sites.embedded(between, to_brokers(between), "robust", 2 * SITES, job["seed"])
        world = Mmog(cities=SITES, clients=job["topics"], group=job["clients"])
        at = rng.integers(0, SITES, size=(job["topics"],))
        problem = Problem(world.workload(at, rng, sites.gateway.take(at), sites.broker, None), "topic", leg=ROUND_TRIP)
        nearness = Nearness.of(problem, Network.needed(problem.workload, "the size of reports"))
        load, home = problem.workload, np.zeros(problem.units, np.int32)
        assert load.clients.coordinate is not None
        reports: dict[str, Sequence[Struct]] = {
            "trim": best_brokers(nearness, home, load.brokers.ids),
            "centroid": centroid_summaries(Centroids.of(problem), nearness.at(home)),
            "all-pairs": client_coordinates(nearness, load.clients.coordinate),
        }
        names = list(load.topics.ids)
        return [{"summary": name, "bytes": wire_bytes(names, report)} for name, report in reports.items()]

    def report(self, rows: list[Row], out: Path) -> Report:
        _draw(rows, out)
        most = max(row["topics"] for row in rows)
        lines = [
            (NAMES[name], *(f"{mean(part, 'bytes', topics=most, clients=clients) / most:,.0f}" for clients in CLIENTS))
            for name, part in grouped(rows, lambda row: row["summary"]).items()
        ]
        text = (
            f"One broker reports its topics every {PERIOD_S:g} s, as JSON, with the names of topics. Coordinates have "
            f"eight dimensions and a height. {SITES} brokers. The exact summary has "
            f"{len(BestBrokers.__struct_fields__)} values: the state of a topic at its broker, the number of brokers "
            "that keep its bound, and the two best brokers by all of its clients.\n\n"
            "![Figure 6](figure-6.png)\n\n"
            f"Bytes of a topic, by subscribers, {most:,} topics:\n\n"
            + markdown_table(["report", *(str(clients) for clients in CLIENTS)], lines)
        )
        return Report(text, _bars(rows), {"bytes": {f"{row['summary']} {row['topics']} {row['clients']}": row["bytes"]
                                                    for row in rows}})  # fmt: skip


def _bars(rows: list[Row]) -> tuple[Bar, ...]:
    most = max(row["topics"] for row in rows)
    here = select(rows, topics=most)
    bars = [
        Bar.at_most(f"bytes of {name} with {CLIENTS[-1]} subscribers over those with {CLIENTS[0]}",
                    mean(here, "bytes", summary=name, clients=CLIENTS[-1])
                    / mean(here, "bytes", summary=name, clients=CLIENTS[0]), 1.05)
        for name in ("trim", "centroid")
    ]  # fmt: skip
    ours, paper = (mean(here, "bytes", summary=name) for name in ("trim", "centroid"))
    bars.append(Bar.at_most("values of a topic's summary", len(BestBrokers.__struct_fields__), 8))
    bars.append(Bar.at_most("bytes of trim's summary over those of the paper's", ours / paper, 1.0))
    return tuple(bars)


def _draw(rows: list[Row], out: Path) -> None:
    from trimtab.lab import plots

    sizes = sorted({row["topics"] for row in rows})
    sheet, panels = plots.figure(1, len(sizes), width=3.6, height=3.0)
    for panel, topics in zip(panels[0], sizes, strict=True):
        for name, label in NAMES.items():
            rates = [mean(rows, "bytes", summary=name, topics=topics, clients=clients) / PERIOD_S / 1000.0
                     for clients in CLIENTS]  # fmt: skip
            plots.line(panel, CLIENTS, rates, name, label=label)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xlabel("subscribers of a topic")
        panel.set_title(f"{topics:,} topics", fontsize=9)
    panels[0][0].set_ylabel("reports, kB/s")
    panels[0][0].legend(fontsize=7)
    plots.save(sheet, out / "figure-6.png")
