"""Columns of numbers in stored models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from trimtab.model.workload import Floats


def numbers(values: Any) -> Floats:
    """The numbers of a JSON list, of lists of one length too. ``ValueError`` for anything else, such as null."""
    column = np.asarray(values, np.float64)
    if not column.ndim or not np.isfinite(column).all():
        raise ValueError(f"numbers were expected, but this came: {str(values)[:40]}")
    return column
