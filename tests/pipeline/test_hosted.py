"""Samples for latency models, from the history of telemetry."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from trimtab.cli.main import trimtab as commands
from trimtab.errors import BadInput
from trimtab.model.hardware import PLAIN, Hardware
from trimtab.observe.histogram import Histogram
from trimtab.pipeline import telemetry
from trimtab.pipeline.hosted import WINDOW_S, hosted_windows, read_samples
from trimtab.predict.simulator import Hosted, latencies

pytestmark = pytest.mark.timeout(240)

TRUE = Hardware("true", cores=2, service=((0.0, 0.0), (1.0, 1.0)), contention=0.1, message_cv=0.05, network_ms=3.0)


def row(at, broker, topic, processed, ms, delivered=(), period=WINDOW_S / 2):
    histogram = Histogram()
    histogram.add_many([each / 1000.0 for each in delivered])
    counts = dict(histogram.counts)
    busy = float(ms * processed / 1000.0)
    return (float(at), period, broker, topic, 0, 0, 0, 0, processed, busy, counts, processed, 100)


def frame(spark, rows):
    return spark.createDataFrame(rows, telemetry.TOPICS)


def test_windows_have_the_topics_that_a_broker_processed(spark):
    """The subscribers of t0 are at another broker; the edges of the history are left out."""
    rows = []
    for number in range(4):
        for half in (10, 40):
            at = WINDOW_S * number + half
            rows += [row(at, "b1", "t0", 60, 5.0), row(at, "b2", "t0", 0, 0.0, [20.0] * 60)]
            rows += [row(at, "b1", "t1", 30, 8.0, [30.0] * 30), row(at, "b1", "plain", 0, 0.0, [1.0] * 50)]

    found = hosted_windows(frame(spark, rows)).orderBy("begin", "topic").collect()

    assert [(each.begin, each.broker, each.topic) for each in found] == [
        (60.0, "b1", "t0"), (60.0, "b1", "t1"), (120.0, "b1", "t0"), (120.0, "b1", "t1"),
    ]  # fmt: skip
    assert [each.rate for each in found[:2]] == [2.0, 1.0]
    assert [each.processing_ms for each in found[:2]] == pytest.approx([5.0, 8.0])
    assert [each.p90_ms for each in found[:2]] == pytest.approx([20.0, 30.0], rel=0.05)


def test_a_window_is_left_out_if_the_p90_of_one_of_its_topics_is_not_known(spark):
    rows = []
    for number in range(3):
        at = WINDOW_S * number + 10
        rows += [row(at, "b1", "few", 60, 5.0, [9.0] * 19), row(at, "b1", "t1", 60, 5.0, [9.0] * 60)]
        rows += [row(at, "b2", "both", 60, 5.0, [9.0] * 60), row(at, "b3", "both", 60, 5.0, [9.0] * 60)]
        rows += [row(at, "b4", "good", 60, 5.0, [9.0] * 60)]

    found = hosted_windows(frame(spark, rows)).collect()

    assert [(each.broker, each.topic) for each in found] == [("b4", "good")]


@pytest.fixture
def past(spark, tmp_path):
    """Half an hour of two simulated brokers whose traffic changes every minute."""
    rng, rows = np.random.default_rng(0), []
    for number in range(32):
        for broker in ("b1", "b2"):
            count = int(rng.integers(1, 5))
            rate, ms = rng.integers(4, 22, count).astype(float), rng.uniform(5.0, 25.0, count)
            measured = latencies(TRUE, Hosted.of(rate, ms), seed=number, duration_s=WINDOW_S, warm_up_s=0.0)
            for topic in range(count):
                told = row(WINDOW_S * number + 30, broker, f"{broker}.{topic}", len(measured[topic]), ms[topic],
                           measured[topic], WINDOW_S)  # fmt: skip
                rows.append(told)
    brokers = [(30.0, 1.0, "b1", 0.5, 1, 1, 0, 0, 0, 0, 0, 0)]
    for name, kept in (("topics", rows), ("brokers", brokers), ("links", [(30.0, "b1", "c", "b1.0", "sub")])):
        spark.createDataFrame(kept, telemetry.TABLES[name]).write.parquet(str(tmp_path / "history" / name / "at-1"))
    return tmp_path / "history"


def test_a_profile_can_be_made_of_the_past_of_a_fleet(spark, past, tmp_path, monkeypatch):
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)
    words = [
        "profile",
        "--history",
        str(past),
        "--cores",
        "2",
        "--name",
        "city",
        "--out",
        str(tmp_path / "out"),
        "--json",
    ]

    done = CliRunner().invoke(commands, list(map(str, words)), catch_exceptions=False, standalone_mode=False)

    values = json.loads(done.output)
    assert values["runs"] == 2 * 30
    assert values["hardware"]["name"] == "city"
    assert values["accuracy"]["error"] < 0.15
    assert values["noise"] == {"topics": 0, "median": None, "of_nine": None}
    text = (tmp_path / "out" / "report.md").read_text()
    assert "from its history of telemetry" in text
    assert "nan" not in text.split("```")[0]


def test_a_history_without_a_usable_window_is_refused(spark, tmp_path):
    rows = [row(10 + WINDOW_S * number, "b1", "t", 0, 0.0, [9.0] * 60) for number in range(4)]
    for name, kept in (("topics", rows), ("brokers", []), ("links", [])):
        spark.createDataFrame(kept, telemetry.TABLES[name]).write.parquet(str(tmp_path / "history" / name / "at-1"))

    with pytest.raises(BadInput, match="no window of 60 s in which a broker processed topics"):
        read_samples(spark, tmp_path / "history", PLAIN)
