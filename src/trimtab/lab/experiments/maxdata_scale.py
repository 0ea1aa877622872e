"""Lambert & Sakellariou, Section V-D: ten times larger instances than in Section V-A, and up to ten million links."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from trimtab.lab.answer import ask
from trimtab.lab.experiment import Bar, Job, Report, Row, grouped, markdown_table, mean, select
from trimtab.lab.worlds.maxdata import MaxData
from trimtab.model.problem import Problem

if TYPE_CHECKING:
    from pathlib import Path

SECTION_VD: Final[list[Job]] = [
    {"publishers": p, "subscribers": 1000, "edges": 50, "rates": r, "machines": m, "bandwidth": b}
    for p in (1000, 10_000)
    for b in (2000, 5000)
    for r in ("homogeneous", "low", "high")
    for m in range(50, 350, 50)
]
LARGER: Final[list[Job]] = [
    {"publishers": p, "subscribers": s, "edges": e, "rates": "high", "machines": m, "bandwidth": b}
    for p, s, e, m, b in (
        (10_000, 10_000, 50, 200, 20_000),
        (100_000, 10_000, 50, 200, 20_000),
        (100_000, 50_000, 100, 500, 60_000),
        (10_000, 100_000, 100, 500, 150_000),
        (1_000_000, 200_000, 50, 1000, 60_000),
    )
]
NAMES: Final = ("link/gs", "link/mkpbs", "link/trim")
MKPBS_UP_TO: Final = 1_000_000  # most links for MKPBS, since each of its passes costs topics x brokers
WORLD: Final = ("publishers", "subscribers", "edges", "rates", "machines", "bandwidth")


class MaxDataScale:
    title = "MaxDataRcvd at scale"
    seeds = 3
    timed = True

    def jobs(self, seeds: int) -> list[Job]:
        return [world | {"seed": s} for world in (*SECTION_VD, *LARGER) for s in range(seeds)]

    def run(self, job: Job) -> list[Row]:
        problem = _problem(tuple(job[name] for name in WORLD), job["seed"])
        links = len(problem.topic)
        names = [name for name in NAMES if name != "link/mkpbs" or links <= MKPBS_UP_TO]
        repeats = 5 if links <= 100_000 else 2
        rows = []
        for name in names:
            answers = [ask(name, problem) for _ in range(repeats if name != "link/mkpbs" else 1)]
            first = answers[0]
            rows.append(
                {
                    "links": links,
                    "policy": name,
                    "received": first.judgement.received,
                    "share": first.judgement.received_share,
                    "bound": first.bound.value,
                    "bound_kind": first.bound.kind,
                    "violations": len(first.judgement.violations),
                    "seconds": min(a.seconds for a in answers),
                }
            )
        return rows

    def report(self, rows: list[Row], out: Path) -> Report:
        for part in grouped(rows, lambda row: tuple(row[n] for n in (*WORLD, "seed"))).values():
            best = next(r["bound"] for r in part if r["policy"] == "link/trim")
            for row in part:
                row["of_bound"] = row["received"] / best
        lines = []
        for world, part in grouped(rows, lambda row: tuple(row[n] for n in WORLD)).items():
            lines.append(
                (
                    f"{world[0]:,}, {world[4]}, {world[5]:,}, {world[3]}",
                    f"{part[0]['links']:,}",
                    f"{100 * mean(part, 'share', policy='link/trim'):.2f}",
                    *(f"{100 * mean(part, 'of_bound', policy=name):.4f}" for name in NAMES),
                    select(part, policy="link/trim")[0]["bound_kind"],
                    *(f"{1e3 * mean(part, 'seconds', policy=name):,.2f}" for name in NAMES),
                )
            )
        _draw(rows, out)
        trim, gs = select(rows, policy="link/trim"), select(rows, policy="link/gs")
        key = (*WORLD, "seed")
        gs_value = {tuple(r[n] for n in key): r["received"] for r in gs}
        below = sum(r["received"] < gs_value[tuple(r[n] for n in key)] * (1 - 1e-12) for r in trim)
        most = max(r["links"] for r in rows)
        close = [r["of_bound"] >= 0.9998 for r in trim]
        bars = (
            Bar.at_least("trim, % of its bound, worst instance", 100 * min(r["of_bound"] for r in trim), 99.9),
            Bar.at_least("instances with trim at 99.98 % of its bound or more, %", 100 * sum(close) / len(close), 50.0),
            Bar.at_most("instances on which trim is below gs", below, 0),
            Bar.at_most("gs at 50,000 links, slowest, ms", 1e3 * _slowest(gs, 50_000), 1.0),
            Bar.at_most("trim at 50,000 links, slowest, ms", 1e3 * _slowest(trim, 50_000), 20.0),
            Bar.at_most(f"gs at {most:,} links, slowest, s", _slowest(gs, most), 1.5),
            Bar.at_most(f"trim at {most:,} links, slowest, s", _slowest(trim, most), 10.0),
        )
        columns = ["P, M, b, rates", "links", "trim received %", "gs % of bound", "mkpbs % of bound",
                   "trim % of bound", "bound", "gs ms", "mkpbs ms", "trim ms"]  # fmt: skip
        text = (
            "1,000 subscribers with 50 links each, and larger. % of the bound that `trim` proved; milliseconds for a "
            "whole answer (a broker per link) without compilation, best of some runs on one core; means over seeds.\n\n"
            "![Figures 10 to 13](figures-10-13.png)\n\n" + markdown_table(columns, lines)
        )
        return Report(text, bars)


@lru_cache(maxsize=1)  # ten million links are not drawn twice
def _problem(world: tuple[Any, ...], seed: int) -> Problem:
    return Problem(MaxData(**dict(zip(WORLD, world, strict=True))).make(seed), "link")


def _slowest(rows: list[Row], links: int) -> float:
    return max((r["seconds"] for r in rows if r["links"] == links), default=float("nan"))


def _draw(rows: list[Row], out: Path) -> None:
    from trimtab.lab import plots

    machines = sorted({r["machines"] for r in rows if r["links"] == 50_000})
    sheet, panels = plots.figure(2, 3)

    def curve(column: str, p: int, b: int, policy: str, rates: str = "homogeneous") -> list[float]:
        curve_rows = select(rows, links=50_000, publishers=p, bandwidth=b, rates=rates, policy=policy)
        return [mean(curve_rows, column, machines=m) for m in machines]

    received, below, *times = panels.flat[:5]
    for b, style in ((5000, "-"), (2000, "--")):
        for policy in NAMES:
            share = [100 * y for y in curve("share", 1000, b, policy)]
            label = policy.split("/")[-1] if b == 5000 else "_"
            plots.line(received, machines, share, policy, linestyle=style, label=label)
    received.set_title("Figure 10: 1000 publishers, 5000 (-), 2000 (--)", fontsize=9)
    received.set_ylabel("data received, %")
    for policy in NAMES:
        gap = [100 * (1 - y) for y in curve("of_bound", 1000, 2000, policy, "low")]
        plots.line(below, machines, gap, policy)
    below.set_title("below trim's bound: 1000 publishers, 2000, low", fontsize=9)
    below.set_ylabel("% of the bound missed")
    below.set_yscale("symlog", linthresh=0.01)
    below.set_ylim(bottom=0)
    spots = [("Figure 11", 1000, 5000), ("Figure 12", 10_000, 5000), ("Figure 13", 1000, 2000)]
    for panel, (title, p, b) in zip(times, spots, strict=True):
        for policy in NAMES:
            plots.line(panel, machines, [1e3 * y for y in curve("seconds", p, b, policy)], policy)
        panel.set_title(f"{title}: {p} publishers, bandwidth {b}", fontsize=9)
        panel.set_ylabel("milliseconds")
        panel.set_yscale("log")
    for panel in panels.flat[:5]:
        panel.set_xlabel("machines")
        panel.legend(fontsize=7)
    last = panels.flat[-1]
    for policy in NAMES:
        by_links = grouped(select(rows, policy=policy), lambda r: r["links"])
        sizes = sorted(by_links)
        plots.line(last, sizes, [max(r["seconds"] for r in by_links[n]) for n in sizes], policy)
    last.set_xscale("log")
    last.set_yscale("log")
    last.set_title("slowest answer by number of links", fontsize=9)
    last.set_xlabel("links")
    last.set_ylabel("seconds")
    plots.save(sheet, out / "figures-10-13.png")
