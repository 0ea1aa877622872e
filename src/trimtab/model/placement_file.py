"""Placement files: ``unit``, ``topic`` and ``client`` as the unit needs, ``broker`` (empty = unplaced)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from trimtab.errors import BadTable
from trimtab.model import tables
from trimtab.model.placement import UNITS, UNPLACED, Placement
from trimtab.model.problem import Problem

if TYPE_CHECKING:
    from os import PathLike

    from trimtab.model.workload import Workload


def write_placement(problem: Problem, placement: Placement, path: str | PathLike[str]) -> None:
    """One row per unit, in the order of the workload; the ending of ``path`` says which format."""
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


def read_placement(workload: Workload, path: str | PathLike[str]) -> tuple[Problem, Placement]:
    """Any placement file, ours or not, and the question it answers. A unit it does not list is unplaced."""
    file = Path(path)
    table = tables.read(file)
    if not table.num_rows:
        raise BadTable(str(file), "has no rows; a placement lists units and their brokers")
    units = tables.one_of(
        tables.text(table, "unit", path=file, why=f"one of {', '.join(UNITS)}"),
        UNITS,
        column="unit",
        path=file,
    )
    if (units != units[0]).any():
        row = int(np.flatnonzero(units != units[0])[0])
        raise BadTable(str(file), f"unit is '{UNITS[units[row]]}', but the rows above say '{UNITS[units[0]]}'", row)
    problem = Problem(workload, UNITS[units[0]])

    named = {"topic": workload.topics, "client": workload.clients}
    key = {
        noun: tables.rows_of(
            tables.text(table, noun, path=file, why=f"which {noun}"),
            named[noun].ids, column=noun, known_in=Path(named[noun].name), path=file,
        )
        for noun in (("topic", "client") if problem.unit == "link" else (problem.unit,))
    }  # fmt: skip
    if problem.unit == "link":
        at = _subscription_rows(problem, key["topic"], key["client"], file)
    else:
        at = key[problem.unit].astype(np.int64)

    names = tables.text(table, "broker", path=file, why="the broker of each unit; empty = unplaced")
    rows = workload.brokers.ids.find(names)
    unknown = (rows < 0) & ~np.asarray(names.is_null())
    if unknown.any():
        row = int(np.flatnonzero(unknown)[0])
        raise BadTable(str(file), f"broker is '{names[row]}', which the workload's brokers do not list", row)

    times = np.bincount(at, minlength=problem.units)
    if (times > 1).any():
        row = int(np.flatnonzero(at == np.flatnonzero(times > 1)[0])[1])
        raise BadTable(str(file), f"this {problem.unit} stands in an earlier row already; list it once", row)
    broker = np.full(problem.units, UNPLACED, np.int32)
    broker[at] = rows
    return problem, Placement(problem.unit, broker)


def _subscription_rows(problem: Problem, topic: Any, client: Any, file: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where the workload lists each (topic, client) subscription."""
    clients = len(problem.workload.clients)
    listed = problem.topic.astype(np.int64) * clients + problem.client
    asked = topic.astype(np.int64) * clients + client
    if len(asked) == len(listed) and (asked == listed).all():
        return np.arange(len(asked))  # our own files keep the order of the workload
    order = np.argsort(listed, kind="stable")
    slot = np.searchsorted(listed[order], asked).clip(max=max(len(listed) - 1, 0))
    at: np.ndarray[Any, np.dtype[np.int64]] = order[slot] if len(listed) else np.zeros(len(asked), np.int64)
    wrong = listed[at] != asked if len(listed) else np.ones(len(asked), bool)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        load = problem.workload
        pair = f"client '{load.clients.ids[client[row]]}' does not subscribe to topic '{load.topics.ids[topic[row]]}'"
        raise BadTable(str(file), f"{pair} in this workload", row)
    return at
