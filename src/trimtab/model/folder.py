"""Workload folders: ``topics``, ``clients``, ``brokers``, ``links``, perhaps ``rtt``, each ``.csv`` or ``.parquet``."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa

from trimtab.errors import BadInput, BadTable, MissingColumn
from trimtab.model import coordinate_column, tables
from trimtab.model.ids import Ids
from trimtab.model.rtts import Rtts
from trimtab.model.workload import (
    ROLES,
    Brokers,
    Clients,
    Links,
    Table,
    Topics,
    Workload,
    columns_of,
    refuse_mixed_dimensions,
)

if TYPE_CHECKING:
    from os import PathLike

    T = TypeVar("T", bound=Table)

log = logging.getLogger(__name__)


def read_workload(folder: str | PathLike[str]) -> Workload:
    """Read and check a workload folder. Ten million links take a few seconds."""
    home = Path(folder)
    paths = {name: tables.find(home, name) for name in ("topics", "clients", "brokers", "links")}
    topics = _read_table(Topics, paths["topics"], "topic")
    clients = _read_table(Clients, paths["clients"], "client")
    brokers = _read_table(Brokers, paths["brokers"], "broker")
    with tables.naming(paths["brokers"]):
        refuse_mixed_dimensions(clients, brokers)
    links = _read_links(paths, topics, clients)
    with tables.naming(paths["links"]):
        workload = Workload(topics, clients, brokers, links)
    rtt_path = tables.find_if_any(home, Rtts.name)
    if rtt_path is None:
        return workload
    rtt = _read_rtts(rtt_path, paths, clients, brokers)
    with tables.naming(rtt_path):
        return replace(workload, rtt=rtt)


def _read_table(kind: type[T], path: Path, noun: str) -> T:
    table = tables.read(path)
    if not table.num_rows:
        raise BadTable(str(path), f"has no rows; a workload needs at least one {noun}")
    # The id column may also have the name of the table's entity, such as ``topic``.
    id_column = noun if "id" not in table.column_names and noun in table.column_names else "id"
    names = tables.text(table, id_column, path=path, why=f"the {noun}'s name")
    columns: dict[str, Any] = {}
    for spec in columns_of(kind):
        rules = spec.metadata["column"]
        if spec.name in table.column_names:
            columns[spec.name] = tables.numbers(table, spec.name, path=path, may_be_empty=rules["may_be_empty"])
        elif rules["required"]:
            raise MissingColumn(str(path), spec.name, table.column_names, "always needed")
    if kind in (Clients, Brokers):
        columns["coordinate"] = coordinate_column.read(table, path)
    with tables.naming(path):
        return kind(Ids(names.combine_chunks(), table=kind.name), **columns)


def _read_links(paths: dict[str, Path], topics: Topics, clients: Clients) -> Links:
    path = paths["links"]
    table = tables.read(path)
    if not table.num_rows:
        raise BadTable(str(path), "has no rows; a workload needs at least one link")

    def rows(column: str, ids: Ids, known_in: Path) -> np.ndarray[Any, np.dtype[np.int32]]:
        values = tables.text(table, column, path=path, why=f"the {column} of each link")
        return tables.rows_of(values, ids, column=column, known_in=known_in, path=path)

    role = tables.text(table, "role", path=path, why="pub or sub")
    return Links(
        rows("topic", topics.ids, paths["topics"]),
        rows("client", clients.ids, paths["clients"]),
        tables.one_of(role, ROLES, column="role", path=path),
        tables.numbers(table, "weight", path=path, may_be_empty=False) if "weight" in table.column_names else None,
    )


def _read_rtts(path: Path, paths: dict[str, Path], clients: Clients, brokers: Brokers) -> Rtts:
    table = tables.read(path)

    def rows(column: str, ids: Ids, known_in: Path) -> np.ndarray[Any, np.dtype[np.int32]]:
        values = tables.text(table, column, path=path, why=f"the {column} of each measured pair")
        return tables.rows_of(values, ids, column=column, known_in=known_in, path=path)

    client, broker = rows("client", clients.ids, paths["clients"]), rows("broker", brokers.ids, paths["brokers"])
    if "rtt_ms" not in table.column_names:
        raise MissingColumn(str(path), "rtt_ms", table.column_names, "the round-trip time of each measured pair")
    rtt = Rtts.measured(client, broker, tables.numbers(table, "rtt_ms", path=path, may_be_empty=True))
    if rtt.skipped:
        log.warning("%s: %d of %d pairs have an rtt_ms that is empty, negative or infinite; they are left out",
                    path, rtt.skipped, table.num_rows)  # fmt: skip
    return rtt


def as_tables(workload: Workload) -> dict[str, pa.Table]:
    """Topics, clients, brokers, links and measured pairs as Arrow tables; what is absent is left out."""
    links = workload.links
    result = {
        table.name: pa.table({"id": table.ids.arrow} | {n: _cells(getattr(table, n)) for n in table.present()[1:]})
        for table in (workload.topics, workload.clients, workload.brokers)
    }
    for located in (workload.clients, workload.brokers):
        for name, values in coordinate_column.columns(located.coordinate).items():
            result[located.name] = result[located.name].append_column(name, values)
    columns = {
        "topic": workload.topics.ids.take(links.topic),
        "client": workload.clients.ids.take(links.client),
        "role": pa.array(ROLES).take(pa.array(links.role)),
    }
    result["links"] = pa.table(columns | ({} if links.weight is None else {"weight": links.weight}))
    if workload.rtt is not None:
        client, broker = workload.clients.ids.take(workload.rtt.client), workload.brokers.ids.take(workload.rtt.broker)
        result[Rtts.name] = pa.table({"client": client, "broker": broker, "rtt_ms": workload.rtt.rtt_ms})
    return result


def write_workload(workload: Workload, folder: str | PathLike[str], format: Literal["csv", "parquet"] = "csv") -> None:
    """Write all tables or none. Files of the same tables in the other format are removed, and so are measured pairs
    of a workload that was in the folder before."""
    if format not in tables.FORMATS:
        raise BadInput(f"format is '{format}', but must be one of {', '.join(tables.FORMATS)}")
    home = Path(folder)
    written = as_tables(workload)
    tables.write_all({home / f"{name}.{format}": table for name, table in written.items()})
    other = "parquet" if format == "csv" else "csv"
    for name in (*written, Rtts.name):
        (home / f"{name}.{other}").unlink(missing_ok=True)
    if Rtts.name not in written:
        (home / f"{Rtts.name}.{format}").unlink(missing_ok=True)


def _cells(values: np.ndarray[Any, np.dtype[np.float64]]) -> pa.Array:
    """NaN is an empty cell; whole numbers are written as such."""
    empty = np.isnan(values)
    if not empty.all() and (np.mod(values[~empty], 1.0) == 0.0).all() and (np.abs(values[~empty]) < 2**53).all():
        return pa.array(np.where(empty, 0.0, values).astype(np.int64), mask=empty)
    return pa.array(values, mask=empty)
