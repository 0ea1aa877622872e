"""Placements by predicted latency, run on real brokers: predicted and measured p90 side by side.

First a profile is measured: co-locations of a low-discrepancy design, to which the queueing model is fitted. Then
policies place the paper's requests (Khare et al., SEC'18, VI-C) with this model. Every broker of these placements is
run as a real broker, one after the other: co-locations that the model was not fitted on, chosen by an optimiser that
looks for what the model allows.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.fleet import tasks
from trimtab.lab.experiment import Bar, Job, Report, Row, markdown_table, select
from trimtab.lab.profile.bench import open_bench
from trimtab.lab.profile.design import Colocation, Design, Run
from trimtab.lab.profile.measure import DISTURBED, Journal, Machine, idle
from trimtab.lab.profile.results import LEAST_MESSAGES, Noise, extra_ms, known, noise_of, samples_of, sets_of, usable
from trimtab.lab.profile.trial import Trial, run_trial
from trimtab.lab.worlds.colocation import Colocation as Request
from trimtab.model.problem import Problem
from trimtab.place.registry import POLICIES, policy_class
from trimtab.predict.accuracy import Accuracy, coverage
from trimtab.predict.fit import Fit, fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.model.workload import Floats
    from trimtab.predict.queueing import Queueing

FIT_RUNS: Final = 40
SECONDS: Final = 12
PART: Final = 2  # runs of one fleet, and of one job: what is lost when the experiment is stopped
TOPICS: Final = 24  # of a request
KINDS: Final = ("u", "u5", "skew")
BOUNDS_MS: Final = (500.0, 300.0, 200.0)
PLACED_BY: Final = ("topic/ffd", "topic/lfs-ffd", "topic/trim")
K: Final = 6
FREE: Final = 0.1  # share of the cores that placements leave for other work: a margin
REPEATED: Final = 6  # every so many co-locations is run twice
ATTEMPTS: Final = 3  # at a run that other work on the machine disturbs
LEAST, MEDIAN, OF_NINE = 40, 0.12, 0.30


class ColocationLive:
    title = "Co-locations on real brokers: predicted and measured latency"
    seeds = 9  # requests
    timed = True

    def jobs(
        self, seeds: int, profile: str = "", seconds: int = SECONDS, tolerate: float = DISTURBED
    ) -> list[Job]:  # fmt: skip
        """``profile``: folder of ``trimtab profile`` whose runs the model is fitted on, instead of new ones.
        ``tolerate``: cores of other work with which a run still counts."""
        shared = {"requests": seeds, "seconds": seconds, "tolerate": tolerate}
        if profile:
            return [{"phase": "fit", "profile": profile} | shared]
        plan = _plan()
        starts = range(0, len(plan), PART)
        return [{"phase": "fit", "sets": _written(plan[start : start + PART])} | shared for start in starts]

    def further(self, rows: list[Row]) -> list[Job]:
        """The co-locations of the placements, by the model that the rows so far determine."""
        fitted, extra = _fitted(rows), _extra_ms(rows)
        plan: list[tuple[Run, dict[str, Any]]] = []
        for number in range(rows[0]["requests"]):
            chosen, about = _placed(number, fitted.model, extra)
            for colocation in chosen:
                plan.append((Run(colocation, 1_000_000 + 10 * len(plan)), about))
        again = [(Run(run.colocation, run.seed + 1, repeats=True), about) for run, about in plan[::REPEATED]]
        shared = {name: rows[0][name] for name in ("requests", "seconds", "tolerate")}
        jobs: list[Job] = []
        for (_, repeats), about in {(json.dumps(about), run.repeats): about for run, about in [*plan, *again]}.items():
            runs = [run for run, of in [*plan, *again] if of == about and run.repeats == repeats]
            for start in range(0, len(runs), PART):
                jobs.append({"phase": "test", "sets": _written(runs[start : start + PART])} | about | shared)
        return jobs

    def run(self, job: Job) -> list[Row]:
        if "profile" in job:
            return _rows(_measured(Path(job["profile"])), job["tolerate"])
        runs = [
            Run(Colocation.from_json(values), values["seed"], values["repeats"]) for values in json.loads(job["sets"])
        ]
        return _rows(tasks.run(_run(runs, float(job["seconds"]), job["tolerate"])), job["tolerate"])

    def report(self, rows: list[Row], out: Path) -> Report:
        fitted, tests = _fitted(rows), _trials(select(rows, phase="test"))
        noise = noise_of([*_trials(select(rows, phase="fit")), *tests])
        if not tests:
            raise BadInput(
                "other work on the machine has disturbed every run: choose another --out, on a quiet machine"
            )
        model, sets = fitted.model, sets_of(tests, _extra_ms(rows))
        there = np.concatenate([known(trial) for trial in tests])
        expected = model.p90_ms(sets)
        measured = np.concatenate([trial.p90_ms for trial in tests]).astype(np.float64)[there]
        predicted, use = expected[there], model.use(sets)[there]
        accuracy = Accuracy.of(measured, predicted)
        inside = coverage(measured, *(limit[there] for limit in model.interval_ms(sets)))
        different = len({trial.colocation for trial in tests if any(known(trial))})
        broken = _broken(rows, tests, expected)
        _draw(measured, predicted, use, out)
        bars = (
            Bar.at_least("co-locations that the model was not fitted on", different, LEAST),
            Bar.at_most("error of predicted p90, median", accuracy.error, MEDIAN),
            Bar.at_most("error of predicted p90, nine of ten topics", accuracy.error_of_nine, OF_NINE),
        )
        disturbed = len({row["run"] for row in rows if row["disturbed"]})
        figures = {
            "colocations": different, "topics": accuracy.topics, "error": accuracy.error,
            "error_of_nine": accuracy.error_of_nine, "r2": accuracy.r2, "coverage_of_90": inside,
            "fitted_on": len(set(_trials(select(rows, phase="fit")))), "cross_validated": fitted.accuracy.as_json(),
            "noise": noise.as_json(), "disturbed": disturbed, "out_of_bound": broken,
            "hardware": model.hardware.as_json(),
        }  # fmt: skip
        return Report(_text(figures, noise, fitted, _by_use(measured, predicted, use)), bars, figures)


def _plan() -> list[Run]:
    return Design(FIT_RUNS, K, float(Machine.here().cores)).plan()


def _written(runs: list[Run]) -> str:
    return json.dumps([run.colocation.as_json() | {"seed": run.seed, "repeats": run.repeats} for run in runs])


def _extra_ms(rows: Sequence[Row]) -> float:
    return extra_ms([trial for trial in _trials(select(rows, phase="fit")) if usable(trial)])


def _placed(number: int, model: Queueing, extra: float) -> tuple[list[Colocation], dict[str, Any]]:
    """The co-locations of one request, and how it was placed. The model knows processing times as brokers report them,
    which are ``extra`` above those that processors are told to burn."""
    kind, bound = KINDS[number % len(KINDS)], BOUNDS_MS[number // len(KINDS) % len(BOUNDS_MS)]
    names = [name for name in PLACED_BY if name in POLICIES]
    name = names[number % len(names)]
    workload = Request(kind, TOPICS, bound).make(number)
    # The margin is on the cores, not on latency: a broker filled to its last core collapses when anything else runs.
    hardware = model.hardware
    cautious = model.with_hardware(background=min(hardware.background + FREE * hardware.cores, 0.9 * hardware.cores))
    topics = workload.topics
    assert topics.processing_ms is not None
    reported = replace(workload, topics=replace(topics, processing_ms=topics.processing_ms + extra))
    problem = Problem(reported, "topic", hardware=cautious.hardware)
    policy = policy_class(name)(k=K, model=cautious)
    broker = policy.place(problem).broker
    found = []
    for row in np.unique(broker[broker >= 0]).tolist():
        here = np.flatnonzero(broker == row)
        found.append(Colocation(tuple(topics.rate[here].astype(int).tolist()),
                                tuple(topics.processing_ms[here].tolist())))  # fmt: skip
    return found, {"request": number, "kind": kind, "policy": name, "bound_ms": bound}


async def _run(runs: list[Run], seconds: float, tolerated: float) -> list[Trial]:
    """On a fleet of their own. A run that other work on the machine has disturbed is tried again a few times."""
    trials = []
    async with open_bench() as bench:
        for number, run in enumerate(runs):
            for _ in range(ATTEMPTS):
                await idle(tolerated)
                trial = await run_trial(bench, number, run.colocation, run.seed, seconds)
                if not _disturbed(trial, tolerated):
                    break
            trials.append(trial)
    return trials


def _disturbed(trial: Trial, tolerated: float) -> bool:
    return trial.foreign_cores is not None and trial.foreign_cores > tolerated


def _measured(folder: Path) -> list[Trial]:
    journal = Journal(folder, Machine.here())
    if not journal.trials:
        raise BadInput(f"{folder} has no runs of trimtab profile: measure them, or leave --profile out")
    return journal.trials


def _rows(trials: list[Trial], tolerated: float) -> list[Row]:
    """A row for each topic; the trial is kept as JSON in the row of its first topic."""
    rows: list[Row] = []
    for trial in trials:
        name = f"{trial.seed} {json.dumps(trial.colocation.as_json())}"
        there = trial.colocation
        for topic, (rate, ms) in enumerate(zip(there.rate, there.processing_ms, strict=True)):
            rows.append({
                "run": name, "topic": topic, "rate": rate, "processing_ms": ms, "p50_ms": trial.p50_ms[topic],
                "p90_ms": trial.p90_ms[topic], "p99_ms": trial.p99_ms[topic], "messages": trial.messages[topic],
                "missing": trial.missing[topic], "cpu_ms": trial.cpu_ms[topic], "machine_cores": trial.machine_cores,
                "foreign_cores": trial.foreign_cores, "disturbed": _disturbed(trial, tolerated),
                "trial": json.dumps(trial.as_json()) if topic == 0 else "",
            })  # fmt: skip
    return rows


def _trials(rows: list[Row]) -> list[Trial]:
    """Runs that nothing has disturbed."""
    return [Trial.from_json(json.loads(row["trial"])) for row in rows if row["trial"] and not row["disturbed"]]


def _fitted(rows: list[Row]) -> Fit:
    return fit(samples_of(_trials(select(rows, phase="fit")), Machine.here()))


# The report.


def _broken(rows: list[Row], tests: list[Trial], predicted: Floats) -> dict[str, dict[str, float]]:
    """By request: brokers, topics, and the shares of topics above their bound, measured and predicted."""
    first = {row["run"]: row for row in rows if row["topic"] == 0}
    at, found = 0, dict[str, dict[str, float]]()
    for trial in tests:
        row = first[f"{trial.seed} {json.dumps(trial.colocation.as_json())}"]
        count = len(trial.colocation.rate)
        name = f"{row['kind']}, {row['bound_ms']:g} ms, {row['policy']}"
        if trial.seed % 10 == 0:  # each broker once
            sums = found.setdefault(name, {"brokers": 0, "topics": 0, "measured_out": 0, "predicted_out": 0})
            sums["brokers"] += 1
            sums["topics"] += count
            sums["measured_out"] += sum(p90 is None or p90 > row["bound_ms"] for p90 in trial.p90_ms)
            sums["predicted_out"] += int((predicted[at : at + count] > row["bound_ms"]).sum())
        at += count
    return found


def _by_use(measured: Floats, predicted: Floats, use: Floats) -> list[tuple[str, int, float, float]]:
    """Errors by the predicted share of time in which a topic's worker is busy."""
    error = np.abs(predicted / measured - 1.0)
    edges = (0.0, 0.3, 0.5, 0.7, 0.85, np.inf)
    rows = []
    for low, high in itertools.pairwise(edges):
        here = error[(use >= low) & (use < high)]
        if len(here):
            name = f"{low:g} to {high:g}" if np.isfinite(high) else f"above {low:g}"
            rows.append((name, len(here), float(np.median(here)), float(np.quantile(here, 0.9))))
    return rows


