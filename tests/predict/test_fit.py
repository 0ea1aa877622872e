"""Fitting the queueing model to a few dozen measured sets: parameters come back, bad samples are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from trimtab.errors import BadInput
from trimtab.model import tables
from trimtab.model.hardware import PAPER, PLAIN, PROFILES, Hardware
from trimtab.predict.accuracy import Accuracy
from trimtab.predict.configurations import highest_rates, random_sets, simulated, simulated_samples
from trimtab.predict.fit import fit, fitted
from trimtab.predict.queueing import Queueing
from trimtab.predict.samples import Samples
from trimtab.predict.sets import Sets

LIVE = Hardware(  # as found on a real broker whose clients run on the same machine
    "live", cores=2, service=((0.0, 0.22), (1.0, 1.27)), switching=0.005, message_cv=0.1, network_ms=4.4,
    jitter_ms=1.0, overhead_ms=2.4, background=0.05,
)  # fmt: skip


def drawn(hardware, per_size, seed):
    return simulated_samples(hardware, 6, per_size, seed)


def light(count, seed):
    """Sets of a few messages/s, with processing times that no two topics share, as a live load test has."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, count)
    ms = rng.uniform(5.0, 40.0, sizes.sum())
    begin = np.concatenate([[0], np.cumsum(sizes)])
    load = np.repeat(rng.uniform(0.15, 1.5, count) / sizes, sizes)
    return Sets(begin, np.maximum(np.rint(1000.0 * load / ms), 1.0), ms)


@pytest.fixture(scope="module")
def measured():
    return drawn(PROFILES["memory-bound"], 8, 3)


def test_exact_latencies_give_the_parameters_back():
    """Made by the model itself from other hardware than the prior's."""
    truth = Queueing(replace(PAPER, service=tuple((a, 1.4 * b) for a, b in PAPER.service), contention=0.2))
    sets = drawn(PAPER, 10, 1).sets

    found = fitted(Samples(PAPER, sets, truth.p90_ms(sets), truth.cpu(sets)), PAPER)

    assert found.hardware.service_ms(np.array([20.0])) == pytest.approx(1.4 * 26.9, rel=0.02)
    assert found.hardware.contention == pytest.approx(0.2, abs=0.02)
    assert found.p90_ms(sets) == pytest.approx(truth.p90_ms(sets), rel=0.08)


@pytest.mark.slow
def test_fifty_sets_adapt_the_model_to_memory_bound_hardware(measured):
    test = drawn(PROFILES["memory-bound"], 20, 77)

    found = fit(measured, PAPER)

    before, after = (Accuracy.of(test.p90_ms, model.p90_ms(test.sets)) for model in (Queueing(PAPER), found.model))
    low, high = found.model.interval_ms(test.sets)
    assert before.r2 < 0.9
    assert after.r2 > 0.985
    assert after.wrong <= 0.02
    assert 0.8 <= ((test.p90_ms >= low) & (test.p90_ms <= high)).mean() <= 0.97
    assert found.accuracy.r2 == pytest.approx(after.r2, abs=0.02)  # the cross-validated figure is honest


@pytest.mark.slow
def test_work_of_other_processes_is_found_on_a_live_machine():
    """CPU time per message: a constant and a slope; servers and clients on the same cores; runs of 14 s."""
    sets = light(40, 5)
    samples = Samples(LIVE, sets, *simulated(LIVE, sets, 5, 14.0), run_s=14.0)
    guess = replace(PLAIN, cores=2)

    found = fit(samples, guess, name="this-machine").model
    without_cpu = fit(replace(samples, cpu=np.full(len(sets), np.nan)), guess).accuracy

    assert found.hardware.name == "this-machine"
    assert found.shape.run_ms == 14_000.0
    assert found.hardware.elsewhere(100.0) == pytest.approx(LIVE.elsewhere(100.0), abs=0.06)
    assert found.cpu(sets) == pytest.approx(samples.cpu, abs=0.1)
    assert found.hardware.service_ms(np.array([20.0])) == pytest.approx(LIVE.service_ms(np.array([20.0])), rel=0.05)
    assert without_cpu.error < 0.15
    assert without_cpu.error_of_nine < 0.45


def test_the_cost_of_a_copy_is_found_where_numbers_of_subscribers_differ():
    truth = Queueing(replace(LIVE, fanout_ms=0.05))
    sets = light(40, 2)
    copied = replace(sets, subscribers=np.tile([1.0, 1.0, 20.0, 60.0], len(sets.rate))[: len(sets.rate)])

    def found(sets):
        return fitted(Samples(LIVE, sets, truth.p90_ms(sets), truth.cpu(sets)), LIVE).hardware.fanout_ms

    assert found(copied) == pytest.approx(0.05, rel=0.1)
    assert found(sets) == LIVE.fanout_ms  # with one subscriber each, it is that of the prior


