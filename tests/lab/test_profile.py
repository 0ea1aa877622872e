"""Load tests of a real broker: their design, one real run, resumption after a kill, and the profile fitted to them."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput
from trimtab.fleet import tasks
from trimtab.fleet.protocol.admin_verbs import ListTopics
from trimtab.lab.profile import files
from trimtab.lab.profile.bench import open_bench
from trimtab.lab.profile.design import LEAST_RATE, MOST_COPIES, MOST_RATE, Colocation, Design
from trimtab.lab.profile.fitting import Point, _more, profile_of
from trimtab.lab.profile.load import schedule
from trimtab.lab.profile.measure import JOURNAL, Journal, Machine
from trimtab.lab.profile.results import Noise, cost_of, first_guess, noise_of, samples_of, usable
from trimtab.lab.profile.trial import Trial, run_trial
from trimtab.model.hardware import MEASURED, NOMINAL, Hardware
from trimtab.predict.fit import fitted
from trimtab.predict.queueing import Queueing
from trimtab.predict.samples import Samples
from trimtab.predict.sets import Sets
from trimtab.predict.simulator import Hosted, simulate

HERE = Machine("test", 2, "a processor")
NO_NOISE = Noise(0, float("nan"), float("nan"))


def trial(colocation, seed=0, *, p90=None, seconds=12.0, **changes) -> Trial:
    count = len(colocation.rate)
    p90 = tuple(p90 or [20.0] * count)
    values = Trial(
        0, colocation, seed, seconds, 1.0, p90, p90, p90, (100,) * count, (0,) * count,
        tuple(ms + 0.1 for ms in colocation.processing_ms), colocation.cores + 0.2, 0.01, 0.02, 0.5,
    )  # fmt: skip
    return dataclasses.replace(values, **changes)


@given(st.integers(1, 80), st.integers(1, 12), st.integers(1, 16), st.integers(0, 5))
def test_designed_colocations_keep_their_limits(runs, most, cores, seed):
    design = Design(runs, most, float(cores), seed=seed)

    plan = design.plan()

    assert sum(not run.repeats for run in plan) == runs
    for run in plan:
        there = run.colocation
        assert 1 <= len(there.rate) <= most
        assert all(LEAST_RATE <= rate <= MOST_RATE for rate in there.rate)
        assert all(3.9 <= ms <= 40.1 for ms in there.processing_ms)
        assert there.cores <= design.fullest * cores + 0.1 * len(there.rate)


def test_a_longer_plan_begins_with_the_shorter_one():
    short, long = Design(20, cores=2.0).plan(), Design(47, cores=2.0).plan()

    assert long[: len(short)] == short


def test_a_quarter_of_the_colocations_has_several_subscribers_within_a_limit():
    plan = [run.colocation for run in Design(40).plan() if not run.repeats]
    several = [colocation for colocation in plan if colocation.copies]

    assert len(several) >= 8
    assert all(each.copies <= MOST_COPIES for each in plan)
    assert max(max(each.subscribers) for each in several) > 50
    assert all(Colocation.from_json(each.as_json()) == each for each in plan)
    assert Colocation.from_json({"rate": [3], "processing_ms": [5.0]}).subscribers == (1,)  # of an older folder


def test_without_several_subscribers_the_cost_of_a_copy_is_not_known():
    trials = [trial(Colocation((10 + number,), (20.0,))) for number in range(12)]

    assert np.isnan(cost_of(trials).copy_ms)
    assert first_guess(trials, HERE).fanout_ms == 0.0


def test_repeats_have_another_seed_than_the_first_run():
    plan = Design(30).plan()

    for run in plan:
        if run.repeats:
            (first,) = [other for other in plan if other.colocation == run.colocation and not other.repeats]
            assert first.seed != run.seed
            assert plan.index(first) + 1 < plan.index(run)
    assert sum(run.repeats for run in plan) == 5


def test_a_plan_covers_numbers_of_topics_and_loads():
    plan = [run.colocation for run in Design(40).plan()]

    assert {len(colocation.rate) for colocation in plan} == set(range(1, 7))
    assert min(colocation.cores for colocation in plan) < 0.3
    assert max(colocation.cores for colocation in plan) > 1.5


def test_publishers_send_at_their_rate_from_phases_of_their_own():
    job = {"rates": [10, 40], "publishers": [10, 40], "seed": 3}

    due = schedule(job, 60.0)

    assert due == sorted(due)
    counts = np.bincount([topic for _, topic in due])
    assert counts == pytest.approx([600, 2400], rel=0.03)
    first = [at for at, topic in due if topic == 1 and at < 1.0]
    assert np.histogram(first, 4, (0.0, 1.0))[0].min() >= 4  # spread over the first interval


@pytest.mark.parametrize(
    ("p90", "messages", "good"),
    [((12.0,), (100,), True), ((None,), (100,), False), ((float("nan"),), (100,), False), ((12.0,), (5,), False)],
)
def test_runs_without_a_known_p90_are_left_out(p90, messages, good):
    measured = trial(Colocation((10,), (20.0,)), p90=p90, messages=messages)

    assert usable(measured) == good
    if not good:
        with pytest.raises(BadInput, match="no run has measured"):
            samples_of([measured], HERE)


def test_costs_are_read_off_in_spite_of_other_work_in_a_few_runs():
    trials = []
    for number in range(20):
        colocation = Colocation((10 + 5 * number,), (5.0,))
        used = colocation.rate[0] * 5.1 / 1000.0
        other = 0.03 + 0.4 * colocation.rate[0] / 1000.0 + (0.7 if number % 6 == 0 else 0.0)
        trials.append(trial(colocation, machine_cores=used + other))

    cost = cost_of(trials)

    assert cost.other_cores == pytest.approx(0.03, abs=0.01)
    assert cost.other_ms == pytest.approx(0.4, rel=0.1)
    assert cost.processor_ms == pytest.approx(0.1)


def test_noise_is_that_of_one_run():
    """Two runs that differ by 20 %: a perfect prediction lies between them."""
    colocation = Colocation((10,), (20.0,))

    noise = noise_of([trial(colocation, 0, p90=(100.0,)), trial(colocation, 1, p90=(120.0,))])

    assert noise.topics == 1
    assert noise.median == pytest.approx(1.2 ** (1 / np.sqrt(2)) - 1)


def test_a_falling_learning_curve_asks_for_more_and_a_flat_one_does_not():
    falling = (Point(10, 0.30), Point(20, 0.20), Point(30, 0.167))
    flat = (Point(10, 0.11), Point(20, 0.10), Point(30, 0.1))

    assert _more(falling, 30, NO_NOISE)[0] == 30
    assert _more(falling, 30, NO_NOISE)[1] == pytest.approx(0.133, abs=0.01)
    assert _more(flat, 30, NO_NOISE)[0] == 0


# From runs to a profile: simulated runs stand for measured ones, so that the true parameters are known.

TRUE = Hardware(
    "true", cores=2, service=((0.0, 0.4), (1.0, 1.4)), contention=0.15, switching=0.02, message_cv=0.05, network_ms=3.0,
    jitter_ms=0.5, background=0.1, overhead_ms=0.5, fanout_ms=0.05,
)  # fmt: skip


def simulated(run, seconds=60.0) -> Trial:
    there = run.colocation
    played = simulate(
        TRUE, Hosted.of(np.array(there.rate, float), np.array(there.processing_ms), subscribers=there.subscribers),
        seed=run.seed, duration_s=seconds, warm_up_s=2.0,
    )  # fmt: skip
    p90 = tuple(played.p90_ms.tolist())
    other = TRUE.background + TRUE.overhead_ms * sum(there.rate) / 1000.0 + TRUE.fanout_ms * there.copies / 1000.0
    cpu = tuple(TRUE.service_ms(np.array(there.processing_ms)).tolist())
    used = sum(rate * ms for rate, ms in zip(there.rate, cpu, strict=True)) / 1000.0
    return trial(there, run.seed, p90=p90, seconds=seconds, cpu_ms=cpu, machine_cores=used + other,
                 broker_cores=other - TRUE.background)  # fmt: skip


@pytest.fixture(scope="module")
def profiled():
    trials = [simulated(run) for run in Design(28).plan()]
    return profile_of(trials, HERE, "found", 0, lambda _: None, design={})


@pytest.mark.slow
def test_a_profile_predicts_what_it_was_not_fitted_on(profiled):
    plan = [run for run in Design(60, seed=9).plan() if not run.repeats][:40]
    fresh = samples_of([simulated(run) for run in plan], HERE)

    error = np.abs(profiled.fit.model.p90_ms(fresh.sets) / fresh.p90_ms - 1.0)

    assert np.median(error) < 0.12
    assert np.quantile(error, 0.9) < 0.30
    assert abs(np.median(error) - profiled.fit.accuracy.error) < 0.05


def test_costs_of_a_profile_are_the_true_ones(profiled):
    assert profiled.cost.processor_ms == pytest.approx(0.4)
    assert profiled.cost.other_ms == pytest.approx(0.5, rel=0.05)
    assert profiled.cost.copy_ms == pytest.approx(0.05)
    # A simulated latency is that of any subscriber, on average half of the copies earlier than the last one.
    assert 0.4 * 0.05 < profiled.fit.model.hardware.fanout_ms < 1.2 * 0.05
    assert profiled.fit.model.hardware.name == "found"
    assert profiled.noise.topics > 5


def test_files_of_a_profile_can_be_read_again(profiled, tmp_path):
    written = files.write(profiled, tmp_path / "out")

    assert all(path.exists() for path in written)
    model = Queueing.from_json(json.loads((tmp_path / "out" / files.MODEL).read_text()))
    hardware = Hardware.from_json(json.loads((tmp_path / "out" / files.HARDWARE).read_text()))
    samples = Samples.read(tmp_path / "out" / files.SAMPLES)
    assert hardware == model.hardware == profiled.fit.model.hardware
    assert model.p90_ms(samples.sets) == pytest.approx(profiled.fit.model.p90_ms(samples.sets))
    assert len(samples) == len(profiled.samples)
    assert not list((tmp_path / "out").glob(".*partial"))


def test_too_few_runs_are_refused_with_the_way_out():
    with pytest.raises(BadInput, match=r"1 measured co-locations are too few .* larger --runs"):
        profile_of([trial(Colocation((10,), (20.0,)))] * 3, HERE, "x", 0, lambda _: None)


# The journal.


def test_a_journal_drops_the_line_that_a_kill_cut_off(tmp_path):
    journal = Journal(tmp_path, HERE)
    first, second = (trial(Colocation((rate,), (20.0,)), rate) for rate in (10, 20))
    journal.add(first)
    journal.add(second)
    path = tmp_path / JOURNAL
    path.write_text(path.read_text()[:-30])

    again = Journal(tmp_path, HERE)

    assert again.trials == [first]
    again.add(second)
    assert Journal(tmp_path, HERE).trials == [first, second]


def test_runs_that_other_work_disturbed_are_measured_again(tmp_path):
    journal, plan = Journal(tmp_path, HERE), Design(8).plan()
    for number, run in enumerate(plan):
        there = run.colocation
        used = sum(rate * (ms + 0.1) for rate, ms in zip(there.rate, there.processing_ms, strict=True)) / 1000.0
        journal.add(trial(there, run.seed, machine_cores=used + 0.05 + (0.4 if number in (2, 5) else 0.0)))

    assert [plan.index(run) for run in plan if journal.find(run, 12.0) is None] == [2, 5]
    assert journal.disturbed == 2
    assert len(journal.of(plan, 12.0)) == len(plan) - 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text.replace('"version": 1', '"version": 0'), "is of version 0, but must be of version 1"),
        (lambda text: text.replace('"a processor"', '"another"'), "has runs of another machine"),
        (lambda text: text + "{}\n", "line 3, is not a run of trimtab profile"),
        (lambda _: "nonsense\n", "line 1, is not a run of trimtab profile"),
        (lambda _: "[]\n", "line 1, is not a run of trimtab profile"),
    ],
)
def test_a_journal_that_cannot_be_used_is_refused(tmp_path, change, sentence):
    Journal(tmp_path, HERE).add(trial(Colocation((10,), (20.0,))))
    path = tmp_path / JOURNAL
    path.write_text(change(path.read_text()))
    before = path.read_text()

    with pytest.raises(BadInput, match=sentence):
        Journal(tmp_path, HERE)
    assert path.read_text() == before


# On real brokers.


def test_one_real_run_measures_every_message(nats_server):
    """Burning 8 ms a message takes at least 8 ms of latency and of CPU time."""
    colocation = Colocation((20, 10), (8.0, 4.0), (1, 30))

    async def run():
        async with open_bench() as bench:
            first = await run_trial(bench, 0, colocation, 0, 1.5)
            return bench.pids, first, await run_trial(bench, 1, colocation, 1, 1.5)

    pids, *trials = tasks.run(run())

    assert len(pids) == 3  # server, store, agent
    for measured in trials:
        assert measured.messages[0] == pytest.approx(30, abs=8)
        assert measured.missing == (0, 0)
        assert all(p90 > ms for p90, ms in zip(measured.p90_ms, colocation.processing_ms, strict=True))
        for cpu, ms in zip(measured.cpu_ms, colocation.processing_ms, strict=True):
            assert ms < cpu < 2.0 * ms
        assert measured.machine_cores > 0.2
        assert 0.0 < measured.broker_cores < 1.0
        assert Trial.from_json(json.loads(json.dumps(measured.as_json()))) == measured


def test_a_profile_of_a_running_fleet_leaves_no_topic_behind(fleet):
    async def run():
        async with open_bench(fleet.home, "b2") as bench:
            return bench.broker, await run_trial(bench, 0, Colocation((10,), (4.0,)), 0, 1.0)

    broker, measured = tasks.run(run())

    assert broker == "b2"
    assert measured.missing == (0,)
    assert not [name for name in fleet.ask(ListTopics()).entries if name.startswith("trimtab-profile")]


def test_an_unknown_broker_is_refused(fleet):
    async def run():
        async with open_bench(fleet.home, "b9"):
            pass

    with pytest.raises(BadInput, match="there is no broker 'b9' to profile; alive: b1, b2, b3"):
        tasks.run(run())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_profile_goes_on_where_it_was(tmp_path, nats_server, number):
    out = tmp_path / "out"
    words = [sys.executable, "-m", "trimtab.cli.main", "profile", "--out", str(out), "--runs", "2", "--seconds", "1"]
    words += ["--k", "1", "--tolerate", "99"]  # tests share their machine
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 90.0
    while not (out / JOURNAL).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=30.0)

    before = (out / JOURNAL).read_text()
    assert "Traceback" not in errors
    assert not (out / files.MODEL).exists()
    done = subprocess.run(words, capture_output=True, text=True, timeout=90.0, check=False)
    assert (out / JOURNAL).read_text().startswith(before)
    assert len((out / JOURNAL).read_text().splitlines()) == 3
    assert done.returncode == 2
    assert "2 measured co-locations are too few" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_journal_that_is_no_text_is_refused(tmp_path):
    (tmp_path / JOURNAL).write_bytes(b"\xff\xfe\x00runs")

    with pytest.raises(BadInput, match=r"runs.jsonl cannot be read .*; choose another --out"):
        Journal(tmp_path, HERE)


def test_a_profile_is_about_processing_times_as_brokers_report_them(profiled):
    """Telemetry reports 0.4 ms more than a processor was told: that must not be added again to what it reports."""
    assumed, reported = profiled.samples.hardware, TRUE.service_ms(np.array([0.2, 1.0, 10.0]))

    assert profiled.fit.model.hardware.processing == assumed.processing == MEASURED
    assert profiled.samples.provenance["told_to_measured_ms"] == pytest.approx(0.4)
    assert assumed.service_ms(reported) == pytest.approx(reported)  # before any fit; it was 0.4 ms more


def test_samples_have_the_reported_times_and_the_same_fit_as_with_the_told_ones():
    trials = [simulated(run) for run in Design(16).plan()]
    samples = samples_of(trials, HERE)
    first = first_guess(trials, HERE)
    told = replace(first, service=tuple((nominal - 0.4, real) for nominal, real in first.service), processing=NOMINAL)
    as_told = Sets(samples.sets.begin, samples.sets.rate, samples.sets.processing_ms - 0.4, samples.sets.subscribers)

    ours = fitted(samples).p90_ms(samples.sets)
    before = fitted(Samples(told, as_told, samples.p90_ms, samples.cpu, samples.run_s)).p90_ms(as_told)

    assert ours == pytest.approx(before, rel=1e-3)
