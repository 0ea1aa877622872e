"""Worlds are what they say; experiments resume, and their reports hold the numbers of their rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from helpers.waiting import until_blocking
from trimtab.errors import BadInput
from trimtab.lab import run as runner
from trimtab.lab.experiment import Bar, Report
from trimtab.lab.experiments import EXPERIMENTS, experiment
from trimtab.lab.run import run
from trimtab.lab.worlds.maxdata import MaxData, distinct_draws


def test_every_subscriber_has_its_links_to_different_publishers():
    world = MaxData(publishers=40, subscribers=25, edges=6, rates="high", machines=3, bandwidth=77)

    load = world.make(0)

    assert (len(load.topics), len(load.clients), len(load.brokers), len(load.links)) == (40, 25, 3, 150)
    assert (np.bincount(load.links.client) == 6).all()
    assert set(load.brokers.bandwidth) == {77.0}
    assert set(load.topics.rate) <= set(range(1, 20))


@pytest.mark.parametrize(("rates", "low", "high"), [("homogeneous", 10, 10), ("low", 8, 12), ("high", 1, 19)])
def test_rates_are_drawn_from_their_range(rates, low, high):
    rate = MaxData(publishers=3000, rates=rates).make(1).topics.rate

    assert (rate.min(), rate.max()) == (low, high)
    assert rate.mean() == pytest.approx(10, abs=0.3)


def test_machines_may_differ():
    bandwidth = MaxData(machines=50, bandwidth=100, spread=0.5).make(0).brokers.bandwidth

    assert 50 <= bandwidth.min() < 80 < 120 < bandwidth.max() <= 150


@pytest.mark.parametrize(("draws", "among"), [(3, 4), (3, 200)])
def test_every_set_of_draws_is_equally_likely(draws, among):
    drawn = distinct_draws(np.random.default_rng(0), 20_000, draws, among)

    assert (np.diff(np.sort(drawn, axis=1), axis=1) > 0).all()
    times = np.bincount(drawn.ravel(), minlength=among)
    assert times == pytest.approx(np.full(among, 20_000 * draws / among), rel=0.25)


class Toy:
    """Two jobs a seed; notes in ``ran`` what it did."""

    title, seeds, timed = "a toy", 2, True
    ran: list = []  # noqa: RUF012

    def jobs(self, seeds):
        return [{"cell": c, "seed": s} for c in ("a", "b") for s in range(seeds)]

    def run(self, job):
        if self.ran.count(job) and job["seed"] == 99:
            raise AssertionError
        self.ran.append(job)
        if len(self.ran) == 3:
            raise KeyboardInterrupt
        return [{"value": len(job["cell"]) + job["seed"]}]

    def report(self, rows, out):
        return Report(f"sum {sum(r['value'] for r in rows)}", (Bar.at_most("value", rows[-1]["value"], 2),))


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path, monkeypatch):
    toy = Toy()
    monkeypatch.setattr(runner, "find", lambda name: toy)
    with pytest.raises(KeyboardInterrupt):
        run("toy", None, tmp_path, 1, lambda done, total: None)
    with (tmp_path / "journal.jsonl").open("a") as journal:
        journal.write('{"job": {"cell": "b", "se')  # the process died in the middle of a line
    seen = []

    finished = run("toy", None, tmp_path, 1, lambda done, total: seen.append((done, total)))

    assert seen == [(2, 4), (3, 4), (4, 4)]
    assert [toy.ran.count(job) for job in toy.jobs(2)] == [1, 1, 2, 1]
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist()[3] == {"cell": "b", "seed": 1, "value": 2}
    assert "sum 6" in (tmp_path / "report.md").read_text()
    assert finished.good
    assert finished.judged
    assert json.loads((tmp_path / "run.json").read_text())["seeds"] == 2


def test_a_journal_that_is_not_json_is_named_by_line(tmp_path):
    (tmp_path / "journal.jsonl").write_text('{"experiment": "maxdata-tables"}\nrubbish\n')

    with pytest.raises(BadInput, match=r"journal.jsonl, line 2: not JSON; move the file away to start anew"):
        run("maxdata-tables", 1, tmp_path, 1, lambda done, total: None)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_jobs_are_json_and_no_two_are_alike(name):
    jobs = [json.dumps(job, sort_keys=True) for job in experiment(name).jobs(2)]

    assert len(set(jobs)) == len(jobs)


@pytest.mark.slow
def test_the_tables_come_out_with_two_worker_processes_as_with_one(tmp_path, monkeypatch):
    from trimtab.lab.experiments.maxdata_tables import MaxDataTables

    one = run("maxdata-tables", 1, tmp_path / "one", 1, lambda done, total: None)
    monkeypatch.setattr(MaxDataTables, "timed", False)
    run("maxdata-tables", 1, tmp_path / "two", 2, lambda done, total: None)

    assert not one.judged
    rows = [pq.read_table(tmp_path / n / "rows.parquet").drop_columns("seconds").to_pylist() for n in ("one", "two")]
    assert rows[0] == rows[1]
    assert (tmp_path / "one" / "tables.png").exists()
    assert "| 100, 5 |" in (tmp_path / "one" / "report.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["maxdata-grid", "maxdata-scale"])
def test_reports_are_drawn_from_a_few_cells(name, tmp_path, monkeypatch):
    """The real grid takes minutes; its report must come out of any of its rows."""
    module = sys.modules[type(experiment(name)).__module__]
    if name == "maxdata-grid":
        monkeypatch.setattr(module, "MACHINES", (5, 50))
        monkeypatch.setattr(module, "ILP_SECONDS", 0.1)
    else:
        monkeypatch.setattr(module, "SECTION_VD", module.SECTION_VD[:2])
        monkeypatch.setattr(module, "LARGER", [])
    finished = run(name, 1, tmp_path, 1, lambda done, total: None)

    assert finished.rows > 0
    assert len([p for p in finished.files if p.suffix == ".png"]) >= 1
    assert "must show" in (tmp_path / "report.md").read_text()


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_no_process_and_goes_on(tmp_path):
    """The real command with two workers, killed the hard way in the middle."""
    command = [sys.executable, "-c", KILLABLE, str(tmp_path)]
    journal = tmp_path / "journal.jsonl"
    with subprocess.Popen(command, start_new_session=True) as running:

        def begun():
            assert running.poll() is None
            return journal.exists() and len(journal.read_text().splitlines()) > 5

        until_blocking(begun, 60.0)
        running.kill()
    before = journal.read_text().splitlines()
    until_blocking(lambda: not _processes_of(running.pid))  # workers notice that their parent has gone

    subprocess.run(command, check=True)

    jobs = [json.dumps(json.loads(line)["job"]) for line in journal.read_text().splitlines()[1:]]
    assert len(before) < len(jobs) == len(set(jobs)) == 70
    assert pq.read_table(tmp_path / "rows.parquet").num_rows == 280


KILLABLE = """
import sys
from pathlib import Path
from trimtab.lab.experiments.maxdata_tables import MaxDataTables
from trimtab.lab.run import run

if __name__ == "__main__":
    MaxDataTables.timed = False
    run("maxdata-tables", 10, Path(sys.argv[1]), 2, lambda done, total: None)
"""


def _processes_of(session: int) -> list[str]:
    """Processes of a session that are still there, from /proc."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[3] == str(session) and fields[0] != "Z":
            found.append(stat.parent.name)
    return found
