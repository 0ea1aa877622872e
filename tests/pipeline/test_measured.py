"""The tables of a measurement: weights of links, plain clients, topics that are quiet."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.observe.histogram import Histogram
from trimtab.observe.snapshot import packed, unpack
from trimtab.pipeline.latencies import TopicLatencies
from trimtab.pipeline.measured import Measured, measured_tables

RATES = {"rate": 10.0, "size_bytes": 100.0, "processing_ms": 0.0, "out_rate": None, "out_bytes": 0.0, "relayed": 0.0}


def tables():
    links = [("ann", "t", "pub", "b1"), ("bob", "t", "pub", "b2"), ("bob", "t", "sub", "b2"), ("eve", None, None, "b1"),
             ("ann", "quiet", "pub", "b1"), ("bob", "quiet", "pub", "b2")]  # fmt: skip
    sent = [("ann", "t", "b1", 300), ("bob", "t", "b2", 100), ("stock-b1", "t", "b1", 600)]
    columns = [pa.string()] * 4
    linked = pa.table(dict(zip(("client", "topic", "role", "broker"), map(pa.array, zip(*links, strict=True), columns),
                               strict=True)))  # fmt: skip
    published = pa.table(dict(zip(("client", "topic", "broker", "bytes"), map(list, zip(*sent, strict=True)),
                                  strict=True)))  # fmt: skip
    stock = pa.table({"broker": ["b2"], "topic": ["t"], "subscriptions": [3]})
    rates = pa.table({"topic": ["t"]} | {name: pa.array([value], pa.float64()) for name, value in RATES.items()})
    positions = pa.Table.from_pylist(
        [{"client": "ann", "gateway": "b2", "access_ms": 3.0, "rtts": [("b2", 3.5), ("b1", 9.0), ("b7", 1.0)]},
         {"client": "bob", "gateway": "b1", "access_ms": 5.0, "rtts": None},
         {"client": "eve", "gateway": "b7", "access_ms": 5.0, "rtts": None}],
        schema=pa.schema({"client": pa.string(), "gateway": pa.string(), "access_ms": pa.float64(),
                          "rtts": pa.map_(pa.string(), pa.float64())}),
    )  # fmt: skip
    measured = Measured(linked, published, stock, {"t": 12.5}, positions)
    return measured_tables(rates, measured, ["b1", "b2"], ["t"])


def test_a_measurement_carries_gateways_and_measured_round_trip_times():
    """A gateway that is no broker of the measurement is unknown; plain clients are at their broker."""
    snapshot = unpack(packed(100.0, tables(), {}))

    load = snapshot.workload
    brokers = [*load.brokers.ids, None]
    at = {name: (brokers[row], access) for name, row, access in zip(
        load.clients.ids, snapshot.gateway, snapshot.access_ms.tolist(), strict=True)}  # fmt: skip
    assert at.pop("eve")[0] is None
    assert at == {"ann": ("b2", 3.0), "bob": ("b1", 5.0), "stock-b1": ("b1", 0.0), "stock-b2": ("b2", 0.0)}
    pairs = {(load.clients.ids[c], load.brokers.ids[b]): ms for c, b, ms in zip(
        load.rtt.client, load.rtt.broker, load.rtt.rtt_ms, strict=True)}  # fmt: skip
    assert pairs == {
        ("ann", "b2"): 3.5, ("ann", "b1"): 9.0, ("bob", "b1"): 5.0, ("stock-b1", "b1"): 0.0, ("stock-b2", "b2"): 0.0,
    }  # fmt: skip
    again = unpack(snapshot.pack())
    assert np.array_equal(again.gateway, snapshot.gateway)
    assert np.array_equal(again.access_ms, snapshot.access_ms, equal_nan=True)


def test_links_weigh_their_share_of_publications_or_their_subscriptions():
    rows = {(row["client"], row["topic"], row["role"]): row for row in tables()["links"].to_pylist()}

    assert {key: row["weight"] for key, row in rows.items()} == pytest.approx({
        ("ann", "t", "pub"): 0.3, ("bob", "t", "pub"): 0.1, ("stock-b1", "t", "pub"): 0.6, ("bob", "t", "sub"): 1.0,
        ("stock-b2", "t", "sub"): 3.0, ("ann", "quiet", "pub"): 0.5, ("bob", "quiet", "pub"): 0.5,
    })  # fmt: skip
    assert rows["stock-b1", "t", "pub"]["broker"] == "b1"


def test_topics_know_plain_publishers_and_copies_for_the_hub():
    topics = {row["id"]: row for row in tables()["topics"].to_pylist()}

    assert (topics["t"]["relayed"], topics["t"]["taps"], topics["t"]["out_rate"]) == (pytest.approx(0.6), 1.0, None)
    assert (topics["quiet"]["rate"], topics["quiet"]["taps"]) == (0.0, 0.0)
    assert {row["id"] for row in tables()["clients"].to_pylist()} == {"ann", "bob", "eve", "stock-b1", "stock-b2"}


@settings(max_examples=30)
@given(
    samples=st.lists(
        st.dictionaries(
            st.sampled_from(["a", "b"]), st.dictionaries(st.integers(0, 150), st.integers(1, 30), min_size=1)
        ),
        max_size=8,
    )
)
def test_p90_is_that_of_the_merged_histograms_of_the_span(samples):
    latencies, merged = TopicLatencies(20.0), {}
    for number, sample in enumerate(samples):
        rows = [(topic, bucket, hits) for topic, counts in sample.items() for bucket, hits in counts.items()]
        columns = zip(*rows, strict=True) if rows else ([], [], [])
        kinds = (pa.string(), pa.int32(), pa.int64())
        table = {name: pa.array(list(values), kind) for name, values, kind in zip(
            ("topic", "bucket", "hits"), columns, kinds, strict=True)}  # fmt: skip
        latencies.add(pa.table(table), 5.0 * number)
    for sample in samples[-4:]:  # 20 s are four samples of 5 s
        for topic, counts in sample.items():
            merged.setdefault(topic, Histogram()).merge(Histogram(counts))

    assert latencies.p90_ms() == pytest.approx({topic: 1000 * each.percentile(0.9) for topic, each in merged.items()})


def test_a_measurement_carries_latencies_and_none_where_nothing_was_delivered():
    measured = tables()
    snapshot = unpack(packed(100.0, measured, {}))

    p90 = dict(zip(snapshot.workload.topics.ids, snapshot.p90_ms, strict=True))
    assert p90["t"] == 12.5
    assert math.isnan(p90["quiet"])
    assert np.array_equal(unpack(snapshot.pack()).p90_ms, snapshot.p90_ms, equal_nan=True)


def test_a_measurement_of_an_older_pipeline_has_no_latencies():
    measured = tables()
    measured["topics"] = measured["topics"].drop_columns(["p90_ms"])

    assert unpack(packed(100.0, measured, {})).p90_ms is None
