"""The experiments about latency run and say what they must, with few samples."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from trimtab.errors import BadInput
from trimtab.lab.experiments.latency_figure_2 import alone
from trimtab.lab.experiments.latency_sensitivity import LatencySensitivity
from trimtab.lab.run import run
from trimtab.lab.worlds.colocation import R_MAX


@pytest.mark.slow
def test_the_sensitivity_of_latency_is_that_of_figure_1(tmp_path):
    done = run("latency-sensitivity", 1, tmp_path, 1, lambda *_: None)

    assert {path.name for path in done.files} == {"report.md", "rows.parquet", "sensitivity.png"}
    by_claim = {bar.claim.split(":")[0]: bar for bar in done.bars if not bar.claim.startswith("1d")}
    assert by_claim["1a"].met
    assert abs(done.figures["saturated_ms"][6] / 180.0 - 1.0) < 0.15
    assert all(abs(done.figures["highest"][ms] - rate) <= 1 for ms, rate in {10: 78, 20: 37, 30: 24, 40: 20}.items())
    assert not done.judged


def test_a_threshold_is_the_last_rate_before_the_bound_is_missed():
    rows = [row for row in LatencySensitivity().run({"panel": "d", "seed": 3}) if row["series"] == 0]

    (at,) = [place for place, row in enumerate(rows) if row["highest"]]

    assert all(row["p90_ms"] <= 1000.0 for row in rows[: at + 1])
    assert rows[at + 1]["p90_ms"] > 1000.0
    assert [row["x"] for row in rows] == list(range(1, len(rows) + 1))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_accuracy_is_reported_beside_table_1(tmp_path):
    done = run("latency-accuracy", 1, tmp_path, 1, lambda *_: None, scale=2)

    pictures = {"accuracy.png", "curves.png", "figure-2.png"}
    assert {path.name for path in done.files} == {"report.md", "rows.parquet"} | pictures
    assert np.isfinite(pq.read_table(tmp_path / "rows.parquet")["r2"].drop_null().to_numpy()).all()
    assert all(value["steady_r2"] > 0.9 for value in done.figures["trim"].values())
    for models in done.figures["transfer"].values():
        assert models["trim, 50 sets"]["r2"] > models["trim of the paper's hardware"]["r2"]
    report = (tmp_path / "report.md").read_text()
    assert "| optimiser, skew |" in report
    assert "false negatives, test | false positives, test" in report
    assert sum("|validation - printed|" in bar.claim for bar in done.bars) == 5


def test_the_polynomial_of_a_topic_alone_crosses_the_bound_at_the_printed_rates():
    """Fitted to rates beyond the highest ones; within one message/s of them."""
    rows = alone(180, 1)

    rates = {row["processing_ms"]: row["rate"] for row in rows if row["on"] == "highest rate"}

    assert rates == {ms: pytest.approx(printed, abs=1.0) for ms, printed in R_MAX.items()}
    points = [row for row in rows if row["on"] == "points, 2a"]
    assert len(points) == 180
    assert any(row["measured_ms"] > 2000.0 for row in points)
    fit = next(row["r2"] for row in rows if row["on"] == "beyond, training")
    assert 0.9 < fit < 1.0


def test_the_scale_is_a_knob_of_experiments_with_samples_only(tmp_path):
    with pytest.raises(BadInput, match="experiment 'latency-sensitivity' has no knob 'scale'"):
        run("latency-sensitivity", 1, tmp_path, 1, lambda *_: None, scale=2)
