"""The co-location experiments, in their shortest form."""

from __future__ import annotations

import pytest

from trimtab.lab.experiments.colocation_claims import figure_3, figure_4
from trimtab.lab.run import run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "picture"), [("colocation", "figure-3-skew.png"), ("colocation-hybrid", "figure-4-u.png")]
)
def test_an_experiment_reports_on_a_small_request(name, picture, tmp_path):
    done = run(name, 1, tmp_path, 1, lambda done, total: None, most=10, samples=40)

    assert not done.judged
    assert {path.name for path in done.files} >= {"report.md", "rows.parquet", picture}
    report = (tmp_path / "report.md").read_text()
    assert "topics out %" in report
    assert "| the paper says |" in report
    assert "nan" not in report.split("## Requirements")[0]


def answer(policy, topics, brokers, kind="u", oracle="mlp", **more):
    figures = {"brokers": brokers, "cpu_s": 1.0, "cpu": 0.5, "p90_ms": 100.0, "messages_out": 0.0, "topics_out": 0.0}
    return {"policy": policy, "kind": kind, "oracle": oracle, "topics": topics} | figures | more


def line_of(table, start):
    return next(line for line in table.splitlines() if line.startswith(f"| {start}"))


def test_statements_about_figure_3_that_fail_at_some_sizes_are_reported_with_these_sizes():
    rows = [
        answer(policy, topics, brokers, topics_out=out)
        for topics, lfs, out in ((10, 3.0, 0.0), (20, 5.0, 0.05), (30, 9.0, 0.20))
        for policy, brokers, out in (("topic/ffd", 6.0, 0.1), ("topic/lfs-ffd", 5.0, 0.1), ("topic/lfs", lfs, out))
    ]  # fmt: skip

    table = figure_3(rows)

    assert "less at 1 of 3, equal at 1, more at 1 (n = 30)" in line_of(table, "3a: LFS")
    assert "less at 2 of 3, equal at 0, more at 1 (n = 30)" in line_of(table, "3f: fewer")
    assert line_of(table, "3f: up to").endswith("| 20.0 % |")
    assert "no: within 100%" in line_of(table, "3a: the three")


def test_statements_about_figure_4_show_the_course_over_k_prime():
    rows = [answer("topic/lfs-ffd", 50, brokers, k_prime=at) for at, brokers in enumerate((9.0, 9.0, 8.0, 8.5), 1)]

    assert "9.0 9.0 8.0 8.5 (rises 1, falls 1 times)" in line_of(figure_4(rows), "4a")
