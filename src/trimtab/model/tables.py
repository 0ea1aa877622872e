"""Reads tables from CSV or Parquet files into columns, and writes them atomically."""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from trimtab.errors import BadInput, BadTable, MissingColumn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trimtab.model.workload import Floats

FORMATS: Final = ("csv", "parquet")


def find_if_any(folder: Path, name: str) -> Path | None:
    """The file of table ``name`` in a workload folder, or None."""
    return find(folder, name) if any((folder / f"{name}.{ending}").exists() for ending in FORMATS) else None


def find(folder: Path, name: str) -> Path:
    """The file of table ``name`` in a workload folder."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise BadInput(
            f"{folder} {what}; a workload is a folder with topics, clients, brokers and links (.csv or .parquet)"
        )
    paths = [folder / f"{name}.{ending}" for ending in FORMATS if (folder / f"{name}.{ending}").exists()]
    if not paths:
        raise BadInput(f"{folder} has neither {name}.csv nor {name}.parquet")
    if len(paths) > 1:
        raise BadInput(f"{folder} has both {name}.csv and {name}.parquet; keep one of them")
    return paths[0]


def read(path: Path) -> pa.Table:
    """Read the whole table. Columns of a CSV file are read as text, so that errors can quote the cell."""
    try:
        if path.suffix == ".parquet":
            return pa.parquet.read_table(path)
        if path.suffix == ".csv":
            return _read_csv(path)
    except FileNotFoundError:
        raise BadInput(f"{path} does not exist") from None
    except (pa.ArrowInvalid, pa.ArrowTypeError, OSError, UnicodeDecodeError) as error:
        raise BadTable(str(path), f"cannot be read: {str(error).splitlines()[0]}") from None
    raise BadInput(f"{path} ends in '{path.suffix}', but tables are .csv or .parquet")


def _read_csv(path: Path) -> pa.Table:
    with path.open("rb") as file:
        header = file.readline().decode("utf-8-sig").strip()
    if not header:
        raise BadTable(str(path), "is empty; the first line must name the columns")
    with pa.csv.open_csv(path) as peek:
        names = peek.schema.names
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise BadTable(str(path), f"column '{twice}' stands twice in the first line")
    text = {name: pa.string() for name in names}
    options = pa.csv.ConvertOptions(column_types=text, strings_can_be_null=False, quoted_strings_can_be_null=False)
    return pa.csv.read_csv(path, convert_options=options)


def text(table: pa.Table, column: str, *, path: Path, why: str) -> Any:
    """A column as text, with spaces around it taken off; null where the cell is empty."""
    if column not in table.column_names:
        raise MissingColumn(str(path), column, table.column_names, why)
    kind = table[column].type
    try:
        if pa.types.is_dictionary(kind):
            values = table[column].cast(kind.value_type).cast(pa.string())
        else:
            values = table[column].cast(pa.string())
    except pa.ArrowException:
        raise BadTable(str(path), f"{column} is of type {kind}, but must be text or a number") from None
    values = pc.utf8_trim_whitespace(values)
    empty = pc.equal(values, "")
    if pc.any(empty).as_py():
        values = pc.if_else(empty, None, values)
    return values


def numbers(table: pa.Table, column: str, *, path: Path, may_be_empty: bool) -> Floats:
    """A column of numbers; an empty cell is NaN where that is allowed."""
    values = table[column]
    if not (pa.types.is_floating(values.type) or pa.types.is_integer(values.type)):
        values = text(table, column, path=path, why="always needed")
    if values.null_count and not may_be_empty:
        row = pc.index(pc.is_null(values), True).as_py()
        raise BadTable(str(path), f"{column} is empty, but must be a number", row)
    try:
        return np.asarray(values.cast(pa.float64()).combine_chunks().to_numpy(zero_copy_only=False), np.float64)
    except pa.ArrowInvalid:
        row, word = next((i, v) for i, v in enumerate(values.to_pylist()) if v is not None and not _is_number(v))
        raise BadTable(str(path), f"{column} is '{word}', but must be a number", row) from None


def _is_number(word: str) -> bool:
    try:
        pa.scalar(word).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def write(table: pa.Table, path: Path) -> None:
    """Write to a temporary file beside ``path``, then rename it: no reader sees half a file, even after a crash."""
    write_all({path: table})


def _write_csv(table: pa.Table, path: Path) -> None:
    """Write CSV, without quotes if no name contains a comma, a quote or a line break: smaller and easier to read."""
    for style in ("none", "needed"):
        with path.open("wb") as file:
            file.write((",".join(table.column_names) + "\n").encode())
            try:
                pa.csv.write_csv(table, file, pa.csv.WriteOptions(include_header=False, quoting_style=style))
                return
            except pa.ArrowInvalid:
                if style == "needed":
                    raise


def write_all(tables: dict[Path, pa.Table]) -> None:
    """Write several files, all or none: all are written to temporary files before the first is renamed."""
    partials: dict[Path, Path] = {}
    current = Path()
    try:
        for path, table in tables.items():
            current = path
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "there is a folder of that name")
            partials[path] = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.partial")
            if path.suffix == ".parquet":
                pa.parquet.write_table(table, partials[path], compression="zstd")
            else:
                _write_csv(table, partials[path])
        for current, partial in partials.items():
            os.replace(partial, current)
    except OSError as error:
        raise BadInput(f"{current} cannot be written: {error.strerror or error}") from None
    finally:
        for partial in partials.values():
            with suppress(OSError):
                partial.unlink(missing_ok=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Turn errors about a table into errors about its file."""
    try:
        yield
    except BadTable as error:
        raise error.in_file(str(path)) from None


def one_of(values: Any, allowed: Sequence[str], *, column: str, path: Path) -> np.ndarray[Any, np.dtype[np.int8]]:
    """Text as positions in ``allowed``."""
    positions = pc.fill_null(pc.index_in(values, value_set=pa.array(allowed)), -1)
    codes = np.asarray(positions, dtype=np.int8)
    if (codes < 0).any():
        row = int(np.flatnonzero(codes < 0)[0])
        raise BadTable(str(path), f"{column} is {_quoted(values[row])}, but must be one of {', '.join(allowed)}", row)
    return codes


def _quoted(value: Any) -> str:
    return "empty" if value.as_py() is None else f"'{value}'"


def rows_of(values: Any, ids: Any, *, column: str, known_in: Path, path: Path) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Names as rows of another table; an unknown one is an error that quotes it."""
    rows: np.ndarray[Any, np.dtype[np.int32]] = ids.find(values)
    if (rows < 0).any():
        row = int(np.flatnonzero(rows < 0)[0])
        raise BadTable(str(path), f"{column} is {_quoted(values[row])}, which {known_in.name} does not list", row)
    return rows
