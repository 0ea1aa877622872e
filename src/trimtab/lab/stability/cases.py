"""All cases: those of clients, of topics and mixed units, and of latency bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.errors import UnknownName
from trimtab.lab.stability import client_cases, elastic_cases, mixed_cases  # noqa: F401  imported to register their cases
from trimtab.lab.stability.register import CASES

__all__ = ["CASES", "find"]

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.lab.stability.case import Case


def find(name: str) -> Callable[[int], Case]:
    if name not in CASES:
        raise UnknownName("case", name, CASES)
    return CASES[name]
