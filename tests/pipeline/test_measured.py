"""The tables of a measurement: weights of links, plain clients, topics that are quiet."""

from __future__ import annotations

import pyarrow as pa
import pytest

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
    return measured_tables(rates, Measured(linked, published, stock), ["b1", "b2"], ["t"])


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
