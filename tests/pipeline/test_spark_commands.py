"""The commands that start Spark, in the form that people read; the session of the other tests stands in for theirs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from trimtab.cli.main import trimtab as commands
from trimtab.fleet.site.credentials import Fleet
from trimtab.model.folder import write_workload
from trimtab.model.ids import Ids
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.pipeline import history, hub, telemetry
from trimtab.pipeline.manifest import load

pytestmark = pytest.mark.timeout(240)

MANIFEST = """app: words
feeds:
  reports:
    topic: words.reports
    schema: {id: int, kind: string, lat: double, lon: double}
channels:
  words-near:
    parameters: {lat: double, lon: double, km: double}
    period: continuous
    allow_cross: true
    query: SELECT id FROM reports WHERE distance_km(lat, lon, :lat, :lon) <= :km
"""


@pytest.fixture(autouse=True)
def one_session(spark, monkeypatch):
    """A command ends its session, but there is one to a process, and others need it."""
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "words.yaml"
    path.write_text(MANIFEST)
    return path


@pytest.fixture
def kept(spark, tmp_path):
    """History of one topic over three seconds."""
    topics = [(float(s), 1.0, "b1", "cars", 10, 1000, 0, 0, 5, 0.01, {40: 2}, 7, 70) for s in range(1, 4)]
    brokers = [(float(s), 1.0, "b1", 0.5, 1, 1, 0, 0, 0, 0, 0, 0) for s in range(1, 4)]
    links = [(float(s), "b1", "taxi", "cars", "sub") for s in range(1, 4)]
    for name, rows in (("topics", topics), ("brokers", brokers), ("links", links)):
        spark.createDataFrame(rows, telemetry.TABLES[name]).write.parquet(str(tmp_path / "history" / name / "at-1"))
    return tmp_path / "history"


def run(*words):
    done = CliRunner().invoke(commands, list(map(str, words)), catch_exceptions=False, standalone_mode=False)
    assert done.exit_code == 0
    return done.output


def test_history_is_a_table(kept, tmp_path):
    shown = run("history", "--from", kept, "--out", tmp_path / "all.parquet")

    assert "history by topic" in shown
    assert re.search(r"│ cars  │ +10\.00 │ +1\.00 │", shown)
    assert f"all rows: {tmp_path / 'all.parquet'}" in shown.replace("\n", "")


def test_a_workload_is_summed_up(kept, tmp_path):
    shown = run("workload", "--from", kept, "--out", tmp_path / "made")

    assert re.search(r"links +│ +1 │", shown)
    assert "3 rows of history over 3 s" in shown


def test_rates_of_topics_in_windows_say_where_nothing_was_measured(spark, kept):
    rows = [(float(s), 1.0, "b1", "cars", 4, 1, 0, 0, 0, 0.0, {}, 0, 0) for s in (9, 10, 11, 12)]
    spark.createDataFrame(rows, telemetry.TABLES["topics"]).write.parquet(str(kept / "topics" / "at-2"))
    alive = [(float(s), 1.0, "b1", 0.5, 1, 1, 0, 0, 0, 0, 0, 0) for s in (4, 5, 9, 10, 11, 12)]
    spark.createDataFrame(alive, telemetry.TABLES["brokers"]).write.parquet(str(kept / "brokers" / "at-2"))

    names, rates = history.topic_rates(spark, kept, 2.0, 0.0)

    assert names == ("cars",)
    assert rates[0].tolist()[:2] == [5.0, 10.0]  # from second 0 and 2
    assert rates[0, 2] == 0.0  # measured, without messages
    assert np.isnan(rates[0, 3])
    assert rates[0, 4:].tolist() == [2.0, 4.0] or rates[0, 4:].tolist() == [2.0, 4.0, 2.0]


def test_rightsize_learns_from_history(kept, tmp_path):
    world = tmp_path / "city"
    write_workload(
        Workload(
            Topics(Ids(["cars"]), np.full(1, 10.0), processing_ms=np.full(1, 5.0), latency_ms=np.full(1, 200.0)),
            Clients(Ids(["taxi"])), Brokers(Ids(["b1", "b2"])),
            Links.subscriptions(np.zeros(1, np.int32), np.zeros(1, np.int32)),
        ),
        world,
    )  # fmt: skip

    shown = run("rightsize", world, "--from", kept, "--hours", 0.003)

    assert "needs 1 broker of 2" in shown or "need 1 broker of 2" in shown
    assert "windows of 1 s" in shown


def test_a_channel_is_explained(manifest):
    shown = run("channel", "explain", manifest, "words-near")

    assert "-- shared by all subscriptions\n" in shown
    assert "-- the same with indexes" in shown
    assert "-- Spark's plan\n" in shown


def test_a_query_is_answered_with_a_table(fleet, manifest):
    hub.prepare(Fleet.load(fleet.home / "fleet.json"), load(manifest))

    tables = run("query", manifest, "--home", fleet.home)
    shown = run("query", manifest, "SELECT 7 AS seven, count(*) AS reports FROM reports", "--home", fleet.home)

    assert re.search(r"rejects +│ feed string, ", tables)
    assert re.search(r"│ 7 +│ 0 +│", shown)
