"""Names of topics, clients and brokers, kept once and compactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab.errors import BadTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray


@final
class Ids:
    """An immutable sequence of distinct, non-empty strings; row ``i`` of a table is entity ``i``.

    Backed by one Arrow column, because a million Python strings cost ten times as much memory.
    """

    __slots__ = ("arrow",)

    def __init__(self, names: Any, *, table: str = "ids") -> None:
        column = names if isinstance(names, pa.Array) else pa.array(list(names), pa.string())
        if column.type != pa.string():
            column = column.cast(pa.string())
        self.arrow = column
        if column.null_count or pc.any(pc.equal(column, "")).as_py():
            blank = pc.or_kleene(pc.is_null(column), pc.equal(pc.fill_null(column, ""), ""))
            raise BadTable(table, "id is empty; every row needs a name", pc.index(blank, True).as_py())
        if pc.count_distinct(column).as_py() != len(column):
            first = np.asarray(pc.index_in(column, value_set=column))
            row = int(np.flatnonzero(first != np.arange(len(column)))[0])
            raise BadTable(table, f"id '{column[row]}' stands in row {first[row] + 1} already; ids must differ", row)

    @classmethod
    def numbered(cls, prefix: str, count: int) -> Ids:
        """``prefix0``, ``prefix1``, ..."""
        numbers = pa.array(np.arange(count, dtype=np.int64)).cast(pa.string())
        return cls(pc.binary_join_element_wise(prefix, numbers, ""))

    def __len__(self) -> int:
        return len(self.arrow)

    def __getitem__(self, row: int) -> str:
        name: str = self.arrow[row].as_py()
        return name

    def __iter__(self) -> Iterator[str]:
        return iter(self.arrow.to_pylist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ids) and bool(self.arrow.equals(other.arrow))

    def __hash__(self) -> int:
        return hash((len(self), self[0] if len(self) else ""))

    def __repr__(self) -> str:
        shown = ", ".join(repr(self[i]) for i in range(min(3, len(self))))
        return f"Ids({shown}{', ...' if len(self) > 3 else ''}; {len(self)})"

    def find(self, names: Iterable[str] | Any) -> NDArray[np.int32]:
        """The row of each name, -1 where there is none."""
        column = names if isinstance(names, (pa.Array, pa.ChunkedArray)) else pa.array(list(names), pa.string())
        rows = pc.fill_null(pc.index_in(column, value_set=self.arrow), -1)
        return np.asarray(rows, dtype=np.int32)

    def take(self, rows: NDArray[np.integer[Any]]) -> Any:
        """The names at ``rows`` as an Arrow column; null where a row is -1."""
        positions = np.asarray(rows)
        return self.arrow.take(pa.array(positions, mask=positions < 0))
