"""Tanaka et al. (RELOC), Section 7.2: Figures 14 to 16, and the distance of each policy from the optimum."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.lab.answer import ask
from trimtab.lab.experiment import Bar, Job, Report, Row, markdown_table, mean, select
from trimtab.lab.worlds.reloc import RelocField
from trimtab.model.ids import Ids
from trimtab.model.problem import Problem
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.place.client.anneal import best_delay
from trimtab.place.client.delays import Field

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trimtab.model.judgement import Delay

SIGMAS: Final = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0)
PER_MEMBER: Final = (1.0, 2.0, 3.0, 4.0)
CLUSTERS: Final = (1, 2, 4, 8, 16)
PAPERS: Final = ("random", "nearest", "otos", "reloc")
POLICIES: Final = (*PAPERS, "otos-centroid", "trim")
PANELS: Final = {
    "delay_ms": "delay Y, ms", "near_ms": "Y1, ms", "far_ms": "Y2, ms", "storage": "storage in use, most",
    "compute": "compute in use, most", "km": "distance to home, km",
}  # fmt: skip


def _row(delay: Delay, seconds: float, field: Field) -> Row:
    return {
        "delay_ms": delay.mean_ms, "near_ms": delay.near_ms, "far_ms": delay.far_ms, "kept": float(delay.kept.min()),
        "storage": float(delay.storage.max()), "compute": float(delay.compute.max()),
        "km": delay.near_ms / 2.0 / 0.1, "seconds": seconds, "clients": field.clients,
    }  # fmt: skip


def _answer(problem: Problem, name: str, seed: int, **knobs: Any) -> Row:
    defaults = {"objective": "delay"} if name == "trim" else {}
    answer = ask(f"client/{name}", problem, seed=seed, **(defaults | knobs))
    assert answer.judgement.delay is not None
    return _row(answer.judgement.delay, answer.seconds, Field.of(problem))


class Locality:
    """Figure 14."""

    title = "RELOC: delay by locality (Tanaka et al., Figure 14)"
    seeds = 5
    timed = True

    def jobs(self, seeds: int) -> list[Job]:
        return [{"sigma": sigma, "seed": seed} for sigma in SIGMAS for seed in range(seeds)]

    def run(self, job: Job) -> list[Row]:
        problem = Problem(RelocField(sigma=job["sigma"]).make(job["seed"]), "client")
        return [{"policy": name, **_answer(problem, name, job["seed"])} for name in POLICIES]

    def report(self, rows: list[Row], out: Path) -> Report:
        _draw(rows, "sigma", SIGMAS, "policy", POLICIES, out / "locality.png", "sigma, km")
        bars = []
        for sigma in SIGMAS:
            cells = select(rows, sigma=sigma)
            least = {name: mean(cells, "delay_ms", policy=name) for name in POLICIES}
            if sigma >= 5.0:
                best_other = min(least[name] for name in PAPERS if name != "reloc")
                bars.append(
                    Bar.at_most(
                        f"sigma {sigma:g}: RELOC / the best other of the paper's", least["reloc"] / best_other, 1.0
                    )
                )
            limit = 0.84 if sigma == 20.0 else 0.80
            bars.append(Bar.at_most(f"sigma {sigma:g}: trim / RELOC", least["trim"] / least["reloc"], limit))
        best = [
            _of(rows, job, "trim") / min(_of(rows, job, name) for name in POLICIES)
            for job in {(row["sigma"], row["seed"]) for row in rows}
        ]
        bars.append(Bar.at_most("trim / the best of all, worst cell", max(best), 1.0))
        bars.append(
            Bar.at_most("seconds of trim, most", max(row["seconds"] for row in select(rows, policy="trim")), 1.0)
        )
        return Report(_table(rows, "sigma", SIGMAS, "policy", POLICIES, "locality.png"), tuple(bars))


def _of(rows: list[Row], job: tuple[float, int], name: str) -> float:
    return mean(rows, "delay_ms", sigma=job[0], seed=job[1], policy=name)


class Spool:
    """Figure 15."""

    title = "RELOC: delay by the size of spoolers (Tanaka et al., Figure 15)"
    seeds = 5
    timed = False

    def jobs(self, seeds: int) -> list[Job]:
        return [{"per_member": p, "seed": seed} for p in PER_MEMBER for seed in range(seeds)]

    def run(self, job: Job) -> list[Row]:
        problem = Problem(RelocField(sigma=5.0, per_member=job["per_member"]).make(job["seed"]), "client")
        return [{"policy": name, **_answer(problem, name, job["seed"])} for name in POLICIES]

    def report(self, rows: list[Row], out: Path) -> Report:
        _draw(rows, "per_member", PER_MEMBER, "policy", POLICIES, out / "spool.png", "messages kept for each member")
        bars = []
        for p in PER_MEMBER:
            cells = select(rows, per_member=p)
            best_other = min(mean(cells, "delay_ms", policy=name) for name in POLICIES if name != "trim")
            ratio = mean(cells, "delay_ms", policy="trim") / best_other
            bars.append(Bar.at_most(f"p {p:g}: trim / the best other", ratio, 1.0))
        return Report(_table(rows, "per_member", PER_MEMBER, "policy", POLICIES, "spool.png"), tuple(bars))


class ClusterNumber:
    """Figure 16."""

    title = "RELOC: delay by the number of clusters (Tanaka et al., Figure 16)"
    seeds = 5
    timed = False

    def jobs(self, seeds: int) -> list[Job]:
        return [{"sigma": sigma, "seed": seed} for sigma in SIGMAS for seed in range(seeds)]

    def run(self, job: Job) -> list[Row]:
        problem = Problem(RelocField(sigma=job["sigma"]).make(job["seed"]), "client")
        return [{"clusters": k, **_answer(problem, "reloc", job["seed"], clusters=k)} for k in CLUSTERS]

    def report(self, rows: list[Row], out: Path) -> Report:
        _draw(rows, "clusters", CLUSTERS, "sigma", SIGMAS, out / "clusters.png", "clusters K")
        lines = [
            (f"{sigma:g}", *(f"{mean(rows, 'delay_ms', sigma=sigma, clusters=k):.2f}" for k in CLUSTERS))
            for sigma in SIGMAS
        ]
        text = "Delay Y of RELOC, ms.\n\n![clusters](clusters.png)\n\n" + markdown_table(
            ["sigma, km", *(f"K = {k}" for k in CLUSTERS)], lines
        )
        one, four = (mean(rows, "delay_ms", sigma=1.0, clusters=k) for k in (1, 4))
        return Report(text, (Bar.at_most("sigma 1: Y with K = 4 / with K = 1", four / one, 1.0),))


class Optimum:
    """Heuristics against the true optimum, on cases small enough to try all placements; not in the paper."""

    title = "RELOC: distance from the optimum (Tanaka et al., Section 8)"
    seeds = 12
    timed = False

    def jobs(self, seeds: int) -> list[Job]:
        rooms = (("tight", 16.0, 48.0), ("medium", 24.0, 80.0))
        return [{"room": name, "storage": a, "compute": b, "seed": s} for name, a, b in rooms for s in range(seeds)]

    def run(self, job: Job) -> list[Row]:
        problem = Problem(_tiny(job["storage"], job["compute"], job["seed"]), "client")
        field = Field.of(problem)
        least = best_delay(
            field.begin, field.topic, field.publishes, field.spreads, field.subscribes, field.needs, field.near,
            field.home_ms, field.server_ms, field.spool, field.rate, field.storage, field.compute, field.cloud_ms,
        )  # fmt: skip
        rows = []
        for name in POLICIES:
            knobs = {"clusters": 2} if name == "reloc" else {}  # with four clusters, each would have one server only
            delay_ms = _answer(problem, name, job["seed"], **knobs)["delay_ms"]
            rows.append({"policy": name, "above": delay_ms / least - 1.0})
        return rows

    def report(self, rows: list[Row], out: Path) -> Report:
        lines = [
            (
                name,
                *(
                    f"{100 * mean(rows, 'above', policy=name, room=room):.2f} % "
                    f"({100 * max(r['above'] for r in select(rows, policy=name, room=room)):.1f} %)"
                    for room in ("tight", "medium")
                ),
            )
            for name in POLICIES
        ]
        text = "Delay above the least delay of all placements, mean (and worst).\n\n" + markdown_table(
            ["policy", "tight room", "medium room"], lines
        )
        ours = [row["above"] for row in select(rows, policy="trim")]
        return Report(text, (Bar.at_most("trim above the optimum, mean", float(np.mean(ours)), 0.02),))


def _tiny(storage: float, compute: float, seed: int, clients: int = 10, topics: int = 5, members: int = 4) -> Workload:
    """A workload of four servers, ten clients, and five topics with four members each."""
    rng = np.random.default_rng(seed)
    chosen = np.concatenate([rng.choice(clients, members, replace=False) for _ in range(topics)])
    place = rng.uniform(0.0, 25.0, (clients, 2))
    x_km, y_km = np.array(list(product((6.25, 18.75), repeat=2))).T
    both = np.tile(np.array([PUB, SUB], np.int8), topics * members)
    return Workload(
        Topics(Ids.numbered("t", topics), np.full(topics, float(members)), spool=np.full(topics, 2.0 * members)),
        Clients(Ids.numbered("c", clients), x_km=place[:, 0], y_km=place[:, 1]),
        Brokers(
            Ids.numbered("s", 4), storage=np.full(4, storage), compute=np.full(4, compute), x_km=x_km, y_km=y_km
        ),
        Links(np.repeat(np.arange(topics), 2 * members), np.repeat(chosen, 2), both),
    )  # fmt: skip


def _draw(
    rows: list[Row], x: str, values: Sequence[float], by: str, lines: Sequence[Any], path: Path, label: str
) -> None:  # fmt: skip
    from trimtab.lab import plots

    sheet, panels = plots.figure(2, 3, width=3.4, height=2.8)
    for panel, (column, title) in zip(panels.flat, PANELS.items(), strict=True):
        for line in lines:
            y = [mean(rows, column, **{x: value, by: line}) for value in values]
            if by == "policy":
                plots.line(panel, values, y, str(line))
            else:
                panel.plot(values, y, marker=".", label=f"{by} {line:g}")
        panel.set_title(title, fontsize=9)
        panel.set_xlabel(label)
    shown, names = panels.flat[0].get_legend_handles_labels()
    sheet.legend(shown, names, loc="upper center", bbox_to_anchor=(0.5, 0.0), ncols=len(names), fontsize=8)
    plots.save(sheet, path)


def _table(
    rows: list[Row], x: str, values: Sequence[float], by: str, lines: Sequence[str], picture: str
) -> str:  # fmt: skip
    def cell(value: float, line: str) -> str:
        total, near, far = (mean(rows, name, **{x: value, by: line}) for name in ("delay_ms", "near_ms", "far_ms"))
        return f"{total:.2f} ({near:.2f} + {far:.2f})"

    cells = [(f"{value:g}", *(cell(value, line) for line in lines)) for value in values]
    return f"Delay Y (Y1 + Y2), ms, mean over seeds.\n\n![figure]({picture})\n\n" + markdown_table([x, *lines], cells)
