"""Lambert & Sakellariou, Tables III and IV, beside the printed numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from trimtab.lab.answer import ask
from trimtab.lab.experiment import Bar, Job, Report, Row, markdown_table, mean, select
from trimtab.lab.worlds.maxdata import MaxData
from trimtab.model.problem import Problem

if TYPE_CHECKING:
    from pathlib import Path

# (|P|, |M|) -> data received in % as printed: ILP, GS, MKPBS
PRINTED: Final = {
    (100, 5): (44.11, 42.99, 43.78),
    (100, 10): (85.58, 83.69, 84.95),
    (100, 15): (100.0, 100.0, 100.0),
    (1000, 5): (34.30, 33.29, 34.04),
    (1000, 10): (60.56, 59.07, 60.50),
    (1000, 15): (85.56, 83.49, 85.50),
    (1000, 20): (100.0, 100.0, 100.0),
}
POLICIES: Final = ("link/gs-strict", "link/gs", "link/mkpbs", "link/trim")


class MaxDataTables:
    title = "MaxDataRcvd, Tables III and IV"
    seeds = 50
    timed = True

    def jobs(self, seeds: int) -> list[Job]:
        return [{"publishers": p, "machines": m, "seed": s} for p, m in PRINTED for s in range(seeds)]

    def run(self, job: Job) -> list[Row]:
        world = MaxData(publishers=job["publishers"], machines=job["machines"], bandwidth=500.0)
        problem = Problem(world.make(job["seed"]), "link")
        return [_row(ask(name, problem)) for name in POLICIES]

    def report(self, rows: list[Row], out: Path) -> Report:
        _draw(rows, out)
        lines, bars = [], []
        for (p, m), printed in PRINTED.items():
            cell = select(rows, publishers=p, machines=m)
            received = {name: 100 * mean(cell, "received_share", policy=name) for name in POLICIES}
            trim = select(cell, policy="link/trim")
            optimal = sum(r["proven_optimal"] for r in trim)
            best = 100 * mean(trim, "bound_share")
            ours = {"optimum": best, "GS-strict": received["link/gs-strict"], "MKPBS": received["link/mkpbs"]}
            lines.append(
                (
                    f"{p}, {m}",
                    *(f"{value:.2f} ({expected:.2f})" for value, expected in zip(ours.values(), printed, strict=True)),
                    f"{received['link/gs']:.2f}",
                    f"{received['link/trim']:.2f}",
                    f"{optimal} of {len(trim)}",
                )
            )
            for (who, value), expected in zip(ours.items(), printed, strict=True):
                bars.append(Bar.at_most(f"P={p}, M={m}: {who} from print, points", abs(value - expected), 0.25))
        trim = select(rows, policy="link/trim")
        bars.append(Bar.at_least("trim proven optimal, % of instances", 100 * mean(trim, "proven_optimal"), 95.0))
        bars.append(Bar.at_most("trim, longest answer in seconds", max(r["seconds"] for r in trim), 1.0))
        columns = [
            "P, M",
            "optimum (ILP printed)",
            "GS-strict (printed)",
            "MKPBS (printed)",
            "GS",
            "trim",
            "trim proven optimal",
        ]
        text = (
            "Data received in % of the data offered, mean over seeds; in brackets the paper's values. Homogeneous "
            "rates, bandwidth 500, 100 subscribers with 5 links each. The optimum is the mean of proven upper "
            "bounds, which `trim` reaches where it is proven optimal.\n\n"
            f"{markdown_table(columns, lines)}\n\n![received](tables.png)"
        )
        return Report(text, tuple(bars))


def _row(answer: Any) -> Row:
    offered = answer.judgement.offered
    return {
        "policy": answer.policy,
        "received_share": answer.judgement.received_share,
        "bound_share": answer.bound.value / offered,
        "proven_optimal": answer.proven_optimal,
        "violations": len(answer.judgement.violations),
        "seconds": answer.seconds,
    }


def _draw(rows: list[Row], out: Path) -> None:
    from trimtab.lab import plots

    sheet, panels = plots.figure(1, 2)
    for panel, publishers in zip(panels[0], (100, 1000), strict=True):
        machines = [m for p, m in PRINTED if p == publishers]
        cells = select(rows, publishers=publishers)
        for policy in POLICIES:
            y = [100 * mean(cells, "received_share", policy=policy, machines=m) for m in machines]
            plots.line(panel, machines, y, policy)
        printed = [PRINTED[publishers, m][0] for m in machines]
        panel.plot(machines, printed, "k_", markersize=14, label="ILP, printed")
        panel.set_title(f"{publishers} publishers")
        panel.set_xlabel("machines")
        panel.set_ylabel("data received, %")
        panel.set_xticks(machines)
    panels[0, 0].legend()
    plots.save(sheet, out / "tables.png")
