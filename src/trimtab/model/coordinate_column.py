"""Network coordinates as one column of text: the point in ms, then the height; empty where a node has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import BadTable
from trimtab.model import tables
from trimtab.model.coordinates import Coordinates

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.model.workload import Floats

COLUMN: Final = "coordinate"
ADJUSTMENT: Final = "adjustment_ms"
SAME_DIMENSION: Final = "all coordinates of a workload have the same dimension"
RULE: Final = "finite numbers separated by spaces: the point in ms, then the height"


def read(table: pa.Table, path: Path) -> Coordinates | None:
    """The coordinates of a table's rows. None if the table has no such column or no row has a coordinate."""
    if COLUMN not in table.column_names:
        return None
    texts = tables.text(table, COLUMN, path=path, why="network coordinates")
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    known = np.flatnonzero(np.asarray(pc.is_valid(texts)))
    if not len(known):
        return None
    numbers = _numbers(texts.drop_null(), known, path)
    point = np.full((len(texts), numbers.shape[1] - 1), np.nan)
    height = np.full(len(texts), np.nan)
    point[known], height[known] = numbers[:, :-1], numbers[:, -1]
    adjustment = None
    if ADJUSTMENT in table.column_names:
        adjustment = np.nan_to_num(tables.numbers(table, ADJUSTMENT, path=path, may_be_empty=True))
    with tables.naming(path):
        return Coordinates(point, height, adjustment)


def _numbers(texts: Any, known: Any, path: Path) -> Floats:
    """(known rows, dimensions + 1) numbers of the texts; the first row determines how many there are."""
    words = pc.ascii_split_whitespace(texts)
    count = np.asarray(pc.list_value_length(words))
    if count[0] < 2:
        raise BadTable(str(path), f"{COLUMN} is '{texts[0]}', but must be at least two {RULE}", int(known[0]))
    other = np.flatnonzero(count != count[0])
    if len(other):
        first = int(other[0])
        problem = f"{COLUMN} has {count[first]} numbers, but that of row {int(known[0]) + 1} has {count[0]}"
        raise BadTable(str(path), f"{problem}; {SAME_DIMENSION}", int(known[first]))
    try:
        numbers = np.asarray(words.flatten().cast(pa.float64())).reshape(-1, int(count[0]))
        bad = np.flatnonzero(~np.isfinite(numbers).all(axis=1))
    except pa.ArrowInvalid:
        bad = np.array([row for row, text in enumerate(texts.to_pylist()) if not _readable(text)])
    if len(bad):
        first = int(bad[0])
        raise BadTable(str(path), f"{COLUMN} is '{texts[first]}', but must be {RULE}", int(known[first]))
    return numbers


def _readable(text: str) -> bool:
    try:
        pa.array(text.split()).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def columns(coordinates: Coordinates | None) -> dict[str, Any]:
    """The columns that ``read`` reads; numbers are written with all their digits."""
    if coordinates is None or not coordinates.known.any():
        return {}
    known = coordinates.known
    numbers = [*coordinates.point.T, coordinates.height]
    words = [pa.array(np.where(known, values, 0.0)).cast(pa.string()) for values in numbers]
    text = pc.if_else(pa.array(known), pc.binary_join_element_wise(*words, " "), pa.scalar(None, pa.string()))
    result: dict[str, Any] = {COLUMN: text}
    if coordinates.adjustment is not None:
        result[ADJUSTMENT] = pa.array(coordinates.adjustment, mask=~known)
    return result
