"""The built-in processor that burns CPU time, for experiments; Khare (SEC'18) uses stress-ng's matrix product."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.fleet.protocol.message import Message

# In pure Python, because numpy would cost every worker 20 MB; one product takes well below a tenth of a millisecond.
_MATRIX: Final = tuple(tuple(1.0 / (1 + row + column) for column in range(6)) for row in range(6))


def burn(message: Message, spool: Sequence[Message], *, ms: float = 10.0) -> bytes:
    """The message's data, after ``ms`` milliseconds of CPU time (not of wall time) of this thread."""
    end = time.thread_time() + ms / 1000.0
    while time.thread_time() < end:
        _product(_MATRIX)
    return message.data


def _product(matrix: tuple[tuple[float, ...], ...]) -> list[list[float]]:
    columns = list(zip(*matrix, strict=True))
    return [[sum(a * b for a, b in zip(row, column, strict=True)) for column in columns] for row in matrix]
