"""Passes related options of a command as one argument of its function."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def packed(name: str, kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace the options named like the fields of the dataclass ``kind`` by one argument ``name`` of that type.

    The decorator must be below the options, next to the function.
    """
    fields = [field.name for field in dataclasses.fields(kind)]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**options: Any) -> None:
            options[name] = kind(**{field: options.pop(field) for field in fields})
            command(**options)

        return run

    return decorate
