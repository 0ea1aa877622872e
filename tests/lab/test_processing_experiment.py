"""One point of the processing experiment is run for real; its report is drawn from rows made by hand."""

from __future__ import annotations

import math

import pytest

from trimtab.lab.experiments.processing import AXES, Processing

EXPERIMENT = Processing()


def test_a_point_counts_the_deliveries_to_every_subscriber_and_the_processors_time(nats_server):
    job = EXPERIMENT.jobs(1)[0] | {"ms": 5, "subscribers": 2, "rate": 4, "background": 1, "seconds": 1.2}

    (row,) = EXPERIMENT.run(job)

    assert (row["series"], row["x"]) == (5, 2)
    assert 4 <= row["messages"] <= 8
    assert row["delivered"] == row["expected"] == 2 * row["messages"]
    assert 5.0 <= row["p50_ms"] <= row["p90_ms"] <= row["p99_ms"]
    assert row["reported_s"] == 0.0 or row["cpu_s"] > 0.0
    assert row["background_cores"] > 0.0


@pytest.fixture(scope="module")
def rows():
    """20 ms keeps up with 45 messages/s alone, with 35 and 15 beside background topics; half of the rest arrives."""
    keeps_up_with = {(10, 0): 90, (20, 0): 45, (40, 0): 18, (20, 2): 35, (20, 4): 15}
    return [job | _row(job, keeps_up_with) for job in EXPERIMENT.jobs(1)]


def _row(job, keeps_up_with):
    steady = job["rate"] <= keeps_up_with.get((job["ms"], job["background"]), 1)
    p90 = job["ms"] + 0.1 * job["subscribers"] + 10 * job["background"] if steady else 2000.0
    series, x = AXES[job["panel"]]
    messages = job["rate"] * 6
    return {
        "series": job[series], "x": job[x], "p50_ms": 0.9 * p90, "p90_ms": p90, "p99_ms": 1.1 * p90, "last_p90_ms": p90,
        "messages": messages, "expected": messages * job["subscribers"],
        "delivered": messages * job["subscribers"] // (1 if steady else 2), "late_p90_ms": 1.0, "cpu_s": 1.0,
        "background_cpu_s": 0.0, "reported_s": 6.0, "background_cores": 0.4 * job["background"], "machine_busy": 0.5,
    }  # fmt: skip


@pytest.mark.slow
def test_thresholds_and_bars_come_from_the_rows(rows, tmp_path):
    report = EXPERIMENT.report(rows, tmp_path)

    assert report.figures["thresholds"] == {
        "10 ms, 0 background": 90, "20 ms, 0 background": 45, "40 ms, 0 background": 18, "20 ms, 2 background": 35,
        "20 ms, 4 background": 15,
    }  # fmt: skip
    assert [bar.value for bar in report.bars] == pytest.approx([23.9, 45, 15, 1.0])
    assert all(bar.met for bar in report.bars)
    assert (tmp_path / "processing.png").stat().st_size > 10_000
    assert "| 20 ms, 4 background topics | 50 | 15 | 2,000 ms at 25 | 50 % at 45 | 8 (with 11) |" in report.text
    assert "45 alone, 35 messages/s with 2 (0.8 cores of load)" in report.text


@pytest.mark.slow
def test_bars_are_missed_where_the_rows_miss_them(rows, tmp_path):
    slow = {"p90_ms": 900.0}
    spoilt = [
        row | (slow if (row["panel"], row["x"]) == ("a", 240) or row["panel"] == "c" else {}) | {"delivered": 0}
        for row in rows
    ]

    report = EXPERIMENT.report(spoilt, tmp_path)

    assert [bar.met for bar in report.bars] == [False, False, False, False]


@pytest.mark.slow
def test_a_point_without_deliveries_is_above_the_threshold(rows, tmp_path):
    silent = {"p50_ms": math.nan, "p90_ms": math.nan, "p99_ms": math.nan, "delivered": 0}
    without = [row | silent if row["panel"] == "d" and row["background"] == 4 else row for row in rows]

    report = EXPERIMENT.report(without, tmp_path)

    assert report.figures["thresholds"]["20 ms, 4 background"] == 0
    assert report.figures["p90_ms"]["1d, 4"] == {}
