"""Measured sets of co-located topics, simulated or real, with their provenance: what latency models are fitted on.

A folder of samples holds Parquet files, with a row for each topic of each set, and ``provenance.json``: the hardware,
the length of the runs, and how the samples were made.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from trimtab.errors import BadInput, BadTable
from trimtab.model import tables
from trimtab.model.hardware import Hardware
from trimtab.predict.sets import Sets

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trimtab.model.workload import Floats
    from trimtab.predict.sets import Ints

VERSION: Final = 1  # of the files
PROVENANCE: Final = "provenance.json"
ROWS: Final = "samples.parquet"
COLUMNS: Final = ("set", "topic", "rate", "processing_ms", "p90_ms", "cpu")
SUBSCRIBERS: Final = "subscribers"  # a column that older files do not have: one subscriber for each topic


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """Every set was run once, for ``run_s`` seconds."""

    hardware: Hardware  # of measured samples: a first guess, in which name and number of cores are right
    sets: Sets
    p90_ms: Floats  # (M,) of each topic
    cpu: Floats  # (S,) share of all cores in use; NaN where it was not measured
    run_s: float = 120.0
    provenance: dict[str, Any] = field(default_factory=dict)  # JSON values: source, seed, commit, ...

    def __post_init__(self) -> None:
        for name, count in (("p90_ms", len(self.sets.rate)), ("cpu", len(self.sets))):
            values = np.asarray(getattr(self, name), np.float64)
            if values.shape != (count,):
                raise BadInput(f"samples: {name} has shape {values.shape}, but must have {(count,)}")
            object.__setattr__(self, name, values)
        for name, values in (
            ("rate", self.sets.rate), ("processing_ms", self.sets.processing_ms), ("p90_ms", self.p90_ms),
            ("subscribers", self.sets.subscribers),
        ):  # fmt: skip
            bad = np.flatnonzero(~(np.isfinite(values) & (values > 0.0)))
            if len(bad):
                raise BadInput(
                    f"samples: {name} of {len(bad)} topics is not a number above zero (the first in set "
                    f"{self.sets.set_of[bad[0]]}); leave out sets in which a topic had no messages"
                )
        number = isinstance(self.run_s, (int, float)) and not isinstance(self.run_s, bool)
        if not number or not 0.0 < self.run_s < np.inf:
            raise BadInput(f"samples: run_s must be more than zero, and finite, but is {self.run_s!r}")
        if not isinstance(self.provenance, dict):
            raise BadInput(f"samples: provenance must be an object with names, but is {self.provenance!r}")

    def __len__(self) -> int:
        return len(self.sets)

    def take(self, rows: Ints) -> Samples:
        """These sets, in this order."""
        return Samples(
            self.hardware, self.sets.take(rows), self.p90_ms[self.sets.topics_of(rows)], self.cpu[rows], self.run_s,
            self.provenance,
        )  # fmt: skip

    def split(self, share: float, seed: int | tuple[int, ...]) -> tuple[Samples, Samples]:
        """Sets at random: about the given share of them, and the rest."""
        order = np.random.default_rng(seed).permutation(len(self))
        count = round(share * len(self))
        return self.take(np.sort(order[:count])), self.take(np.sort(order[count:]))

    def with_size(self, size: int) -> Samples:
        """The sets of so many topics."""
        return self.take(np.flatnonzero(self.sets.sizes == size))

    @classmethod
    def joined(cls, parts: Sequence[Samples]) -> Samples:
        """All sets, of the same hardware."""
        if not parts:
            raise BadInput("there are no samples to join")
        first = parts[0]
        for part in parts[1:]:
            if part.hardware.name != first.hardware.name:
                other = f"'{part.hardware.name}' and '{first.hardware.name}'"
                raise BadInput(f"samples of hardware {other} cannot be used together: fit a model for each")
            if part.run_s != first.run_s:
                raise BadInput(f"samples of runs of {part.run_s:g} s and {first.run_s:g} s cannot be used together")
        sizes = np.concatenate([part.sets.sizes for part in parts])
        sets = Sets(
            np.concatenate([[0], np.cumsum(sizes)]),
            np.concatenate([part.sets.rate for part in parts]),
            np.concatenate([part.sets.processing_ms for part in parts]),
            np.concatenate([part.sets.subscribers for part in parts]),
        )
        p90, cpu = (np.concatenate([getattr(part, name) for part in parts]) for name in ("p90_ms", "cpu"))
        return cls(first.hardware, sets, p90, cpu, first.run_s, first.provenance)

    def as_table(self) -> pa.Table:
        of = self.sets.set_of
        columns = (
            of, np.arange(len(of)) - self.sets.begin[of], self.sets.rate, self.sets.processing_ms, self.p90_ms,
            self.cpu[of],
        )  # fmt: skip
        return pa.table(dict(zip(COLUMNS, columns, strict=True)) | {SUBSCRIBERS: self.sets.subscribers})

    def write(self, folder: Path) -> None:
        """Samples that the folder holds already are replaced."""
        tables.write(self.as_table(), folder / ROWS)
        write_provenance(folder, self.hardware, self.run_s, self.provenance)

    @classmethod
    def read(cls, folder: Path) -> Samples:
        about = read_provenance(folder)
        paths = sorted(path for path in folder.rglob("*.parquet") if path.is_file() and not path.name.startswith("."))
        if not paths:
            raise BadInput(f"{folder} has no samples: no .parquet file")
        parts = [tables.read(path) for path in paths]
        for path, part in zip(paths, parts, strict=True):
            missing = [name for name in COLUMNS if name not in part.column_names]
            if missing:
                raise BadTable(str(path), f"has no column {', '.join(missing)}")
        table = pa.concat_tables([_with_subscribers(part) for part in parts], promote_options="permissive")
        table = table.sort_by([("set", "ascending"), ("topic", "ascending")])
        values = {
            name: tables.numbers(table, name, path=folder, may_be_empty=name == "cpu")
            for name in (*COLUMNS, SUBSCRIBERS)
        }  # fmt: skip
        _, first, count = np.unique(values["set"], return_index=True, return_counts=True)
        begin = np.concatenate([[0], np.cumsum(count)])
        sets = Sets(begin, values["rate"], values["processing_ms"], values[SUBSCRIBERS])
        try:
            return cls(
                Hardware.from_json(about["hardware"]), sets, values["p90_ms"], values["cpu"][first], about["run_s"],
                about["provenance"],
            )  # fmt: skip
        except BadInput as error:
            raise BadInput(f"{folder}: {error}") from None


def _with_subscribers(part: pa.Table) -> pa.Table:
    if SUBSCRIBERS in part.column_names:
        return part.select((*COLUMNS, SUBSCRIBERS))
    return part.select(COLUMNS).append_column(SUBSCRIBERS, pa.array(np.ones(part.num_rows)))


def write_provenance(folder: Path, hardware: Hardware, run_s: float, provenance: dict[str, Any]) -> None:
    """Written last: without it, a folder is no folder of samples."""
    about = {"version": VERSION, "hardware": hardware.as_json(), "run_s": run_s, "provenance": provenance}
    partial = folder / f".{PROVENANCE}.partial"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(about, indent=2) + "\n")
        os.replace(partial, folder / PROVENANCE)
    except OSError as error:
        raise BadInput(f"{folder / PROVENANCE} cannot be written: {error.strerror or error}") from None


def read_provenance(folder: Path) -> dict[str, Any]:
    path = folder / PROVENANCE
    try:
        about: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"{folder} is no folder of samples: it has no {PROVENANCE}") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None
    if not isinstance(about, dict) or about.get("version") != VERSION:
        found = about.get("version") if isinstance(about, dict) else None
        raise BadInput(f"{path} is of version {found}, but must be of version {VERSION}: collect the samples again")
    missing = {"hardware", "run_s", "provenance"} - about.keys()
    if missing:
        raise BadInput(f"{path} has no {', '.join(sorted(missing))}")
    return about
