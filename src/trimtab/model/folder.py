"""Workload folders: ``topics``, ``clients``, ``brokers`` and ``links``, each ``.csv`` or ``.parquet``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa

from trimtab.errors import BadInput, BadTable, MissingColumn
from trimtab.model import tables
from trimtab.model.ids import Ids
from trimtab.model.workload import ROLES, Brokers, Clients, Links, Table, Topics, Workload, columns_of

if TYPE_CHECKING:
    from os import PathLike

    T = TypeVar("T", bound=Table)


def read_workload(folder: str | PathLike[str]) -> Workload:
    """Read and check a workload folder. Ten million links take a few seconds."""
    home = Path(folder)
    paths = {name: tables.find(home, name) for name in ("topics", "clients", "brokers", "links")}
    topics = _read_table(Topics, paths["topics"], "topic")
    clients = _read_table(Clients, paths["clients"], "client")
    brokers = _read_table(Brokers, paths["brokers"], "broker")
    links = _read_links(paths, topics, clients)
    with tables.naming(paths["links"]):
        return Workload(topics, clients, brokers, links)


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


def as_tables(workload: Workload) -> dict[str, pa.Table]:
    """Topics, clients, brokers and links as Arrow tables; absent columns are left out."""
    links = workload.links
    result = {
        table.name: pa.table({"id": table.ids.arrow} | {n: _cells(getattr(table, n)) for n in table.present()[1:]})
        for table in (workload.topics, workload.clients, workload.brokers)
    }
    columns = {
        "topic": workload.topics.ids.take(links.topic),
        "client": workload.clients.ids.take(links.client),
        "role": pa.array(ROLES).take(pa.array(links.role)),
    }
    result["links"] = pa.table(columns | ({} if links.weight is None else {"weight": links.weight}))
    return result


def write_workload(workload: Workload, folder: str | PathLike[str], format: Literal["csv", "parquet"] = "csv") -> None:
    """Write all four tables or none. Files of the same tables in the other format are removed."""
    if format not in tables.FORMATS:
        raise BadInput(f"format is '{format}', but must be one of {', '.join(tables.FORMATS)}")
    home = Path(folder)
    written = as_tables(workload)
    tables.write_all({home / f"{name}.{format}": table for name, table in written.items()})
    other = "parquet" if format == "csv" else "csv"
    for name in written:
        (home / f"{name}.{other}").unlink(missing_ok=True)


def _cells(values: np.ndarray[Any, np.dtype[np.float64]]) -> pa.Array:
    """NaN is an empty cell; whole numbers are written as such."""
    empty = np.isnan(values)
    if not empty.all() and (np.mod(values[~empty], 1.0) == 0.0).all() and (np.abs(values[~empty]) < 2**53).all():
        return pa.array(np.where(empty, 0.0, values).astype(np.int64), mask=empty)
    return pa.array(values, mask=empty)
