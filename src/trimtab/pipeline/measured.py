"""The tables of a measurement: rates and latencies of topics, and links with their broker and weight.

The weight of a publishing link is its share of the topic's publications; the weight of a subscribing link is its number
of subscriptions. All plain NATS and MQTT clients of a broker are one client, ``stock-BROKER``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.fleet.protocol.names import STOCK

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trimtab.model.workload import Floats

    Located = tuple[str | None, float | None, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Measured:
    """Links and publications that brokers have reported."""

    links: pa.Table  # client, topic, role, broker; topic is null for a client without links
    publications: pa.Table  # client, topic, broker, bytes published recently
    stock: pa.Table  # broker, topic, subscriptions
    p90_ms: Mapping[str, float] = field(default_factory=dict)  # of delivery times, by topic
    positions: pa.Table | None = None  # client, gateway, access_ms, rtts


def measured_tables(
    rates: pa.Table, measured: Measured, brokers: list[str], tapped: Collection[str] = ()
) -> dict[str, pa.Table]:
    """Topics, clients, brokers, links and measured round-trip times. The hub gets a copy of every publication to a
    ``tapped`` topic."""
    links = _links(measured)
    topics = _topics(rates, links, tapped)
    p90 = [measured.p90_ms.get(name) for name in topics["id"].to_pylist()]
    topics = topics.append_column("p90_ms", pa.array(p90, pa.float64()))
    clients = pa.chunked_array([*measured.links["client"].chunks, *links["client"].chunks], pa.string())
    names = pc.unique(clients)
    located = _located(measured, names.to_pylist(), set(brokers))
    columns = {"id": names, "gateway": pa.array([gateway for gateway, _, _ in located], pa.string()),
               "access_ms": pa.array([access for _, access, _ in located], pa.float64())}  # fmt: skip
    return {
        "topics": topics, "clients": pa.table(columns),
        "brokers": pa.table({"id": pa.array(brokers, pa.string())}), "links": links,
        "rtt": _pairs(names.to_pylist(), located),
    }  # fmt: skip


def _located(measured: Measured, names: list[str], brokers: set[str]) -> list[Located]:
    """Gateway, time to it and measured times of every client; plain clients are at their broker."""
    reported = measured.positions.to_pylist() if measured.positions is not None else []
    known: dict[str, Located] = {}
    for row in reported:
        if row["gateway"] in brokers and row["access_ms"] is not None:
            rtts = {broker: ms for broker, ms in dict(row["rtts"] or ()).items() if broker in brokers}
            known[row["client"]] = row["gateway"], row["access_ms"], {row["gateway"]: row["access_ms"]} | rtts
    at_home = {f"{STOCK}{broker}": (broker, 0.0, {broker: 0.0}) for broker in brokers}
    return [known.get(name) or at_home.get(name) or (None, None, {}) for name in names]


def _pairs(names: list[str], located: list[Located]) -> pa.Table:
    measured = zip(names, (rtts for _, _, rtts in located), strict=True)
    rows = [(name, broker, ms) for name, rtts in measured for broker, ms in rtts.items()]
    columns = ([row[column] for row in rows] for column in range(3))
    kinds = zip(("client", "broker", "rtt_ms"), (pa.string(), pa.string(), pa.float64()), columns, strict=True)
    return pa.table({name: pa.array(values, kind) for name, kind, values in kinds})


def _links(measured: Measured) -> pa.Table:
    reported = measured.links.filter(pc.is_valid(measured.links["topic"]))
    publications, stock = measured.publications, measured.stock
    by_stock = publications.filter(pc.starts_with(publications["client"], STOCK))
    columns: dict[str, list[Any]] = {
        "topic": [reported["topic"], by_stock["topic"], stock["topic"]],
        "client": [reported["client"], by_stock["client"], _stock_of(stock["broker"])],
        "role": [reported["role"], pa.repeat("pub", len(by_stock)), pa.repeat("sub", len(stock))],
        "broker": [reported["broker"], by_stock["broker"], stock["broker"]],
    }
    links = pa.table({name: _concatenated(parts) for name, parts in columns.items()})
    count = np.concatenate([np.ones(len(reported) + len(by_stock)), np.asarray(stock["subscriptions"], np.float64)])
    return links.append_column("weight", pa.array(_weights(links, publications, count)))


def _weights(links: pa.Table, publications: pa.Table, count: Floats) -> Floats:
    """Shares of publications by bytes; equal shares where nothing was published recently."""
    publishes = np.asarray(pc.equal(links["role"], "pub"), bool)
    topic, client = links["topic"].to_pylist(), links["client"].to_pylist()
    amount: Mapping[tuple[str, str], float] = dict(
        zip(zip(publications["client"].to_pylist(), publications["topic"].to_pylist(), strict=True),
            publications["bytes"].to_pylist(), strict=True)
    )  # fmt: skip
    weight, total, publishers = count.copy(), dict[str, float](), dict[str, int]()
    rows = np.flatnonzero(publishes).tolist()
    for row in rows:
        weight[row] = amount.get((client[row], topic[row]), 0.0)
        total[topic[row]] = total.get(topic[row], 0.0) + weight[row]
        publishers[topic[row]] = publishers.get(topic[row], 0) + 1
    for row in rows:
        topic_total = total[topic[row]]
        weight[row] = weight[row] / topic_total if topic_total > 0.0 else 1.0 / publishers[topic[row]]
    return weight


def _topics(rates: pa.Table, links: pa.Table, tapped: Collection[str]) -> pa.Table:
    """All linked topics, including quiet ones. Publications of stock clients are relayed by their broker's agent."""
    linked = pc.unique(links["topic"])
    quiet = linked.filter(pc.invert(pc.is_in(linked, rates["topic"].combine_chunks())))
    names = [*rates["topic"].to_pylist(), *quiet.to_pylist()]
    columns: dict[str, Any] = {"id": pa.array(names, pa.string())}
    for name in rates.column_names[1:]:
        values = np.concatenate([rates[name].to_numpy(), np.zeros(len(quiet))])
        columns[name] = pa.array(values, mask=np.isnan(values))
    stock: dict[str, float] = {}
    plain = np.asarray(pc.and_(pc.equal(links["role"], "pub"), pc.starts_with(links["client"], STOCK)), bool)
    for topic, weight in zip(links["topic"].filter(plain).to_pylist(), links["weight"].filter(plain).to_pylist(),
                             strict=True):  # fmt: skip
        stock[topic] = stock.get(topic, 0.0) + weight
    relayed = np.array([stock.get(name, 0.0) for name in names])
    columns["relayed"] = pa.array(np.maximum(np.asarray(columns["relayed"], np.float64), relayed))
    columns["taps"] = pa.array([float(name in tapped) for name in names])
    return pa.table(columns)


def _stock_of(brokers: Any) -> Any:
    return pc.binary_join_element_wise(STOCK, brokers, "")


def _concatenated(parts: list[Any]) -> Any:
    arrays = [chunk for part in parts for chunk in (part.chunks if isinstance(part, pa.ChunkedArray) else [part])]
    return pa.chunked_array([array.cast(pa.string()) for array in arrays], pa.string())