@pytest.mark.slow
def test_a_fitted_model_is_the_same_after_it_was_stored(measured):
    model = fit(measured, PAPER).model

    again = Queueing.from_json(model.as_json())

    assert again.hardware == model.hardware
    assert again.p90_ms(measured.sets).tolist() == model.p90_ms(measured.sets).tolist()
    assert again.interval_ms(measured.sets)[1].tolist() == model.interval_ms(measured.sets)[1].tolist()


def test_samples_are_the_same_after_they_were_stored(measured, tmp_path):
    samples = replace(measured, provenance={"seed": 3})

    samples.write(tmp_path / "s")
    again = Samples.read(tmp_path / "s")

    assert (again.hardware, again.run_s, again.provenance) == (samples.hardware, 120.0, {"seed": 3})
    for name in ("p90_ms", "cpu"):
        assert getattr(again, name).tolist() == getattr(samples, name).tolist()
    for name in ("begin", "rate", "processing_ms", "subscribers"):
        assert getattr(again.sets, name).tolist() == getattr(samples.sets, name).tolist()


def test_samples_without_a_column_of_subscribers_are_read_beside_newer_ones(measured, tmp_path):
    sets = replace(measured.sets, subscribers=np.full(len(measured.p90_ms), 240.0))
    replace(measured, sets=sets).write(tmp_path)
    older = tables.read(tmp_path / "samples.parquet").drop_columns(["subscribers"])
    later = older["set"].to_numpy() + len(measured)
    tables.write(older.set_column(0, "set", pa.array(later)), tmp_path / "older.parquet")

    samples = Samples.read(tmp_path)

    assert len(samples) == 2 * len(measured)
    half = len(measured.p90_ms)
    assert set(samples.sets.subscribers[:half]) == {240.0}
    assert set(samples.sets.subscribers[half:]) == {1.0}
    assert samples.take(np.array([0])).sets.subscribers[0] == 240.0


def test_samples_are_split_by_sets(measured):
    some, others = measured.split(0.25, seed=1)

    assert (len(some), len(others)) == (12, 36)
    assert sorted([*some.p90_ms, *others.p90_ms]) == sorted(measured.p90_ms)
    assert (measured.with_size(3).sets.sizes == 3).all()
    assert len(measured.with_size(3)) == 8


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"p90_ms": [np.nan, 1.0]}, r"p90_ms of 1 topics is not a number above zero \(the first in set 0\)"),
        ({"p90_ms": [1.0]}, "p90_ms has shape"),
        ({"run_s": 0.0}, "run_s must be more than zero"),
    ],
)
def test_samples_that_mean_nothing_are_refused(changes, sentence):
    values = {"p90_ms": [1.0, 1.0], "cpu": [0.5]} | changes
    sets = Sets(np.array([0, 2]), np.array([1.0, 2.0]), np.array([10.0, 20.0]))

    with pytest.raises(BadInput, match=sentence):
        Samples(PAPER, sets, **values)


def test_other_hardware_and_too_few_sets_are_refused(measured):
    with pytest.raises(BadInput, match="'xeon-e5420' and 'memory-bound' cannot be used together"):
        Samples.joined([measured, replace(measured, hardware=PAPER)])
    with pytest.raises(BadInput, match="9 measured sets are too few to fit a model: 10 or more"):
        fit(measured.take(np.arange(9)), PAPER)


def test_folders_without_samples_and_of_another_version_are_refused(measured, tmp_path):
    with pytest.raises(BadInput, match=r"no folder of samples: it has no provenance\.json"):
        Samples.read(tmp_path)
    measured.write(tmp_path)
    about = (tmp_path / "provenance.json").read_text()
    (tmp_path / "provenance.json").write_text(about.replace('"version": 1,', '"version": 7,', 1))
    with pytest.raises(BadInput, match="is of version 7, but must be of version 1: collect the samples again"):
        Samples.read(tmp_path)
    (tmp_path / "provenance.json").write_text(about)
    (tmp_path / "samples.parquet").unlink()
    with pytest.raises(BadInput, match=r"has no samples: no \.parquet file"):
        Samples.read(tmp_path)


def test_random_sets_keep_what_a_topic_alone_sustains():
    assert highest_rates(PAPER).tolist() == [78, 37, 24, 20]
    sets = random_sets(PAPER, 3, 50, 1)
    few = random_sets(PAPER, 3, 10, 1)

    highest = dict(zip([10.0, 20.0, 30.0, 40.0], highest_rates(PAPER).tolist(), strict=True))
    assert all(1 <= rate <= highest[ms] for rate, ms in zip(sets.rate, sets.processing_ms, strict=True))
    assert sets.rate[:30].tolist() == few.rate.tolist()
