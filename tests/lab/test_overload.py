"""What tells that a broker is overloaded: thresholds on made-up points, and points of a real broker."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.lab.experiments.overload import CANDIDATES, Overload, _percentiles, crossing, separation


def row(mix, offered, p95_ms, *, msgs, cpu):
    rest = {name: msgs for name in CANDIDATES}
    return {"mix": mix, "seed": 0, "bound_ms": 10.0, "offered": offered, "p95_ms": p95_ms} | rest | {"cpu": cpu}


ROWS = [
    row("small", 1.0, 1.0, msgs=1000.0, cpu=0.1), row("small", 2.0, 2.0, msgs=2000.0, cpu=0.4),
    row("small", 3.0, 20.0, msgs=3000.0, cpu=0.9), row("large", 1.0, 1.0, msgs=100.0, cpu=0.3),
    row("large", 2.0, None, msgs=200.0, cpu=0.95),
]  # fmt: skip


def test_a_figure_that_tells_all_points_apart_has_the_whole_area():
    bad = np.array([False, False, True, False, True])

    perfect = separation(np.array([row["cpu"] for row in ROWS]), bad)
    other = separation(np.array([row["msgs"] for row in ROWS]), bad)

    assert (perfect["auc"], perfect["errors"]) == (1.0, 0.0)
    assert perfect["threshold"] == pytest.approx(0.65)
    assert other["auc"] == pytest.approx(4 / 6)
    assert other["errors"] == pytest.approx(0.2)
    assert other["least_bad"] == 200.0


def test_the_report_recommends_the_best_figure_and_a_limit_of_messages(tmp_path):
    report = Overload().report(ROWS, tmp_path)

    assert "**CPU, cores**: above 0.65" in report.text
    assert "**2500**" in report.text
    assert (tmp_path / "overload.png").stat().st_size > 1000
    assert report.bars[0].met


def test_without_a_point_outside_there_is_no_threshold(tmp_path):
    report = Overload().report([row for row in ROWS if row["p95_ms"] == 1.0], tmp_path)

    assert "No threshold can be told" in report.text
    assert not report.bars[0].met


def test_a_mix_leaves_the_bound_between_two_points():
    assert crossing(ROWS[:3], "msgs", 10.0) == pytest.approx((2000.0 * 3000.0) ** 0.5)
    assert crossing(ROWS[:2], "msgs", 10.0) is None


def test_missing_messages_make_percentiles_unknown():
    assert _percentiles([1.0] * 90 + [None] * 10) == [1.0, None, None]
    assert _percentiles([1.0] * 97 + [None] * 3) == [1.0, 1.0, None]


def test_points_of_a_real_broker(tmp_path, nats_server, monkeypatch):
    monkeypatch.setattr("trimtab.lab.experiments.overload.MOST", 2)
    job = Overload().jobs(1, seconds=1)[3]

    rows = [job | row for row in Overload().run(job)]

    assert job["mix"] == "one to 8, 64 B"
    for point in rows:
        assert point["out_msgs"] == pytest.approx(8 * point["in_msgs"], rel=0.2)
        assert point["cpu"] > 0.0
        assert point["p95_ms"] is not None
    assert rows[1]["msgs"] > rows[0]["msgs"]
    assert Overload().report(rows, tmp_path).figures["points"] == 2
