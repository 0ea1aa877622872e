"""Placement files: ``unit``, ``topic`` and ``client`` as the unit needs, ``broker`` (empty = unplaced)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import BadTable
from trimtab.model import tables
from trimtab.model.key import Key
from trimtab.model.placement import UNITS, UNPLACED, Placement
from trimtab.model.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

    from trimtab.model.placement import Unit
    from trimtab.model.workload import Workload


def write_placement(problem: Problem, placement: Placement, path: str | PathLike[str]) -> None:
    """Write one row per unit, in the order of the workload; the ending of ``path`` decides the format."""
    load = problem.workload
    columns: dict[str, Any] = {"unit": pa.repeat(placement.unit, len(placement))}
    if placement.unit == "link":
        columns |= {
            "topic": load.topics.ids.take(problem.topic),
            "client": load.clients.ids.take(problem.client),
        }
    elif placement.unit == "topic":
        columns["topic"] = load.topics.ids.arrow
    else:
        columns["client"] = load.clients.ids.arrow
    columns["broker"] = load.brokers.ids.take(placement.broker)
    tables.write(pa.table(columns), Path(path))


def read_placement(
    workload: Workload, path: str | PathLike[str], unit: Unit | None = None
) -> tuple[Problem, Placement]:
    """Read a placement file, ours or not, with the problem it belongs to. Units that are not listed are unplaced.

    A live fleet's file may list topics, clients and links; ``unit`` selects one of these units.
    """
    file = Path(path)
    table, units = _read(file)
    if unit is not None and (units == UNITS.index(unit)).any():
        table, units = table.filter(pa.array(units == UNITS.index(unit))), units[units == UNITS.index(unit)]
    if (units != units[0]).any():
        row = int(np.flatnonzero(units != units[0])[0])
        raise BadTable(str(file), f"unit is '{UNITS[units[row]]}', but the rows above say '{UNITS[units[0]]}'", row)
    problem = Problem(workload, UNITS[units[0]])
    key = {
        noun: _named_rows(workload, table, noun, file)
        for noun in (("topic", "client") if problem.unit == "link" else (problem.unit,))
    }
    if problem.unit == "link":
        at = _subscription_rows(problem, key["topic"], key["client"], file)
    else:
        at = key[problem.unit].astype(np.int64)
    rows = _broker_rows(workload, table, file)
    times = np.bincount(at, minlength=problem.units)
    if (times > 1).any():
        row = int(np.flatnonzero(at == np.flatnonzero(times > 1)[0])[1])
        raise BadTable(str(file), f"this {problem.unit} stands in an earlier row already; list it once", row)
    broker = np.full(problem.units, UNPLACED, np.int32)
    broker[at] = rows
    return problem, Placement(problem.unit, broker)


def write_keys(brokers: Mapping[Key, str], path: str | PathLike[str]) -> None:
    """The placement of a fleet with topics of any unit: one row per key."""
    keys = list(brokers)
    columns = {
        "unit": [key.unit for key in keys], "topic": [key.topic for key in keys],
        "client": [key.client for key in keys], "broker": [brokers[key] for key in keys],
    }  # fmt: skip
    tables.write(pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}), Path(path))


def read_keys(workload: Workload, path: str | PathLike[str]) -> dict[Key, str]:
    """The broker of every key in a placement file of any units, empty if unplaced; names are those of the workload."""
    file = Path(path)
    table, units = _read(file)
    brokers = _broker_rows(workload, table, file)
    named = {noun: np.full(len(units), -1, np.int32) for noun in ("topic", "client")}
    for noun in named:
        needs = units != UNITS.index("client" if noun == "topic" else "topic")
        if needs.any():
            named[noun] = _named_rows(workload, table, noun, file, needs)
    placed: dict[Key, str] = {}
    for row, (unit, topic, client, broker) in enumerate(
        zip(units.tolist(), named["topic"].tolist(), named["client"].tolist(), brokers.tolist(), strict=True)
    ):
        names = (workload.topics.ids[topic] if topic >= 0 else "", workload.clients.ids[client] if client >= 0 else "")
        key = Key.of(UNITS[unit], *names)
        if key in placed:
            raise BadTable(str(file), f"{key} stands in an earlier row already; list it once", row)
        placed[key] = workload.brokers.ids[broker] if broker >= 0 else ""
    return placed


def has_several_units(path: str | PathLike[str]) -> bool:
    return len(set(_read(Path(path))[1].tolist())) > 1


def _read(file: Path) -> tuple[pa.Table, Any]:
    """The table, and the code of every row's unit."""
    table = tables.read(file)
    if not table.num_rows:
        raise BadTable(str(file), "has no rows; a placement lists units and their brokers")
    text = tables.text(table, "unit", path=file, why=f"one of {', '.join(UNITS)}")
    return table, tables.one_of(text, UNITS, column="unit", path=file)


def _named_rows(workload: Workload, table: pa.Table, noun: str, file: Path, needs: Any = True) -> Any:
    """Rows of topics or clients, -1 where a row ``needs`` none."""
    table_of_names = {"topic": workload.topics, "client": workload.clients}[noun]
    text = tables.text(table, noun, path=file, why=f"which {noun}")
    if not np.all(needs):
        first = text[int(np.flatnonzero(needs)[0])]
        text = pc.if_else(pa.array(needs), text, first)  # unneeded names must not be looked up: take a needed one
    rows = tables.rows_of(text, table_of_names.ids, column=noun, known_in=Path(table_of_names.name), path=file)
    return np.where(needs, rows, -1)


def _broker_rows(workload: Workload, table: pa.Table, file: Path) -> Any:
    names = tables.text(table, "broker", path=file, why="the broker of each unit; empty = unplaced")
    rows = workload.brokers.ids.find(names)
    unknown = (rows < 0) & ~np.asarray(names.is_null())
    if unknown.any():
        row = int(np.flatnonzero(unknown)[0])
        raise BadTable(str(file), f"broker is '{names[row]}', which the workload's brokers do not list", row)
    return rows


def _subscription_rows(problem: Problem, topic: Any, client: Any, file: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The row of each (topic, client) subscription in the workload."""
    clients = len(problem.workload.clients)
    listed = problem.topic.astype(np.int64) * clients + problem.client
    wanted = topic.astype(np.int64) * clients + client
    if len(wanted) == len(listed) and (wanted == listed).all():
        return np.arange(len(wanted))  # our own files keep the order of the workload
    order = np.argsort(listed, kind="stable")
    slot = np.searchsorted(listed[order], wanted).clip(max=max(len(listed) - 1, 0))
    at: np.ndarray[Any, np.dtype[np.int64]] = order[slot] if len(listed) else np.zeros(len(wanted), np.int64)
    wrong = listed[at] != wanted if len(listed) else np.ones(len(wanted), bool)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        load = problem.workload
        pair = f"client '{load.clients.ids[client[row]]}' does not subscribe to topic '{load.topics.ids[topic[row]]}'"
        raise BadTable(str(file), f"{pair} in this workload", row)
    return at
