"""Placements on real brokers: one real run; the rest on simulated ones, whose hardware is known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trimtab.errors import BadInput
from trimtab.lab import run as lab_run
from trimtab.lab.experiment import select
from trimtab.lab.experiments import colocation_live
from trimtab.lab.experiments.colocation_live import KINDS, TOPICS, ColocationLive
from trimtab.lab.profile.design import Design
from trimtab.lab.profile.measure import Journal, Machine
from trimtab.lab.profile.trial import Trial
from trimtab.model.hardware import Hardware
from trimtab.predict.simulator import Hosted, simulate

EXPERIMENT = ColocationLive()
CORES = Machine.here().cores
TRUE = Hardware(
    "true", cores=CORES, service=((0.0, 0.3), (1.0, 1.3)), contention=0.1, switching=0.02, message_cv=0.05,
    network_ms=3.0, jitter_ms=0.5, overhead_ms=0.3,
)  # fmt: skip


def simulated(run, seconds=60.0, slower=1.0, other=0.0) -> Trial:
    there, count = run.colocation, len(run.colocation.rate)
    hosted = Hosted.of(np.array(there.rate, float), np.array(there.processing_ms))
    p90 = tuple((slower * simulate(TRUE, hosted, seed=run.seed, duration_s=seconds).p90_ms).tolist())
    cpu = TRUE.service_ms(np.array(there.processing_ms))
    used = float((np.array(there.rate) * cpu).sum()) / 1000.0
    return Trial(
        0, there, run.seed, seconds, 1.0, p90, p90, p90, (100,) * count, (0,) * count, tuple(cpu.tolist()),
        min(used + 0.02, CORES) + other, 0.01, 0.01, 0.5,
    )  # fmt: skip


@pytest.fixture
def in_virtual_time(monkeypatch):
    """Runs are simulated; returns a dictionary of options of the simulation."""
    options = {}

    async def run(runs, seconds, tolerated):
        return [simulated(each, seconds, **options) for each in runs]

    monkeypatch.setattr(colocation_live, "_run", run)
    return options


def test_a_job_runs_on_a_real_broker(nats_server):
    (first, *_) = EXPERIMENT.jobs(1, seconds=1)
    sets = json.loads(first["sets"])[1:2]

    rows = EXPERIMENT.run(first | {"sets": json.dumps(sets), "tolerate": 99.0})

    assert [row["rate"] for row in rows] == sets[0]["rate"]
    assert all(row["p90_ms"] >= row["processing_ms"] and row["missing"] == 0 for row in rows)
    assert not any(row["disturbed"] for row in rows)
    assert [bool(row["trial"]) for row in rows] == [True] + [False] * (len(rows) - 1)


@pytest.mark.slow
def test_every_topic_of_a_request_is_run_once_beside_others(in_virtual_time):
    fit = [job | row for job in EXPERIMENT.jobs(3, seconds=60) for row in EXPERIMENT.run(job)]

    jobs = EXPERIMENT.further(fit)

    fitted_on = {row["run"].split(" ", 1)[1] for row in fit}
    for request in range(3):
        runs = [run for job in jobs if job["request"] == request for run in json.loads(job["sets"])]
        first = [run for run in runs if not run["repeats"]]
        assert sum(len(run["rate"]) for run in first) == TOPICS
        assert {job["kind"] for job in jobs if job["request"] == request} == {KINDS[request]}
        for run in first:
            assert json.dumps({name: run[name] for name in ("rate", "processing_ms")}) not in fitted_on
    seeds = [run["seed"] for job in jobs for run in json.loads(job["sets"])]
    assert len(seeds) == len(set(seeds))
    assert jobs == EXPERIMENT.further(fit)  # a run that is resumed finds its jobs again


@pytest.mark.slow
def test_the_experiment_goes_on_where_it_was_stopped_in_both_stages(in_virtual_time, tmp_path, monkeypatch):
    def stopped(name, jobs, workers, original=lab_run._finished, left=[4]):  # noqa: B006
        for each in original(name, jobs, workers):
            yield each
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt

    whole = lab_run.run("colocation-live", 2, tmp_path / "whole", 1, lambda *_: None, seconds=60)
    with monkeypatch.context() as patch:
        patch.setattr(lab_run, "_finished", stopped)
        with pytest.raises(KeyboardInterrupt):
            lab_run.run("colocation-live", 2, tmp_path / "parts", 1, lambda *_: None, seconds=60)
    parts = lab_run.run("colocation-live", 2, tmp_path / "parts", 1, lambda *_: None, seconds=60)

    assert parts.rows == whole.rows
    assert parts.figures == whole.figures
    assert whole.figures["topics"] >= 2 * TOPICS
    assert whole.figures["error"] < 0.15  # the model has the structure of the simulator
    assert whole.figures["noise"]["topics"] > 20
    text = (tmp_path / "whole" / "report.md").read_text()
    assert "a perfect prediction, by repeated runs" in text
    assert (tmp_path / "whole" / "colocation-live.png").stat().st_size > 10_000


@pytest.mark.slow
def test_brokers_that_are_slower_than_the_profile_miss_the_bars(in_virtual_time, tmp_path):
    """The experiment can fail."""
    fit = [job | row for job in EXPERIMENT.jobs(1, seconds=60) for row in EXPERIMENT.run(job)]
    jobs = EXPERIMENT.further(fit)
    in_virtual_time["slower"] = 1.5
    tests = [job | row for job in jobs for row in EXPERIMENT.run(job)]

    report = EXPERIMENT.report([*fit, *tests], tmp_path)

    assert [bar.met for bar in report.bars] == [False, False, False]
    assert report.figures["error"] > 0.25


@pytest.mark.slow
def test_disturbed_runs_are_left_out_and_counted(in_virtual_time, tmp_path):
    fit = [job | row for job in EXPERIMENT.jobs(1, seconds=60) for row in EXPERIMENT.run(job)]
    jobs = EXPERIMENT.further(fit)
    tests = [job | row for job in jobs[1:] for row in EXPERIMENT.run(job)]
    in_virtual_time["other"] = 0.5
    tests += [jobs[0] | row for row in EXPERIMENT.run(jobs[0])]

    report = EXPERIMENT.report([*fit, *tests], tmp_path)

    assert report.figures["disturbed"] == len(json.loads(jobs[0]["sets"]))
    assert len(select(tests, disturbed=True)) > 0
    assert "other work on the machine disturbed them" in report.text


@pytest.mark.slow
def test_a_model_may_be_fitted_on_the_runs_of_a_profile(tmp_path):
    journal = Journal(tmp_path, Machine.here())
    for run in Design(12, cores=float(CORES)).plan():
        journal.add(simulated(run))
    (job,) = EXPERIMENT.jobs(1, profile=str(tmp_path))

    rows = [job | row for row in EXPERIMENT.run(job)]

    assert len({row["run"] for row in rows}) == len(journal.trials)
    assert EXPERIMENT.further(rows)
    with pytest.raises(BadInput, match="has no runs of trimtab profile"):
        EXPERIMENT.run(job | {"profile": str(tmp_path / "none")})
