"""Stability of load balancers: cases on which balancers are known to oscillate, in virtual time.

Trimtab runs the controller's own code; Pulsar's three shedders are the baselines. The figures of every case are the
moves, the time after an event until loads are as level as possible, and the moves long after the last event.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.lab.experiment import Bar, Job, Report, Row, markdown_table, mean, select
from trimtab.lab.stability import shedders
from trimtab.lab.stability.cases import CASES, find
from trimtab.lab.stability.fleet import run as play
from trimtab.lab.stability.ours import Ours
from trimtab.model.judgement import Load
from trimtab.observe.snapshot import Snapshot
from trimtab.place.registry import policy

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.lab.stability.case import Case
    from trimtab.lab.stability.fleet import Balancer, Trace

OURS: Final = "trimtab"
BALANCERS: Final = (OURS, "threshold", "uniform", "average")
SOON: Final = 12  # periods after an event within which moves are expected
THRASH: Final = 0.1  # moves without an event, as a share of the clients, above which a balancer thrashes
QUICKLY: Final = 3  # periods within which loads should be level again
RESTLESS: Final = 0.02  # moves without an event, as a share of the clients, above which a balancer is not at rest
SLOW_ON_PURPOSE: Final = ("turns", "drift", "flapping")  # cases whose changes a controller must not follow
EVERY: Final = 5  # seconds between points of a curve


class Stability:
    title = "Stability: cases on which balancers oscillate, in virtual time"
    seeds = 3
    timed = False

    def jobs(self, seeds: int) -> list[Job]:
        return [{"case": case, "seed": seed} for case in CASES for seed in range(seeds)]

    def run(self, job: Job) -> list[Row]:
        case = find(job["case"])(job["seed"])
        rows = []
        for who in BALANCERS:
            balancer = Ours(case) if who == OURS else shedders.NAMED[who](case, job["seed"])
            rows.append(job | {"who": who} | figures(case, balancer, play(case, balancer, job["seed"])))
        return rows

    def report(self, rows: list[Row], out: Path) -> Report:
        _draw(rows, out)
        ours = select(rows, who=OURS)
        seeds = len({row["seed"] for row in rows})
        thrashing = [
            (row, next(r for r in ours if (r["case"], r["seed"]) == (row["case"], row["seed"])))
            for row in rows
            if row["who"] != OURS and row["restless"] > THRASH * row["clients"]
        ]
        share = [own["moves"] / row["moves"] for row, own in thrashing]
        still = [row for row in ours if row["case"] not in SLOW_ON_PURPOSE]
        restless = [row for row in ours if row["restless"] > RESTLESS * row["clients"]]
        bars = (
            Bar.at_most(f"runs of ours with more than {RESTLESS:.0%} of the clients moved at rest", len(restless), 0),
            Bar.at_most("periods until level, worst case", max(row["settled"] for row in still), QUICKLY),
            Bar.at_most("ours / a shedder's moves where it thrashes, worst", max(share, default=0.0), 0.1),
            Bar.at_most("seconds a client is without a broker, worst", max(r["homeless_s"] for r in ours), 3),
            Bar.at_most(
                "clients that ours moved back to an earlier broker without an event",
                sum(row["returned"] for row in ours if row["calm"]), 0,
            ),
            Bar.at_most("cores or messages in use at the end / allowed, worst", max(row["full"] for row in ours), 1),
            Bar.at_least("cases", len({row["case"] for row in rows}), 15),
        )  # fmt: skip
        lines = []
        for case in CASES:
            cells: list[str] = [case]
            for who in BALANCERS:
                runs = select(rows, case=case, who=who)
                mark = "!" if any(r["restless"] > THRASH * r["clients"] for r in runs) else ""
                cells.append(f"{mean(runs, 'moves'):.0f}{mark} ({mean(runs, 'spread'):.2f})")
            settled = max(row["settled"] for row in select(ours, case=case))
            rest, back = (sum(r[name] for r in select(ours, case=case)) for name in ("restless", "returned"))
            cells += [f"{settled:.0f}", f"{rest:.0f}", f"{back:.0f}"]
            lines.append(cells)
        text = "\n\n".join([
            f"{len(CASES)} cases, {seeds} seeds. Moves, in brackets the mean spread of loads over the whole run; ! "
            f"where more than {THRASH:.0%} of the clients move long after the last event. Periods are the "
            "controller's, of 5 s; Pulsar's shedders act every minute, with all knobs at their defaults.",
            markdown_table(
                ["case", *BALANCERS, "ours: periods until level", "ours: moves at rest", "ours: moves back"], lines
            ),
            "The cases:",
            "\n".join(f"- **{name}**: {make(0).about}" for name, make in CASES.items()),
        ])  # fmt: skip
        return Report(text, bars, {"thrashing": len(thrashing)})


def figures(case: Case, balancer: Balancer, trace: Trace) -> Row:
    """The figures of a balancer on a case."""
    turns = case.turns()
    soon_s = case.lag_s + SOON * (balancer.period_s if balancer.name == OURS else shedders.INTERVAL_S)
    restless = sum(
        count for second, count in enumerate(trace.moves) if not any(t <= second <= t + soon_s for t in turns)
    )
    return {
        "clients": len(case.home), "moves": sum(trace.moves), "rehomed": trace.rehomed, "failed": trace.failed,
        "returned": trace.returned, "restless": restless, "homeless_s": trace.worst_homeless_s,
        "settled": _settled(case, balancer, trace), "spread": float(np.mean(trace.spread)),
        "spread_end": trace.spread[-1], "full": trace.fullest[-1], "calm": len(turns) == 1,
        "curve": [round(spread, 4) for spread in trace.spread[::EVERY]],
        "moved": np.cumsum(trace.moves)[::EVERY].tolist(),
    }  # fmt: skip


def _settled(case: Case, balancer: Balancer, trace: Trace) -> float:
    """Periods from an event until loads are as level as possible; the longest of all events."""
    turns, settings = [*case.turns(), case.seconds], case.settings
    worst = 0.0
    for begin, end in itertools.pairwise(turns):
        if _mean(case, begin) <= settings.beta:
            continue
        level = max(settings.alpha, 1.05 * _reachable(case, begin))
        settled = next((second for second in range(begin, end) if trace.spread[second] <= level), end)
        worst = max(worst, (settled - begin - case.lag_s) / balancer.period_s)
    return worst


def _mean(case: Case, second: int) -> float:
    rates = case.rates(min(second + 30, case.seconds - 1))
    return float(case.load(rates, case.home, np.ones(case.brokers, bool)).mean())


def _reachable(case: Case, second: int) -> float:
    """The spread of the best possible placement, with no clients at brokers that refuse them."""
    alive = np.ones(case.brokers, bool)
    for event in sorted(case.events, key=lambda event: event.at):
        if event.at <= second:
            alive[event.broker] = event.action != "dies"
        elif event.action == "joins":
            alive[event.broker] = False
    alive_now = alive.copy()
    alive_now[list(case.refuses)] = False
    living = replace(
        case, brokers=int(alive_now.sum()), home=np.zeros_like(case.home),
        bandwidth=None if case.bandwidth is None else case.bandwidth[alive_now],
    )  # fmt: skip
    rates = case.rates(min(second + 30, case.seconds - 1))
    view = living.view(Snapshot(0.0, living.workload(rates)), living.home, np.ones(living.brokers, bool))
    best = view.load(policy("client/trim").place(replace(view.problem, current=None)).broker)
    load = np.zeros(case.brokers)
    load[alive_now] = best.per_broker
    speed = np.ones(case.brokers) if case.bandwidth is None else case.bandwidth / case.bandwidth.mean()
    load += 0.0 if case.other_load is None else case.other_load
    return Load(load[alive], speed[alive]).cov


def _draw(rows: list[Row], out: Path) -> None:
    from trimtab.lab.plots import figure, save

    names = list(CASES)
    columns = 4
    drawing, axes = figure(-(-len(names) // columns), columns, width=3.0, height=1.9)
    colours: dict[str, Any] = {OURS: "#d1495b", "threshold": "#30638e", "uniform": "#2e8b57", "average": "#8d6b94"}
    for axis, name in zip(axes.flat, names, strict=False):
        for who in reversed(BALANCERS):
            runs = select(rows, case=name, who=who)
            if runs:
                curve = runs[0]["curve"]
                axis.plot(np.arange(len(curve)) * EVERY / 60, curve, color=colours[who], lw=1.2, label=who)
        axis.set_title(name, fontsize=8)
        axis.set_ylim(bottom=0.0)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    axes.flat[0].legend(fontsize=7)
    drawing.supxlabel("minutes")
    drawing.supylabel("spread of loads")
    save(drawing, out / "stability.png")
