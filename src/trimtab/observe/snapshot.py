"""A measurement of the whole fleet at one moment, and how it travels: as a zip file of the workload's tables."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trimtab.errors import BadInput
from trimtab.model.ids import Ids
from trimtab.model.workload import ROLES, Brokers, Clients, Links, Topics, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

INSIDE: Final = "snapshot.json"  # in the zip file, beside the tables
PART: Final = 800_000  # bytes of a measurement in one message
USAGE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What a broker says of itself: means over ``USAGE_S``."""

    data: float  # bytes/s in and out
    messages: float = 0.0  # per second, in and out
    cores: float = 0.0  # in use by its servers
    processing: float = 0.0  # and by processors of topics
    memory: float = 0.0  # bytes
    latency_ms: float = 0.0  # p99 of what it delivered


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Rates and links as of ``at``, in seconds since 1970."""

    at: float
    workload: Workload
    usage: Mapping[str, Usage] = field(default_factory=dict)  # by broker, of those that said something
    unsure: float = 0.0  # share of all data of which it is not known yet how often it comes

    def pack(self) -> bytes:
        """All of it; unzipped, it is a workload folder."""
        links = self.workload.links
        tables = {
            table.name: pa.table({"id": table.ids.arrow} | {n: getattr(table, n) for n in table.present()[1:]})
            for table in (self.workload.topics, self.workload.clients, self.workload.brokers)
        }
        tables["links"] = pa.table({
            "topic": self.workload.topics.ids.arrow.take(pa.array(links.topic)),
            "client": self.workload.clients.ids.arrow.take(pa.array(links.client)),
            "role": pa.array(ROLES).take(pa.array(links.role)),
        })  # fmt: skip
        return packed(self.at, tables, self.usage, self.unsure)


def packed(at: float, tables: Mapping[str, pa.Table], usage: Mapping[str, Usage], unsure: float = 0.0) -> bytes:
    """The same from tables: topics, clients, brokers, links."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as bag:  # Parquet is compressed already
        for name, table in tables.items():
            one = io.BytesIO()
            pq.write_table(table, one, compression="zstd")
            bag.writestr(_dated(f"{name}.parquet"), one.getvalue())
        said = {
            broker: {name: getattr(each, name) for name in Usage.__dataclass_fields__} for broker, each in usage.items()
        }
        bag.writestr(_dated(INSIDE), json.dumps({"at": at, "usage": said, "unsure": unsure}))
    return whole.getvalue()


def in_parts(data: bytes) -> list[bytes]:
    """Pieces that fit into a message each."""
    return [data[at : at + PART] for at in range(0, len(data), PART)]


def _dated(name: str) -> zipfile.ZipInfo:
    """Without a date, so that the same snapshot has the same bytes."""
    return zipfile.ZipInfo(name)


def unpack(data: bytes) -> Snapshot:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as bag:
            about: dict[str, Any] = json.loads(bag.read(INSIDE))
            tables = {
                name: pq.read_table(io.BytesIO(bag.read(f"{name}.parquet")))
                for name in ("topics", "clients", "brokers", "links")
            }
        usage = {broker: Usage(**said) for broker, said in about["usage"].items()}
        return Snapshot(float(about["at"]), _workload(tables), usage, float(about["unsure"]))
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError, pa.ArrowException) as error:
        raise BadInput(f"this is not a snapshot of a fleet: {error}") from None


def _workload(tables: Mapping[str, pa.Table]) -> Workload:
    made = {}
    for kind in (Topics, Clients, Brokers):
        table = tables[kind.name]
        columns = {name: table[name].to_numpy() for name in table.column_names if name != "id"}
        made[kind.name] = kind(Ids(table["id"].combine_chunks(), table=kind.name), **columns)
    links = tables["links"]
    rows = [
        np.asarray(pc.index_in(links[name], value_set=made[f"{name}s"].ids.arrow).fill_null(-1), np.int32)
        for name in ("topic", "client")
    ]
    role = np.asarray(pc.index_in(links["role"], value_set=pa.array(ROLES)).fill_null(-1), np.int8)
    topics, clients, brokers = made["topics"], made["clients"], made["brokers"]
    return Workload(topics, clients, brokers, Links(rows[0], rows[1], role))  # type: ignore[arg-type]