def _text(figures: dict[str, Any], noise: Noise, fitted: Fit, by_use: list[tuple[str, int, float, float]]) -> str:
    intro = (
        f"The queueing model was fitted to {figures['fitted_on']} runs of designed co-locations. With it, policies "
        f"placed requests of {TOPICS} topics (k = {K}), and each broker of these placements was run on a real broker: "
        f"{figures['colocations']} co-locations with {figures['topics']} measured topics. One machine runs the broker, "
        "the processors and the clients. Every publisher sends one message a second, at intervals that drift. Topics "
        f"with fewer than {LEAST_MESSAGES} messages in a run are not compared."
    )
    floor = (
        f"The same co-location measured twice: a perfect prediction would have a median error of {noise.median:.1%} "
        f"and {noise.of_nine:.1%} for nine of ten ({noise.topics} topics in repeated runs)."
        if noise.topics
        else "No run was repeated, so the noise of the machine is not known."
    )
    results = markdown_table(
        ["", "median error", "nine of ten within"],
        [
            ("placements, not fitted on", f"{figures['error']:.1%}", f"{figures['error_of_nine']:.1%}"),
            ("designed co-locations, cross-validated", f"{fitted.accuracy.error:.1%}",
             f"{fitted.accuracy.error_of_nine:.1%}"),
            ("a perfect prediction, by repeated runs", f"{noise.median:.1%}", f"{noise.of_nine:.1%}"),
        ],
    )  # fmt: skip
    use = markdown_table(
        ["worker busy, predicted", "topics", "median error", "nine of ten within"],
        [(name, count, f"{median:.1%}", f"{nine:.1%}") for name, count, median, nine in by_use],
    )
    placed = markdown_table(
        ["request", "brokers", "topics", "above bound, predicted", "above bound, measured"],
        [
            (name, *(f"{row[column]:g}" for column in ("brokers", "topics", "predicted_out", "measured_out")))
            for name, row in figures["out_of_bound"].items()
        ],
    )
    inside = f"{figures['coverage_of_90']:.1%} of measured p90s lie in the 90 % interval of their prediction."
    parts = [intro, "![predicted beside measured](colocation-live.png)", results, floor, inside, use, placed]
    if figures["disturbed"]:
        parts.append(f"{figures['disturbed']} runs are left out: other work on the machine disturbed them.")
    return "\n\n".join(parts)


def _draw(measured: Floats, predicted: Floats, use: Floats, out: Path) -> None:
    from trimtab.lab import plots
    from trimtab.lab.profile.files import compare

    sheet, panels = plots.figure(1, 2, width=4.4, height=3.6)
    left, right = panels[0]
    compare(left, measured, predicted)
    left.set_title("placements on real brokers", fontsize=9)
    right.plot(use, 100.0 * (predicted / measured - 1.0), ".", color="#30638e", markersize=4)
    right.axhline(0.0, color="black", linewidth=0.8)
    right.set_xlabel("share of time in which the worker is busy, predicted")
    right.set_ylabel("error of the predicted p90, %")
    plots.save(sheet, out / "colocation-live.png")
