"""A measurement of the whole fleet at one moment, and how it travels: as a zip file of the workload's tables."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trimtab.errors import BadInput
from trimtab.model import coordinate_column
from trimtab.model.folder import as_tables
from trimtab.model.ids import Ids
from trimtab.model.rtts import Rtts
from trimtab.model.workload import ROLES, Brokers, Clients, Links, Topics, Workload, columns_of
from trimtab.observe.best_brokers import AtBrokers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.model.placement import Unit
    from trimtab.model.workload import Floats, Rows

INSIDE: Final = "snapshot.json"  # in the zip file, beside the tables
PART: Final = 800_000  # bytes of a measurement in one message
USAGE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource use that a broker reports: means over ``USAGE_S``."""

    data: float  # bytes/s in and out
    messages: float = 0.0  # per second, in and out
    cores: float = 0.0  # in use by its servers
    processing: float = 0.0  # cores in use by processors of topics
    memory: float = 0.0  # bytes
    latency_ms: float = 0.0  # p99 of its deliveries
    own: float = 0.0  # bytes/s of requests and reports between the fleet's processes; part of ``data``
    clients: float = 0.0  # bytes/s of these that clients cause; part of ``own``


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Rates and links as of ``at``, in seconds since 1970."""

    at: float
    workload: Workload
    usage: Mapping[str, Usage] = field(default_factory=dict)  # by name of each broker that reported
    unsure: float = 0.0  # share of all data whose period is not known yet
    units: Mapping[str, Unit] = field(default_factory=dict)  # unit of each topic; without an entry: client
    p90_ms: Floats | None = None  # (K,) of measured delivery times; NaN: nothing was delivered recently
    carrier: Rows | None = None  # (L,) broker that carried each link when it was measured, UNPLACED if unknown
    recent: Floats | None = None  # (K,) messages/s of topics over the last seconds: quicker than rates, and noisier
    gateway: Rows | None = None  # (C,) broker by which each client reaches the network, UNPLACED if unknown
    access_ms: Floats | None = None  # (C,) round-trip time between a client and its gateway, NaN if unknown
    growth: Floats | None = None  # (K,) factor by which rates will soon have grown, see ``control.trends``
    missed: Mapping[str, AtBrokers] = field(default_factory=dict)  # newest reports of brokers on topics they host

    def pack(self) -> bytes:
        """Encode the snapshot as a zip file; unzipped, it is a workload folder."""
        tables = as_tables(self.workload)
        if self.units:
            units = [self.units.get(name, "client") for name in self.workload.topics.ids]
            tables["topics"] = tables["topics"].append_column("unit", pa.array(units, pa.string()))
        if self.p90_ms is not None:
            column = pa.array(self.p90_ms, mask=np.isnan(self.p90_ms))
            tables["topics"] = tables["topics"].append_column("p90_ms", column)
        for name in ("recent", "growth"):
            if (values := getattr(self, name)) is not None:
                tables["topics"] = tables["topics"].append_column(name, pa.array(values))
        if self.gateway is not None and self.access_ms is not None:
            gateways = self.workload.brokers.ids.take(self.gateway)
            tables["clients"] = tables["clients"].append_column("gateway", gateways)
            access = pa.array(self.access_ms, mask=np.isnan(self.access_ms))
            tables["clients"] = tables["clients"].append_column("access_ms", access)
        if self.carrier is not None:
            names = self.workload.brokers.ids.take(self.carrier)
            tables["links"] = tables["links"].append_column("broker", names)
        return packed(self.at, tables, self.usage, self.unsure, self.missed)


def packed(
    at: float, tables: Mapping[str, pa.Table], usage: Mapping[str, Usage], unsure: float = 0.0,
    missed: Mapping[str, AtBrokers] | None = None,
) -> bytes:  # fmt: skip
    """Encode a snapshot given as tables: topics, clients, brokers, links, perhaps rtt."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:  # uncompressed, since Parquet is compressed already
        for name, table in tables.items():
            file = io.BytesIO()
            pq.write_table(table, file, compression="zstd")
            archive.writestr(_undated(f"{name}.parquet"), file.getvalue())
        fields = Usage.__dataclass_fields__
        usages = {broker: {name: getattr(row, name) for name in fields} for broker, row in usage.items()}
        inside = {"at": at, "usage": usages, "unsure": unsure, "missed": msgspec.to_builtins(missed or {})}
        archive.writestr(_undated(INSIDE), json.dumps(inside))
    return data.getvalue()


