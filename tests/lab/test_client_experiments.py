"""The experiments about homes run and say what they must; one seed each."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from trimtab.lab.run import run
from trimtab.lab.worlds.bad import Bad
from trimtab.lab.worlds.fluctuation import CHOSEN, FACTOR, Fluctuation


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pictures"),
    [
        ("bad-simulation", {"time.png", "interest.png"}),
        ("reloc-locality", {"locality.png"}),
        ("reloc-spool", {"spool.png"}),
        ("reloc-clusters", {"clusters.png"}),
        ("reloc-optimum", set()),
    ],
)
def test_an_experiment_leaves_rows_a_report_and_pictures(name, pictures, tmp_path):
    done = run(name, 1, tmp_path, 2, lambda *_: None)

    assert not done.judged  # one seed is too few
    quick = [bar for bar in done.bars if "seconds" not in bar.claim and "RELOC /" not in bar.claim]
    assert all(bar.met for bar in quick), quick
    assert {path.name for path in done.files} == {"report.md", "rows.parquet", *pictures}
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == done.rows


def test_rates_rise_for_minutes_and_fall_back():
    rates = Fluctuation(400, 30, seed=0)
    factors = np.array([rates.at(time_s) for time_s in range(0, 1800, 10)])

    assert (factors[0] == 1.0).mean() > 0.95
    assert factors.min() == 1.0
    assert FACTOR[0] <= factors[factors > 1.0].min() <= factors.max() <= FACTOR[1]
    up = (factors > 1.0).mean(axis=1)
    assert up[60:].min() > CHOSEN
    assert ((factors[1:] == 1.0) & (factors[:-1] > 1.0)).any(axis=0).mean() > 0.99  # nearly all have fallen once


def test_the_world_is_as_the_paper_says():
    load = Bad().make(0)
    own = np.bincount(load.links.client)

    assert (len(load.brokers), len(load.clients), len(load.topics)) == (10, 10_000, 1_000)
    assert (own.min(), own.max()) == (10, 30)
    assert len(load.links) == pytest.approx(200_000, rel=0.01)


def test_communities_want_their_own():
    load = Bad(subscribers=500, backend=1_000, interest="communities", communities=10).make(0)
    community = load.links.topic // 100
    mode = np.array([np.bincount(community[load.links.client == i]).max() for i in range(500)])

    assert (mode / np.bincount(load.links.client)).mean() == pytest.approx(0.91, abs=0.02)


def test_spark_does_the_same_jobs_with_the_same_rows(tmp_path, java):
    """In a process of its own: there is one Spark to a process, and this one ends it."""
    run("reloc-optimum", 1, tmp_path / "here", 1, lambda *_: None)
    words = ["lab", "run", "reloc-optimum", "--seeds", "1", "--on", "spark", "--out", str(tmp_path / "there"), "--json"]

    done = subprocess.run([sys.executable, "-m", "trimtab.cli.main", *words], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    here, there = (pq.read_table(tmp_path / place / "rows.parquet").to_pylist() for place in ("here", "there"))
    assert here == there
