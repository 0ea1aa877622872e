"""Nguyen et al. (DEBS'19), 6.2: load balance from nearest homes, under changing rates, by thresholds and interests.

Figures 5 to 14 in three parts. *start*: every policy once, from nearest homes. *time*: rates rise and fall for half an
hour; every 30 s the policy may act. Clients join in the first 8 minutes. *interest*: the gain from sharing where
clients have common subscriptions, also with few moves allowed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.lab.experiment import Bar, Job, Report, Row, markdown_table, mean, select
from trimtab.lab.worlds.bad import Bad
from trimtab.lab.worlds.fluctuation import Fluctuation
from trimtab.model.placement import Placement
from trimtab.model.problem import Problem
from trimtab.model.workload import Links, Workload
from trimtab.place.judge import judge
from trimtab.place.registry import policy

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.model.judgement import Judgement
    from trimtab.model.placement import Bound

MINUTES: Final = 30
JOINED_S: Final = 480.0  # time by which all clients have subscribed
CHECK_S: Final = 30.0
MEMORY_S: Final = 300.0  # time constant of the moving averages of rates that trim uses
ALPHA: Final = 0.15
ALPHAS: Final = (0.15, 0.05, 0.01)
BETAS: Final = (0.0, 300_000.0, 780_000.0)  # KB/s
START: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "nearest": ("client/nearest", {}), "random": ("client/random", {}), "round-robin": ("client/round-robin", {}),
    **{f"ldm {a}": ("client/ldm", {"alpha": a}) for a in ALPHAS},
    **{f"sdm {a}": ("client/sdm", {"alpha": a}) for a in ALPHAS},
    "gsh": ("client/gsh", {}), "trim": ("client/trim", {}),
}  # fmt: skip
OVER_TIME: Final[dict[str, tuple[str, dict[str, Any]] | None]] = {
    "none": None, "ldm": ("client/ldm", {"alpha": ALPHA}), "sdm": ("client/sdm", {"alpha": ALPHA}),
    "ldm + gsh": ("client/multistage", {"alpha": ALPHA}), "trim": ("client/trim", {"tolerance": 0.002}),
}  # fmt: skip
INTEREST: Final = {
    "uniform": Bad(backend=20_000),
    "communities": Bad(backend=20_000, interest="communities"),
    "zipf": Bad(backend=20_000, interest="zipf"),
    "prototype": Bad(brokers=5, subscribers=400, backend=600, fewest=1, most=10),
}
BUDGETS: Final = (0.2, 0.4)


class BadSimulation:
    title = "BAD: load balancing, simulated (Nguyen et al., Figures 5 to 14)"
    seeds = 10
    timed = False

    def jobs(self, seeds: int) -> list[Job]:
        return [
            {"part": part, "case": case, "seed": seed}
            for part, cases in (
                ("start", ("all",)), ("time", tuple(OVER_TIME)), ("beta", tuple(f"{b:g}" for b in BETAS)),
                ("interest", tuple(INTEREST)),
            )
            for case in cases
            for seed in range(seeds)
        ]  # fmt: skip

    def run(self, job: Job) -> list[Row]:
        if job["part"] == "start":
            return _start(job["seed"])
        if job["part"] == "time":
            return _over_time(OVER_TIME[job["case"]], job["seed"])
        if job["part"] == "beta":
            return _over_time(("client/ldm", {"alpha": 0.05, "beta": float(job["case"])}), job["seed"])
        return _interest(INTEREST[job["case"]], job["seed"])

    def report(self, rows: list[Row], out: Path) -> Report:
        _draw(rows, out)
        start, time, interest = (select(rows, part=part) for part in ("start", "time", "interest"))
        trim = select(start, who="trim")
        after_join = [row for row in select(time, case="trim") if row["time_s"] >= JOINED_S]
        by_seed = {row["seed"]: row["moved"] for row in after_join}
        crowd = select(interest, case="communities")
        budget = {(row["who"], row["seed"]): row for row in crowd}
        seeds = sorted({row["seed"] for row in crowd})

        def below(who: str) -> list[float]:
            return [1.0 - budget[who, s]["max"] / budget["gsh", s]["max"] for s in seeds]

        def gain_share(who: str) -> list[float]:
            return [part / full for part, full in zip(below(who), below("trim"), strict=True)]

        possible = [
            below("gsh 0.2")[row] / (1.0 - budget["gsh 0.2", s]["bound"] / budget["gsh", s]["max"])
            for row, s in enumerate(seeds)
        ]
        bars = (
            Bar.at_most("start: trim's maximum / GSH's, worst seed", max(r["to_gsh"] for r in trim), 1.001),
            Bar.at_most(
                "start: trim's moves / the provable least, worst", max(r["moves"] / r["least"] for r in trim), 1.05
            ),
            Bar.at_most("time: trim's mean max/mean after each action", mean(after_join, "to_mean"), 1.01),
            Bar.at_most("time: trim's moves, most", max(by_seed.values()), 1_800),
            Bar.at_least("communities: trim below GSH, worst seed", min(below("trim")), 0.25),
            Bar.at_most("communities: spread, worst seed", max(budget["trim", s]["cov"] for s in seeds), 0.005),
            Bar.at_least("from GSH, 20 % moved: below GSH, worst seed", min(below("gsh 0.2")), 0.07),
            Bar.at_least("from GSH, 20 % moved: share of what is provably possible, worst", min(possible), 0.75),
            Bar.at_least(
                "from GSH, 40 % moved: share of the whole gain, mean", float(np.mean(gain_share("gsh 0.4"))), 0.5
            ),
            Bar.at_least("from nearest, 20 % moved: below GSH, worst seed", min(below("nearest 0.2")), 0.04),
        )
        lines = [
            (
                who, f"{mean(start, 'max', who=who) / 1000:,.1f}", f"{mean(start, 'to_gsh', who=who):.4f}",
                f"{mean(start, 'cov', who=who):.5f}", f"{mean(start, 'moves', who=who):,.0f}",
                f"{mean(start, 'least', who=who):,.0f}",
            )
            for who in START
        ]  # fmt: skip
        over = [
            (
                case, f"{mean(joined, 'to_mean'):.4f}", f"{max(r['to_mean'] for r in joined):.4f}",
                f"{_moves_in_all(joined):,.0f}",
            )
            for case in OVER_TIME
            for joined in [[r for r in select(time, case=case) if r["time_s"] >= JOINED_S]]
        ]  # fmt: skip
        sensitive = [
            (
                f"{float(case) / 1000:,.0f}", f"{mean(joined, 'to_mean'):.4f}",
                f"{_moves_in_all(joined):,.0f}",
            )
            for case in (f"{b:g}" for b in BETAS)
            for joined in [[r for r in select(rows, part="beta", case=case) if r["time_s"] >= JOINED_S]]
        ]  # fmt: skip
        wants = [
            (
                case, who, f"{mean(part, 'max', who=who) / 1000:,.1f}",
                f"{100 * (1 - mean(part, 'max', who=who) / mean(part, 'max', who='gsh')):.2f} %",
                f"{mean(part, 'cov', who=who):.4f}", f"{mean(part, 'moves', who=who):,.0f}",
            )
            for case in INTEREST
            for part in [select(interest, case=case)]
            for who in dict.fromkeys(r["who"] for r in part)
        ]  # fmt: skip
        text = (
            "From nearest homes: maximum load in MB/s, its ratio to the greedy shuffle's, spread of the loads, moves, "
            "and the least number of moves to any placement with that maximum.\n\n"
            + markdown_table(["policy", "maximum", "/ GSH", "spread", "moves", "at least"], lines)
            + "\n\nOver 30 minutes of changing rates, from the 8th on: maximum / mean load just after each check, and "
            "the total number of moves.\n\n![load over time](time.png)\n\n"
            + markdown_table(["policy", "max/mean, on average", "highest", "moves"], over)
            + "\n\nThe same for LDM with alpha 0.05, by the mean load below which it does not act (beta, MB/s).\n\n"
            + markdown_table(["beta", "max/mean, on average", "moves"], sensitive)
            + "\n\nWhere people have common interests: the greedy shuffle, trim from scratch, and trim with a limited "
            "share of clients to move.\n\n![interest](interest.png)\n\n"
            + markdown_table(["interest", "policy", "maximum", "below GSH", "spread", "moves"], wants)
        )
        return Report(text, bars)


def _moves_in_all(rows: list[Row]) -> float:
    """Moves until the end, averaged over the seeds."""
    last = {row["seed"]: row["moved"] for row in rows}
    return float(np.mean(list(last.values())))


def _figures(judgement: Judgement, bound: Bound | None = None) -> Row:
    load, moves = judgement.load, judgement.moves
    return {
        "max": load.max, "cov": load.cov, "total": load.total,
        "moves": moves.units if moves else 0, "least": moves.least if moves else 0,
        "bound": bound.value if bound else 0.0,
    }  # fmt: skip


def _start(seed: int) -> list[Row]:
    workload = Bad().make(seed)
    problem = Problem(workload, "client", policy("client/nearest").place(Problem(workload, "client")))
    judgements = {who: judge(problem, policy(name, **knobs).place(problem)) for who, (name, knobs) in START.items()}
    highest = judgements["gsh"].load.max
    return [{"who": who, **_figures(row), "to_gsh": row.load.max / highest} for who, row in judgements.items()]


def _over_time(acts: tuple[str, dict[str, Any]] | None, seed: int) -> list[Row]:
    workload = Bad().make(seed)
    rng = np.random.default_rng((seed, 2))
    since = rng.uniform(0.0, JOINED_S, len(workload.clients))  # time at which each client subscribes
    rates = Fluctuation(len(workload.topics), MINUTES, seed)
    home = policy("client/nearest").place(Problem(workload, "client")).broker
    average = rates.at(0.0)
    rows: list[Row] = []
    for time_s in np.arange(CHECK_S, MINUTES * 60.0 + 1.0, CHECK_S):
        factor, joined = rates.at(float(time_s)), since <= time_s
        average += (factor - average) * -np.expm1(-CHECK_S / MEMORY_S)
        problem = Problem(_at(workload, factor, joined), "client", Placement("client", home))
        now = judge(problem, Placement("client", home))
        if acts is not None and time_s >= JOINED_S and now.load.cov > _trigger(acts):
            # A client that is heavy now may not be heavy later; trim uses average rates.
            planned = _at(workload, average, joined) if acts[0] == "client/trim" else problem.workload
            home = policy(acts[0], **acts[1]).place(Problem(planned, "client", Placement("client", home))).broker
            now = judge(problem, Placement("client", home))
        rows.append(
            {
                "time_s": float(time_s), "max": now.load.max, "to_mean": now.load.max / now.load.mean,
                "cov": now.load.cov, "moved": _moves_so_far(rows, now), "loads": now.load.per_broker.tolist(),
            }
        )  # fmt: skip
    return rows


def _trigger(acts: tuple[str, dict[str, Any]]) -> float:
    """The spread above which the policy acts."""
    return float(acts[1].get("alpha", ALPHA))


def _moves_so_far(rows: list[Row], now: Judgement) -> int:
    assert now.moves is not None
    return (rows[-1]["moved"] if rows else 0) + now.moves.units


def _at(workload: Workload, factor: Any, joined: Any) -> Workload:
    """The workload at one moment: its rates, and the subscriptions of the clients that have joined."""
    subscribed = joined[workload.links.client]
    links = Links.subscriptions(workload.links.topic[subscribed], workload.links.client[subscribed])
    return replace(workload, topics=replace(workload.topics, rate=workload.topics.rate * factor), links=links)


def _interest(world: Bad, seed: int) -> list[Row]:
    workload = world.make(seed)
    unplaced = Problem(workload, "client")
    shuffled, near = policy("client/gsh").place(unplaced), policy("client/nearest").place(unplaced)
    placed, trimmed = Problem(workload, "client", near), policy("client/trim", seed=seed).place(unplaced)
    rows = [
        {"who": "gsh", **_figures(judge(placed, shuffled))},
        {"who": "trim", **_figures(judge(placed, trimmed))},
    ]
    for name, start in (("gsh", shuffled), ("nearest", near)):
        problem = Problem(workload, "client", start)
        for budget in BUDGETS:
            placement = policy("client/trim", budget=budget, seed=seed).place(problem)
            rows.append({"who": f"{name} {budget}", **_figures(judge(problem, placement), placement.bound)})
    return rows


def _draw(rows: list[Row], out: Path) -> None:
    from trimtab.lab import plots

    first_seed = [row for row in select(rows, part="time") if row["seed"] == 0]
    sheet, panels = plots.figure(1, len(OVER_TIME), width=3.0, height=3.0)
    high = max((max(row["loads"]) for row in first_seed), default=1.0) / 1000
    for panel, case in zip(panels[0], OVER_TIME, strict=True):
        curve = select(first_seed, case=case)
        loads = [[load / 1000 for load in row["loads"]] for row in curve]
        panel.plot([row["time_s"] / 60 for row in curve], loads, linewidth=0.9)
        panel.set_title(case, fontsize=9)
        panel.set_ylim(0, 1.05 * high)
        panel.set_xlabel("minutes")
    panels[0][0].set_ylabel("load of each broker, MB/s")
    plots.save(sheet, out / "time.png")

    interest = select(rows, part="interest")
    sheet, panels = plots.figure(1, len(INTEREST), width=3.2, height=3.2)
    for panel, case in zip(panels[0], INTEREST, strict=True):
        bars = select(interest, case=case)
        policies = list(dict.fromkeys(row["who"] for row in bars))
        highest = [mean(bars, "max", who=name) for name in policies]
        colours = ["#30638e" if name == "gsh" else "#d1495b" for name in policies]
        panel.bar(range(len(policies)), [value / highest[0] for value in highest], color=colours)
        panel.set_xticks(range(len(policies)), policies, rotation=45, ha="right", fontsize=7)
        panel.set_title(case, fontsize=9)
        panel.set_ylim(0.6, 1.05)
    panels[0][0].set_ylabel("maximum load / GSH's")
    plots.save(sheet, out / "interest.png")