def in_parts(data: bytes) -> list[bytes]:
    """Split into pieces that fit into one message each."""
    return [data[start : start + PART] for start in range(0, len(data), PART)]


def _undated(name: str) -> zipfile.ZipInfo:
    """A zip entry without a date, so that equal snapshots have equal bytes."""
    return zipfile.ZipInfo(name)


def unpack(data: bytes) -> Snapshot:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            header: dict[str, Any] = json.loads(archive.read(INSIDE))
            tables = {
                name: pq.read_table(io.BytesIO(archive.read(f"{name}.parquet")))
                for name in ("topics", "clients", "brokers", "links", Rtts.name)
                if name != Rtts.name or f"{name}.parquet" in archive.namelist()
            }
        usage = {broker: Usage(**fields) for broker, fields in header["usage"].items()}
        missed = msgspec.convert(header.get("missed", {}), dict[str, AtBrokers])
        return Snapshot(
            float(header["at"]), _workload(tables), usage, float(header["unsure"]), **_placed(tables), missed=missed
        )
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, pa.ArrowException, msgspec.MsgspecError) as error:
        raise BadInput(f"this is not a snapshot of a fleet: {error}") from None


def _placed(tables: Mapping[str, pa.Table]) -> dict[str, Any]:
    """Units and latencies of topics, and carriers of links, where the tables have these columns."""
    topics, clients, links = tables["topics"], tables["clients"], tables["links"]
    columns: dict[str, Any] = {}
    if "unit" in topics.column_names:
        columns["units"] = dict(zip(topics["id"].to_pylist(), topics["unit"].to_pylist(), strict=True))
    if "p90_ms" in topics.column_names:
        columns["p90_ms"] = np.asarray(pc.fill_null(topics["p90_ms"].cast(pa.float64()), np.nan), np.float64)
    for name in ("recent", "growth"):
        if name in topics.column_names:
            columns[name] = topics[name].to_numpy()
    if "gateway" in clients.column_names:
        columns["gateway"] = _rows(clients["gateway"], tables["brokers"]["id"])
        columns["access_ms"] = np.asarray(pc.fill_null(clients["access_ms"].cast(pa.float64()), np.nan), np.float64)
    if "broker" in links.column_names:
        columns["carrier"] = _rows(links["broker"], tables["brokers"]["id"])
    return columns


def _rows(names: Any, ids: Any) -> Rows:
    """Row of each name among the ids, or -1."""
    values = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    return np.asarray(pc.index_in(names, value_set=values).fill_null(-1), np.int32)


def _workload(tables: Mapping[str, pa.Table]) -> Workload:
    parts = {}
    for kind in (Topics, Clients, Brokers):
        table = tables[kind.name]
        present = [spec.name for spec in columns_of(kind) if spec.name in table.column_names]
        columns: dict[str, Any] = {name: table[name].to_numpy() for name in present}
        if kind is not Topics:
            columns["coordinate"] = coordinate_column.read(table, Path(kind.name))
        parts[kind.name] = kind(Ids(table["id"].combine_chunks(), table=kind.name), **columns)
    links = tables["links"]
    topics, clients, brokers = parts["topics"], parts["clients"], parts["brokers"]
    rows = [_rows(links[name], parts[f"{name}s"].ids.arrow) for name in ("topic", "client")]
    role = np.asarray(pc.index_in(links["role"], value_set=pa.array(ROLES)).fill_null(-1), np.int8)
    weight = links["weight"].to_numpy() if "weight" in links.column_names else None
    rtt = None
    if Rtts.name in tables:
        pairs = tables[Rtts.name]
        client, broker = (_rows(pairs[name], parts[f"{name}s"].ids.arrow) for name in ("client", "broker"))
        rtt = Rtts(client, broker, pairs["rtt_ms"].to_numpy())
    return Workload(topics, clients, brokers, Links(rows[0], rows[1], role, weight), rtt)  # type: ignore[arg-type]
