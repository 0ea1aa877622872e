"""Training on Spark: the dataset is that of the simulator, and models come out of it with their cards."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from click import BadParameter
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from trimtab.cli.main import trimtab as commands
from trimtab.errors import BadInput, BadKnob
from trimtab.model.hardware import PAPER, PROFILES
from trimtab.model.replacement import replacing
from trimtab.pipeline.models import _folds
from trimtab.pipeline.training import Plan, refuse_other_samples, simulate_samples, with_features
from trimtab.predict.configurations import REQUEST, packed_sets, simulated_samples
from trimtab.predict.fit import LEAST_SETS
from trimtab.predict.queueing import Queueing
from trimtab.predict.samples import PROVENANCE, Samples
from trimtab.predict.sets import features
from trimtab.predict.store import read_card, read_model
from trimtab.predict.trim import Trim

pytestmark = pytest.mark.timeout(240)
PLAN = Plan(PAPER, most=2, configurations=12, tests=4, requests=2, seed=3, run_s=20.0)


@pytest.fixture(autouse=True)
def one_session(spark, monkeypatch):
    """A command ends its session, but there is one to a process, and others need it."""
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)


@pytest.fixture(scope="module")
def simulated(spark, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "samples"
    seen = []
    found = simulate_samples(spark, PLAN, folder, lambda done, total: seen.append((done, total)))
    return folder, found, seen


def run(*words):
    return CliRunner().invoke(commands, list(map(str, words)), standalone_mode=False)


def test_the_dataset_is_what_the_simulator_gives(simulated):
    folder, found, seen = simulated
    train, test, packed = found.train, found.test, found.packed
    local = simulated_samples(PAPER, 2, 16, 3, run_s=20.0)

    together = Samples.joined([train, test])

    assert sorted(together.p90_ms) == sorted(local.p90_ms)
    assert sorted(together.cpu) == sorted(local.cpu)
    assert (len(train), len(test)) == (24, 8)
    assert train.provenance == PLAN.provenance | {"part": "train"}
    assert packed.sets.sizes.max() == 2
    assert packed.sets.rate.tolist() == packed_sets(Queueing(PAPER), 2, len(packed), 3).rate.tolist()
    assert len(packed.sets.rate) == 2 * REQUEST
    assert all(done <= total for done, total in seen)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["samples"]


def test_the_dataset_has_the_papers_features(simulated):
    folder, found, _ = simulated
    train = found.train

    table = pq.read_table(next((folder / "train").glob("*.parquet")))

    names = ["processing_ms", "rate", "load_ms", "others_ms", "others_rate", "others_load_ms"]
    assert np.stack([table[name].to_numpy() for name in names], axis=1) == pytest.approx(features(train.sets))
    assert (table["p50_ms"].to_numpy() <= table["p90_ms"].to_numpy()).all()


def test_features_are_sums_over_the_other_topics_of_a_set(spark):
    rows = [(1, 2.0, 10.0), (1, 3.0, 20.0), (2, 4.0, 30.0)]
    runs = spark.createDataFrame(rows, "set long, rate double, processing_ms double")

    found = with_features(runs).select("set", "rate", "load_ms", "others_ms", "others_rate", "others_load_ms")

    expected = [(1, 2.0, 20.0, 20.0, 3.0, 60.0), (1, 3.0, 60.0, 10.0, 2.0, 20.0), (2, 4.0, 120.0, 0.0, 0.0, 0.0)]
    assertDataFrameEqual(found, spark.createDataFrame(expected, found.schema))


def test_a_command_trains_and_stores_models(spark, tmp_path):
    done = run("train", "--profile", "memory-bound", "--k", 2, "--configurations", 60, "--seed", 1, "--out",
               tmp_path / "m", "--json")  # fmt: skip

    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert sorted(answer["models"]) == ["mlp", "poly4", "trim"]
    assert answer["models"]["trim"]["by_topics"]["2"]["r2"] > 0.9
    model = read_model(tmp_path / "m" / "trim", hardware="memory-bound", topics=2)
    assert model.most == 2
    card = read_card(tmp_path / "m" / "mlp")
    assert card["data"]["provenance"]["seed"] == 1
    assert any("hardware other than 'memory-bound'" in line for line in card["not_for"])


def test_measured_samples_adapt_a_model_of_other_hardware(tmp_path, spark):
    run("train", "--profile", "xeon-e5420", "--k", 3, "--configurations", 10, "--predictor", "trim", "--out",
        tmp_path / "paper")  # fmt: skip
    slow = PROFILES["two-slow-cores"]
    simulated_samples(slow, 3, 10, 7).write(tmp_path / "measured" / "samples")

    done = run(
        "train", "--samples", tmp_path / "measured", "--from", tmp_path / "paper" / "trim", "--out", tmp_path / "m"
    )

    assert done.exit_code == 0, done.output
    assert "Models for two-slow-cores, on 30 sets, by 4-fold cross-validation" in done.output
    assert read_model(tmp_path / "m" / "trim", hardware="two-slow-cores").most == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "nothing to train on: give --profile"),
        (["--profile", "xeon"], "there is no hardware profile 'xeon'"),
        (["--profile", "x.json"], r"x\.json is no hardware profile"),
        (["--samples", "nowhere"], "no folder of samples"),
        (
            ["--profile", "plain", "--configurations", 29, "--predictor", "poly4"],
            "poly4 needs 30 measured topics that were alone, but has 29",
        ),
        (["--profile", "plain", "--configurations", 19], "needs 30 measured topics that were alone, but has 19"),
        (["--profile", "plain", "--bound", 40], "bound_ms must be more than 44.2: a single message of 40 ms takes so"),
        (["--samples", "some", "--processing", "1,2"], "--processing is about simulated samples"),
        (["--samples", "some", "--seconds", 60], "--seconds is about simulated samples"),
        (["--profile", "plain", "--from", "nowhere"], "there is no nowhere to predict latencies by"),
    ],
)
def test_bad_requests_are_refused(words, sentence, tmp_path):
    done = run("train", *words, "--out", tmp_path / "m")

    assert isinstance(done.exception, BadInput)
    with pytest.raises(BadInput, match=sentence):
        raise done.exception
    assert not (tmp_path / "m").exists() or not any((tmp_path / "m").iterdir())


def test_too_few_samples_write_nothing(tmp_path):
    simulated_samples(PAPER, 2, 3, 7, run_s=20.0).write(tmp_path / "few")

    done = run("train", "--samples", tmp_path / "few", "--out", tmp_path / "m")

    assert "trim needs 10 measured sets or more, but has 6" in str(done.exception)
    assert not (tmp_path / "m").exists() or not any((tmp_path / "m").iterdir())
    with pytest.raises(BadKnob, match="most must be 1 or more"):
        replace(PLAN, most=0)


@pytest.mark.parametrize(
    ("option", "value"),
    [("--processing", "1,nan"), ("--processing", "1,,2"), ("--processing", "0"), ("--bound", "nan"), ("--seconds", 1)],
)
def test_options_that_are_no_numbers_are_refused(option, value, tmp_path):
    done = run("train", "--profile", "plain", option, value, "--out", tmp_path / "m")

    assert isinstance(done.exception, BadParameter)
    assert not (tmp_path / "m").exists()


def test_a_model_of_short_processing_is_drawn_from_the_given_times(spark, tmp_path):
    done = run("train", "--profile", "plain", "--k", 2, "--configurations", 12, "--predictor", "trim", "--processing",
               "1,2,5", "--bound", 50, "--seconds", 20, "--out", tmp_path / "m")  # fmt: skip

    assert done.exit_code == 0, done.output
    assert "bound 50 ms" in done.output
    samples = Samples.read(tmp_path / "m" / "samples" / "train")
    assert set(samples.sets.processing_ms) == {1.0, 2.0, 5.0}
    assert samples.sets.rate.max() > 100.0
    assert samples.run_s == 20.0
    card = read_card(tmp_path / "m" / "trim")
    assert card["bound_ms"] == 50.0
    assert card["data"]["processing_ms"] == [1.0, 5.0]
    assert "wrong side of 50 ms" in (tmp_path / "m" / "trim" / "card.md").read_text()


@pytest.mark.parametrize("inside", ["measured", "other"])
def test_samples_that_were_not_simulated_by_train_are_never_replaced(inside, tmp_path):
    """``trimtab profile --out DIR`` has measured for ten minutes into DIR/samples."""
    folder = tmp_path / "lab" / "samples"
    if inside == "measured":
        simulated_samples(PAPER, 2, 3, 7, run_s=20.0).write(folder)
    else:
        folder.mkdir(parents=True)
        (folder / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    done = run("train", "--profile", "plain", "--out", tmp_path / "lab")

    assert isinstance(done.exception, BadInput)
    assert f"{folder} holds something else than samples that trimtab train has simulated" in str(done.exception)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert [path.name for path in folder.parent.iterdir()] == ["samples"]


def test_a_folder_where_a_model_should_go_is_refused_before_anything_is_simulated(tmp_path):
    (tmp_path / "m" / "trim").mkdir(parents=True)
    (tmp_path / "m" / "trim" / "runs.jsonl").write_text("mine")

    done = run("train", "--profile", "plain", "--out", tmp_path / "m")

    assert "is no folder of a model; choose another one" in str(done.exception)
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["trim"]


def test_new_samples_take_the_place_of_old_ones_only_if_all_went_well(spark, tmp_path):
    folder = tmp_path / "samples"
    with replacing(folder, refuse_other_samples) as fresh:
        simulate_samples(spark, PLAN, fresh, lambda done, total: None)
        assert not folder.exists()
    first = Samples.read(folder / "train")
    with pytest.raises(BadInput, match="a model cannot be fitted"), replacing(folder, refuse_other_samples) as fresh:  # noqa: PT012
        simulate_samples(spark, replace(PLAN, seed=4), fresh, lambda done, total: None)
        raise BadInput("a model cannot be fitted")

    assert Samples.read(folder / "train").p90_ms.tolist() == first.p90_ms.tolist()
    with replacing(folder, refuse_other_samples) as fresh:
        simulate_samples(spark, replace(PLAN, seed=4), fresh, lambda done, total: None)
    assert Samples.read(folder / "train").p90_ms.tolist() != first.p90_ms.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["samples"]


@pytest.mark.parametrize(("count", "folds"), [(11, 11), (12, 6), (14, 4), (60, 4)])
def test_few_sets_are_tested_in_more_folds(count, folds):
    """Before, 12 sets were refused by "trim needs 10 measured sets or more, but has 9"."""
    found = _folds(Trim(), np.ones(count, np.int64), 0)

    assert len(found) == folds
    assert sorted(np.concatenate(found)) == list(range(count))
    assert max(map(len, found)) <= count - LEAST_SETS


def test_ten_sets_can_be_fitted_but_not_tested(tmp_path):
    simulated_samples(PAPER, 1, 10, 7, run_s=20.0).write(tmp_path / "few")

    done = run("train", "--samples", tmp_path / "few", "--out", tmp_path / "m")

    assert "10 measured sets are enough to fit 'trim', but too few to leave some out and test it on them" in str(
        done.exception
    )


def test_twelve_sets_are_enough(tmp_path):
    simulated_samples(PAPER, 2, 6, 7, run_s=20.0).write(tmp_path / "few")

    done = run("train", "--samples", tmp_path / "few", "--out", tmp_path / "m")

    assert done.exit_code == 0, done.output
    assert read_card(tmp_path / "m" / "trim")["tested"] == "12 sets, by 6-fold cross-validation"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"run_s": "abc"}, "run_s must be more than zero, and finite, but is 'abc'"),
        ({"run_s": None}, "run_s must be more than zero"),
        ({"hardware": {"version": 1, "name": "x", "cores": 2}}, "this hardware profile has no service"),
        ({"hardware": 3}, "a hardware profile is a JSON object"),
        ({"provenance": []}, "provenance must be an object with names"),
    ],
)
def test_damaged_samples_are_refused_in_a_sentence(change, sentence, tmp_path):
    simulated_samples(PAPER, 1, 3, 7, run_s=20.0).write(tmp_path / "s")
    path = tmp_path / "s" / PROVENANCE
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(BadInput, match=sentence):
        Samples.read(tmp_path / "s")
