"""Lambert & Sakellariou, Section V-A and V-B: every link policy and every bound over the paper's whole grid."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final

from trimtab.lab.answer import ask, warm_up
from trimtab.lab.experiment import Bar, Job, Report, Row, grouped, markdown_table, mean, select
from trimtab.lab.worlds.maxdata import MaxData
from trimtab.model.problem import Problem
from trimtab.place.link import bounds
from trimtab.place.link.counts import Instance

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.model.placement import Bound

PUBLISHERS: Final = (100, 1000)
BANDWIDTHS: Final = (200, 500)
RATES: Final = ("homogeneous", "low", "high")
MACHINES: Final = tuple(range(5, 55, 5))
POLICIES: Final = ("link/gs-strict", "link/gs", "link/mkpbs", "link/trim")
BOUNDS: Final = ("paper", "merged-lp", "merged", "patterns")
ILP_SEEDS, ILP_SECONDS = 1, 5.0  # the integer program is shown on the first seed of every cell only
CELL: Final = ("publishers", "bandwidth", "rates", "machines")


class MaxDataGrid:
    title = "MaxDataRcvd, the whole grid"
    seeds = 20
    timed = False

    def jobs(self, seeds: int) -> list[Job]:
        return [
            {"publishers": p, "bandwidth": b, "rates": r, "machines": m, "seed": s}
            for p in PUBLISHERS
            for b in BANDWIDTHS
            for r in RATES
            for m in MACHINES
            for s in range(seeds)
        ]

    def run(self, job: Job) -> list[Row]:
        world = MaxData(
            publishers=job["publishers"],
            rates=job["rates"],
            machines=job["machines"],
            bandwidth=job["bandwidth"],
        )
        problem = Problem(world.make(job["seed"]), "link")
        answers = [ask(name, problem) for name in POLICIES]
        if job["seed"] < ILP_SEEDS:
            answers.append(ask("link/ilp", problem, time_limit_s=ILP_SECONDS))
        rows = [_row(a.policy, a.judgement.received, a.judgement.offered, a.seconds, a.proven_optimal) for a in answers]
        for answer in answers:
            if answer.policy in ("link/trim", "link/ilp"):
                rows.append(_row(f"bound/{answer.policy}", answer.bound.value, answer.judgement.offered, 0.0))
        instance = Instance.of(problem)
        warm_up("link/trim")
        for kind in BOUNDS:
            start = time.perf_counter()
            bound = _bound(kind, instance)
            rows.append(_row(f"bound/{kind}", bound.value, instance.offered, time.perf_counter() - start))
        return rows

    def report(self, rows: list[Row], out: Path) -> Report:
        cells = grouped(rows, lambda row: tuple(row[name] for name in CELL))
        lines = []
        worst = {"share": (math.inf, ()), "gap": (0.0, ())}
        below = 0
        for cell, members in cells.items():
            trim = select(members, who="link/trim")
            # Every instance is compared with the best bound that was proved for it.
            best = {
                seed: min(row["value"] for row in of_seed if row["who"].startswith("bound/"))
                for seed, of_seed in grouped(members, lambda row: row["seed"]).items()
            }
            share = {
                who: sum(r["value"] / best[r["seed"]] for r in part) / len(part)
                for who, part in grouped(members, lambda row: row["who"]).items()
            }
            best_value = {s: max(r["value"] for r in part if not r["who"].startswith("bound/")) for s, part in
                     grouped(members, lambda row: row["seed"]).items()}  # fmt: skip
            gap = max(best[s] / best_value[s] - 1.0 for s in best)
            mean_gap = sum(best[s] / best_value[s] - 1.0 for s in best) / len(best)
            rival = {(r["seed"], r["who"]): r["value"] for r in members}
            below += sum(
                rival[s, "link/trim"] < max(rival[s, "link/gs"], rival[s, "link/mkpbs"]) * (1 - 1e-12) for s in best
            )
            worst["share"] = min(worst["share"], (share["link/trim"], cell))
            worst["gap"] = max(worst["gap"], (mean_gap, cell))
            lines.append(
                (
                    ", ".join(str(c) for c in cell),
                    *(f"{100 * mean(members, 'share', who=who):.2f}" for who in POLICIES),
                    *(f"{100 * share[who]:.3f}" for who in ("link/gs", "link/mkpbs", "link/trim")),
                    f"{sum(r['proven'] for r in trim)} of {len(trim)}",
                    *(f"{100 * (share[f'bound/{kind}'] - 1):.3f}" for kind in BOUNDS),
                    f"{100 * gap:.3f}",
                    f"{1e3 * mean(trim, 'seconds'):.1f}",
                )
            )
        _draw(rows, out)
        bars = (
            Bar.at_least(
                f"trim, % of a proven bound, worst cell mean ({_label(worst['share'][1])})",
                100 * worst["share"][0],
                99.9,
            ),
            Bar.at_most("instances on which trim is below gs or mkpbs", below, 0),
            Bar.at_most(
                f"best bound above best solution, %, worst cell mean ({_label(worst['gap'][1])})",
                100 * worst["gap"][0],
                0.15,
            ),
        )
        trim, ilp = select(rows, who="link/trim"), select(rows, who="link/ilp")
        text = (
            f"{len(cells)} cells. Data received in % of the data offered; then in % of the best upper bound proved for "
            "the instance; then the distance of each bound above the best one, in %; then the distance of the best "
            "bound above the best solution, on the worst instance. "
            f"`trim` is proven optimal on {sum(r['proven'] for r in trim)} of "
            f"{len(trim)} instances and takes {1e3 * mean(trim, 'seconds'):.0f} ms on average. LowVariance is read as "
            f"8 to 12. The integer program had {ILP_SECONDS:g} s on the first seed of each cell and proved "
            f"{sum(r['proven'] for r in ilp)} of {len(ilp)} optimal.\n\n"
            "![Figures 2 to 6](figures-2-6.png)\n\n![share of the bound](share-of-bound.png)\n\n"
            + markdown_table(
                ["P, b, rates, M", *(f"{p.split('/')[1]} %" for p in POLICIES), "gs/bound", "mkpbs/bound", "trim/bound",
                 "proven", *(f"{k} +%" for k in BOUNDS), "worst gap %", "trim ms"],
                lines,
            )
        )  # fmt: skip
        return Report(text, bars)


def _label(cell: tuple[Any, ...]) -> str:
    return ", ".join(str(part) for part in cell)


def _row(who: str, value: float, offered: float, seconds: float, proven: bool = False) -> Row:
    return {"who": who, "value": value, "share": value / offered, "seconds": seconds, "proven": proven}


def _bound(kind: str, instance: Instance) -> Bound:
    if kind == "paper":
        return bounds.paper(instance)
    if kind == "merged-lp":
        return bounds.merged_lp(instance)
    if kind == "merged":
        return bounds.merged_exact(instance)
    return bounds.patterns(instance)


def _draw(rows: list[Row], out: Path) -> None:
    from trimtab.lab import plots

    styles = {"homogeneous": "-", "low": "--", "high": ":"}
    # (title, publishers, bandwidth, rates, policies), as the paper draws them, with trim and the bound added
    figures: list[tuple[str, int, int, tuple[str, ...], tuple[str, ...]]] = [
        ("Figure 2: 100 publishers, bandwidth 500", 100, 500, ("homogeneous",), POLICIES),
        ("Figure 3: 1000 publishers, bandwidth 500", 1000, 500, ("homogeneous",), POLICIES),
        ("Figure 4: rates equal (-), low (--), high (:)", 100, 500, RATES, ("link/gs", "link/mkpbs")),
        ("Figure 5: 1000 publishers, bandwidth 200", 1000, 200, ("homogeneous",), POLICIES),
        ("Figure 6: 100 publishers, bandwidth 200", 100, 200, ("homogeneous",), POLICIES),
    ]
    cells = grouped(rows, lambda row: (row["publishers"], row["bandwidth"], row["rates"], row["who"]))

    def curve(p: int, b: int, rates: str, who: str) -> list[float]:
        return [100 * mean(cells[p, b, rates, who], "share", machines=m) for m in MACHINES]

    sheet, panels = plots.figure(2, 3)
    for panel, (title, p, b, rates, policies) in zip(panels.flat, figures, strict=False):
        for dist in rates:
            for policy in policies:
                label = policy.split("/")[-1] if dist == rates[0] else "_"
                plots.line(panel, MACHINES, curve(p, b, dist, policy), policy, linestyle=styles[dist], label=label)
        if len(rates) == 1:
            panel.plot(MACHINES, curve(p, b, rates[0], "bound/paper"), "k:", linewidth=1, label="paper's bound")
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("machines")
        panel.set_ylabel("data received, %")
        panel.legend(fontsize=7)
    last = panels.flat[-1]
    for kind in BOUNDS[:-1]:
        above = [
            100 * (mean(cells[100, 200, "low", f"bound/{kind}"], "value", machines=m)
                   / mean(cells[100, 200, "low", "link/trim"], "value", machines=m) - 1)
            for m in MACHINES
        ]  # fmt: skip
        last.plot(MACHINES, above, marker=".", label=kind)
    last.plot(
        MACHINES,
        [100 * (mean(cells[100, 200, "low", "bound/link/trim"], "value", machines=m)
                / mean(cells[100, 200, "low", "link/trim"], "value", machines=m) - 1) for m in MACHINES],
        marker="o", color=plots.COLOURS["trim"], label="trim's",
    )  # fmt: skip
    last.set_yscale("symlog", linthresh=0.05)
    last.set_title("bounds above trim, %: 100 publishers, 200, low", fontsize=9)
    last.set_xlabel("machines")
    last.legend(fontsize=7)
    plots.save(sheet, out / "figures-2-6.png")

    sheet, panels = plots.figure(2, 2)
    for panel, (p, b) in zip(panels.flat, ((p, b) for b in BANDWIDTHS for p in PUBLISHERS), strict=True):
        for dist in RATES:
            for policy in POLICIES[1:]:
                bound = curve(p, b, dist, "bound/link/trim")
                share = [100 * y / u for y, u in zip(curve(p, b, dist, policy), bound, strict=True)]
                label = policy.split("/")[-1] if dist == RATES[0] else "_"
                plots.line(panel, MACHINES, share, policy, linestyle=styles[dist], label=label)
        panel.set_title(f"{p} publishers, bandwidth {b}; rates equal (-), low (--), high (:)", fontsize=8)
        panel.set_xlabel("machines")
        panel.set_ylabel("data received, % of trim's bound")
        panel.legend(fontsize=7)
    plots.save(sheet, out / "share-of-bound.png")
