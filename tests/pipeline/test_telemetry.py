"""Telemetry on Spark against the same thing counted in plain Python; history, and what is not history."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql import functions as F

from trimtab.errors import BadInput
from trimtab.fleet.protocol import coding
from trimtab.model.folder import read_workload
from trimtab.observe.histogram import Histogram
from trimtab.observe.report import BrokerReport, ClientPosition, TopicReport
from trimtab.observe.schema import spark_ddl
from trimtab.pipeline import feeds, history, telemetry
from trimtab.pipeline.averages import TopicAverages

names = st.sampled_from(["a", "b", "ümlaut", "x.y"])
counts = st.integers(0, 1000)


@st.composite
def topic_reports(draw):
    latency = Histogram(draw(st.dictionaries(st.integers(0, 200), st.integers(1, 50), max_size=4)))
    known = (draw(counts), draw(counts), draw(counts), draw(counts), 1, 2, draw(counts), 0, 0.5, latency)
    return TopicReport(*known, draw(counts), draw(counts))


@st.composite
def broker_reports(draw):
    links = st.dictionaries(names, st.dictionaries(names, st.lists(st.sampled_from(["pub", "sub"]), unique=True)))
    return BrokerReport(
        draw(st.sampled_from(["b1", "b2"])), 100.0 + draw(st.integers(0, 9)), 1.0, 0.25, 10, 3, 0, 5, 7, 11, 13,
        draw(st.dictionaries(names, topic_reports(), max_size=3)), draw(st.none() | links),
        draw(st.none() | st.dictionaries(names, st.dictionaries(names, counts))),
        draw(st.none() | st.dictionaries(names, counts)),
    )  # fmt: skip


def messages(spark, bodies):
    at = datetime.fromtimestamp(100, UTC)
    rows = [("telemetry", number, at, "telemetry.b1", bytearray(body)) for number, body in enumerate(bodies)]
    return spark.createDataFrame(rows, feeds.MESSAGES).coalesce(1)


def encoded(reports):
    return [coding.to_json(each) for each in reports]


def plain(value):
    """A row of Spark as JSON would tell it, without what was not told."""
    if isinstance(value, Row):
        value = value.asDict()
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items() if each is not None}
    return [plain(each) for each in value] if isinstance(value, list) else value


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports=st.lists(broker_reports(), min_size=1, max_size=3))
def test_spark_reads_a_report_without_loss(spark, reports):
    """JSON by the encoder, read by the schema that follows from the declaration."""
    said = messages(spark, encoded(reports)).select(
        F.from_json(F.col("data").cast("string"), spark_ddl(BrokerReport)).alias("report")
    )

    read = [BrokerReport.decode(plain(row.report)) for row in said.collect()]

    assert read == reports


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports=st.lists(broker_reports(), max_size=4, unique_by=lambda each: (each.broker, each.at)))
def test_who_published_how_much_and_what_stock_clients_listen_to(spark, reports):
    said = telemetry.reports(messages(spark, encoded(reports)))

    sent = {(r.at, r.broker, r.client, r.topic): r.bytes for r in telemetry.published(said).collect()}
    stock = {(r.at, r.broker, r.topic): r.subscriptions for r in telemetry.stock_subscriptions(said).collect()}
    results = {(r.at, r.broker, r.topic): (r.result_msgs, r.result_bytes) for r in telemetry.topics(said).collect()}

    assert sent == {
        (each.at, each.broker, client, topic): size
        for each in reports
        for client, topics in (each.published or {}).items()
        for topic, size in topics.items()
    }
    assert stock == {
        (each.at, each.broker, topic): count
        for each in reports
        for topic, count in (each.stock_subscriptions or {}).items()
    }
    assert results == {
        (each.at, each.broker, topic): (of.result_msgs, of.result_bytes)
        for each in reports
        for topic, of in each.topics.items()
    }


def test_the_newest_position_of_a_client_counts(spark):
    """A client that has changed its home is in the lists of two brokers."""
    early = BrokerReport("b1", 100.0, 1.0, positions={"ann": ClientPosition("b1", 2.0, {"b1": 2.0, "b2": 9.0})})
    late = BrokerReport("b2", 105.0, 1.0, positions={"ann": ClientPosition("b2", 1.5), "bob": ClientPosition("b1", 0)})
    said = telemetry.reports(messages(spark, encoded([late, early, BrokerReport("b3", 106.0, 1.0)])))

    rows = {row.client: (row.gateway, row.access_ms, row.rtts) for row in telemetry.positions(said).collect()}

    assert rows == {"ann": ("b2", 1.5, None), "bob": ("b1", 0.0, None)}


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports=st.lists(broker_reports(), max_size=5, unique_by=lambda each: (each.broker, each.at)))
def test_reports_become_rows_that_add_up(spark, reports):
    said = telemetry.reports(messages(spark, [*encoded(reports), b"not json", b'{"at": 1}']))

    rows = {(r.at, r.broker, r.topic): r for r in telemetry.topics(said).collect()}
    assert set(rows) == {(each.at, each.broker, topic) for each in reports for topic in each.topics}
    for each in reports:
        for topic, report in each.topics.items():
            row = rows[each.at, each.broker, topic]
            assert (row.in_msgs, row.out_bytes, row.processed) == (report.in_msgs, report.out_bytes, report.processed)
            assert dict(row.latency) == report.latency.counts
    assert {(r.broker, r.at, r.in_msgs, r.out_bytes) for r in telemetry.brokers(said).collect()} == {
        (each.broker, each.at, each.in_msgs, each.out_bytes) for each in reports
    }

    since, until = 100.0, 110.0
    known = {r.topic: r for r in telemetry.rates(telemetry.topics(said), since, until).collect()}
    for topic, row in known.items():
        inside = [each.topics[topic] for each in reports if topic in each.topics and since < each.at <= until]
        total = sum(each.in_msgs for each in inside)
        assert row.rate == pytest.approx(total / 10.0)
        assert row.size_bytes == pytest.approx(sum(each.in_bytes for each in inside) / total if total else 0.0)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports=st.lists(broker_reports(), min_size=1, max_size=5, unique_by=lambda each: (each.broker, each.at)))
def test_percentiles_are_those_of_the_merged_histograms(spark, reports):
    rows = telemetry.topics(telemetry.reports(messages(spark, encoded(reports))))
    found = {r.broker: r for r in telemetry.percentiles(rows, ["broker"], [0.5, 0.99]).collect()}

    for broker in ("b1", "b2"):
        whole = Histogram()
        for each in reports:
            for report in each.topics.values():
                if each.broker == broker:
                    whole.merge(report.latency)
        if not whole.total:
            assert broker not in found
            continue
        assert found[broker].deliveries == whole.total
        assert found[broker]["p50_ms"] == pytest.approx(1000 * whole.percentile(0.5))
        assert found[broker]["p99_ms"] == pytest.approx(1000 * whole.percentile(0.99))


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports=st.lists(broker_reports(), max_size=5, unique_by=lambda each: (each.broker, each.at)))
def test_links_are_those_of_the_newest_list_of_each_broker(spark, reports):
    rows = telemetry.links(telemetry.reports(messages(spark, encoded(reports))))
    channels = spark.createDataFrame(
        [("a", "channel:c:1", "sub"), ("gone", "channel:c:1", "sub")], "client STRING, topic STRING, role STRING"
    )
    found = {(r.client, r.topic, r.role) for r in telemetry.current_links(rows, channels).collect()}

    newest = {}
    for each in reports:
        if each.links and each.at >= newest.get(each.broker, each).at:
            newest[each.broker] = each
    wanted = set()
    for each in newest.values():
        for client, opened in each.links.items():
            triples = [(client, topic, role) for topic, roles in opened.items() for role in roles or [None]]
            wanted |= set(triples or [(client, None, None)])
    clients = {client for client, _, _ in wanted}
    assert found == wanted | ({("a", "channel:c:1", "sub")} if "a" in clients else set())


def test_averages_are_brought_up_to_date_by_what_is_new(spark):
    """Topics that come later are new, those that are quiet fade, and each half of a look counts in its own time."""
    rows = spark.createDataFrame(
        [(float(at), 1.0, "b1", "steady", 40, 400, 0, 0, 4, 0.02, {}, 4, 80) for at in range(1, 41)]
        + [(float(at), 1.0, "b2", "later", 30, 90, 0, 0, 0, 0.0, {}, 0, 0) for at in range(21, 41)]
        + [(float(at), 1.0, "b2", "over", 30, 90, 0, 0, 0, 0.0, {}, 0, 0) for at in range(1, 21)],
        telemetry.TOPICS,
    ).coalesce(1)

    kept = TopicAverages(20.0, began=0.0)
    for now in range(4, 41, 4):
        fresh = rows.where((rows.at > now - 4.0) & (rows.at <= now))
        kept.add(telemetry.halves(fresh, now - 2.0).toArrow(), now - 2.0, float(now))

    found = {row["topic"]: row for row in kept.rates().to_pylist()}
    recent = {name: row.pop("recent") for name, row in found.items()}
    assert recent["steady"] == pytest.approx(40.0)
    assert recent["over"] < 0.1 * found["over"]["rate"]  # twenty seconds ago: the average does not know it yet
    rates = {"rate": 40.0, "size_bytes": 10.0, "processing_ms": 5.0, "out_rate": 4.0, "out_bytes": 20.0, "relayed": 1.0}
    assert found["steady"] == pytest.approx({"topic": "steady", **rates})
    plain = {"rate": 30.0, "size_bytes": 3.0, "processing_ms": 0.0, "out_bytes": 0.0, "relayed": 0.0}
    assert found["later"].pop("out_rate") is None  # it has no processor
    assert found["later"] == pytest.approx({"topic": "later", **plain})
    assert found["over"]["rate"] == pytest.approx(30.0 * math.exp(-1))  # nobody knows yet how much it varies


def test_what_is_over_is_forgotten(spark):
    rows = spark.createDataFrame([(1.0, 1.0, "b1", "once", 5, 50, 0, 0, 0, 0.0, {}, 0, 0)], telemetry.TOPICS)
    kept = TopicAverages(10.0, began=0.0)
    kept.add(telemetry.halves(rows, 0.5).toArrow(), 0.5, 1.0)
    assert kept.rates()["topic"].to_pylist() == ["once"]

    nothing = telemetry.halves(rows.where("false"), 0.0).toArrow()
    kept.add(nothing, 200.0, 400.0)

    assert kept.rates().num_rows == 0
    assert 0.0 < kept.unsure() <= 1.0  # it may come again
    kept.add(nothing, 4000.0, 5000.0)
    assert kept.unsure() == 0.0


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reports=st.lists(broker_reports(), max_size=4, unique_by=lambda each: (each.broker, each.at)))
def test_lists_of_links_are_marked_alike_if_they_are_alike(spark, reports):
    said = telemetry.reports(messages(spark, encoded(reports)))
    found = {(r.broker, r.at): r.mark for r in telemetry.marks(said).collect()}

    listed = {(each.broker, each.at): json.dumps(each.encode()["links"]) for each in reports if each.links is not None}
    assert set(found) == set(listed)
    for one in found:
        for other in found:
            assert (found[one] == found[other]) == (listed[one] == listed[other])


def test_clients_that_share_topics_are_counted_in_pairs(spark):
    linked = spark.createDataFrame(
        [("x", "t1", "sub"), ("y", "t1", "sub"), ("x", "t2", "sub"), ("y", "t2", "sub"), ("z", "t2", "pub")],
        "client STRING, topic STRING, role STRING",
    )  # fmt: skip

    assert [tuple(row) for row in telemetry.shared(linked).collect()] == [("x", "y", 2)]
    assert telemetry.shared(linked, most=1).count() == 0


def test_results_and_subscriptions_of_channels(spark):
    rows = [
        ("results", 1, datetime.fromtimestamp(9.5, UTC), "res.near.abc", bytearray(b"12345")),
        ("results", 2, datetime.fromtimestamp(9.9, UTC), "res.near.abc", bytearray(b"123")),
    ]
    found = telemetry.results(spark.createDataFrame(rows, feeds.MESSAGES)).collect()
    assert [(r.at, r.topic, r.in_msgs, r.in_bytes) for r in found] == [(10.0, "channel:near:abc", 2, 8)]

    rows = [("subscriptions", 1, datetime.fromtimestamp(9, UTC), "sub.near.abc.taxi-7", bytearray(b"{}"))]
    (row,) = telemetry.subscriptions(spark.createDataFrame(rows, feeds.MESSAGES)).collect()
    assert tuple(row) == ("taxi-7", "channel:near:abc", "sub")


@pytest.fixture
def kept(spark, tmp_path):
    """History of two topics over ten seconds."""
    folder = tmp_path / "history"
    topics = [
        (float(s), 1.0, "b1", t, 10 * n, 1000 * n, 0, 0, 5, 0.01, {40: 2}, 7, 70)
        for s in range(1, 11)
        for n, t in ((1, "slow"), (2, "fast"))
    ]
    brokers = [(float(s), 1.0, "b1", 0.5, 1, 1, 0, 0, 0, 0, 0, 0) for s in range(1, 11)]
    links = [(float(s), "b1", "taxi", "fast", "sub") for s in range(1, 11)] + [(3.0, "b1", "bus", "slow", "pub")]
    for name, rows in (("topics", topics), ("brokers", brokers), ("links", links)):
        spark.createDataFrame(rows, telemetry.TABLES[name]).write.parquet(str(folder / name / "at-1"))
    return folder


def test_history_becomes_a_workload(spark, kept, tmp_path):
    said = history.write_workload(spark, kept, tmp_path / "out")

    assert said["events"] == 20
    assert said["span_s"] == 10.0
    known = read_workload(tmp_path / "out")
    rates = dict(zip(known.topics.ids, known.topics.rate.tolist(), strict=True))
    assert rates == {"slow": 10.0, "fast": 20.0}
    assert set(known.topics.size_bytes.tolist()) == {100.0}
    assert set(known.clients.ids) == {"taxi", "bus"}
    assert len(known.links) == 2
    half = history.write_workload(spark, kept, tmp_path / "half", since=5.0)
    assert half["events"] == 10
    later = read_workload(tmp_path / "half").topics
    assert dict(zip(later.ids, later.rate.tolist(), strict=True))["fast"] == 20.0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda frame: frame.drop("in_bytes"), "no column 'in_bytes'"),
        (lambda frame: frame.withColumn("topic", frame.at), "'topic' is double, but must be text"),
    ],
)
def test_history_of_another_schema_is_refused(spark, kept, tmp_path, change, sentence):
    other = tmp_path / "other"
    for name in telemetry.TABLES:
        frame = spark.read.parquet(str(kept / name / "at-1"))
        (change(frame) if name == "topics" else frame).write.parquet(str(other / name))

    with pytest.raises(BadInput, match=sentence):
        history.check_folders(other)


def test_older_history_has_no_results_of_processors(spark, kept):
    """And may lie beside newer history."""
    old = spark.read.parquet(str(kept / "topics" / "at-1")).drop(*telemetry.ADDED)
    old.write.parquet(str(kept / "topics" / "at-0"))

    history.check_folders(kept)

    found = history.read(spark, kept, "topics").groupBy("result_msgs", "result_bytes").count().collect()
    assert {tuple(row) for row in found} == {(0, 0, 20), (7, 70, 20)}


def test_one_file_of_another_schema_among_good_ones_is_found(spark, kept):
    """Spark would take what it has not for nothing, and add up too little."""
    history.check_folders(kept)
    spark.createDataFrame([(1.0, "b1")], "at DOUBLE, broker STRING").write.parquet(str(kept / "topics" / "at-2"))

    with pytest.raises(BadInput, match=r"at-2/.*\.parquet has no column 'period_s' \(a number\); it has at, broker"):
        history.check_folders(kept)


def test_a_file_that_is_cut_off_is_named(kept):
    file = next((kept / "links").glob("**/*.parquet"))
    file.write_bytes(file.read_bytes()[:100])

    with pytest.raises(BadInput, match=f"{file} is no Parquet file"):
        history.check_folders(kept)


def test_a_time_in_which_nothing_was_measured_does_not_count(spark, kept, tmp_path):
    """The pipeline was away for days between two times of ten seconds."""
    for name in telemetry.TABLES:
        frame = spark.read.parquet(str(kept / name / "at-1"))
        frame.withColumn("at", frame.at + 400_000.0).write.parquet(str(kept / name / "at-2"))

    said = history.write_workload(spark, kept, tmp_path / "out")

    assert said["span_s"] == 400_010.0
    assert 20.0 <= said["measured_s"] <= 30.0
    known = read_workload(tmp_path / "out").topics
    rates = dict(zip(known.ids, known.rate.tolist(), strict=True))
    assert rates["fast"] == pytest.approx(400.0 / said["measured_s"])


def test_windows_of_topics_brokers_clients_and_pairs(spark, kept):
    def rows(by, **more):
        return [row.asDict() for row in history.windows(spark, kept, by, **more).collect()]

    fast = {row["begin"]: row for row in rows("topic", every_s=5.0) if row["topic"] == "fast"}
    assert sorted(fast) == [0.0, 5.0, 10.0]
    assert fast[5.0]["in_msgs_per_s"] == 20.0
    assert fast[5.0]["in_bytes_per_s"] == 2000.0
    assert fast[5.0]["processing_ms"] == pytest.approx(2.0)
    assert fast[5.0]["deliveries"] == 10
    assert fast[5.0]["p50_ms"] == fast[5.0]["p99_ms"] > 0.0

    (whole,) = [row for row in rows("topic") if row["topic"] == "slow"]
    assert (whole["begin"], whole["in_msgs_per_s"]) == (0.0, 10.0)

    (broker,) = rows("broker", since=5.0)
    assert (broker["broker"], broker["cores"], broker["connections"], broker["deliveries"]) == ("b1", 0.5, 1, 20)

    taxi = {row["begin"]: row for row in rows("client", every_s=5.0) if row["client"] == "taxi"}
    assert taxi[5.0] == {
        "begin": 5.0, "client": "taxi", "subscriptions": 1, "in_msgs_per_s": 20.0, "in_bytes_per_s": 2000.0,
    }  # fmt: skip
    assert {row["client"] for row in rows("client")} == {"taxi"}  # the bus only publishes
    assert rows("pair") == []


def test_history_has_the_subscriptions_to_channels_of_whoever_is_there(spark):
    """Else a workload made of it has results that nobody wants."""
    links = spark.createDataFrame(
        [(1.0, "b1", "old", "a", "sub"), (3.0, "b1", "taxi", "a", "sub"), (3.0, "b1", "taxi", "b", "pub")],
        telemetry.LINKS,
    )
    channels = spark.createDataFrame(
        [("taxi", "channel:near:1", "sub"), ("old", "channel:near:1", "sub")],
        "client STRING, topic STRING, role STRING",
    )

    found = [tuple(row) for row in telemetry.listed_channels(links, channels).collect()]

    assert found == [(3.0, "b1", "taxi", "channel:near:1", "sub")]


def test_what_is_no_history_is_refused(tmp_path):
    (tmp_path / "topics").mkdir()
    with pytest.raises(BadInput, match="no Parquet files in"):
        history.check_folders(tmp_path)


def test_a_time_without_history_is_refused(spark, kept, tmp_path):
    with pytest.raises(BadInput, match="no history between"):
        history.write_workload(spark, kept, tmp_path / "out", since=1e9)
