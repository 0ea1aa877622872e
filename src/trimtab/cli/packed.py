"""Options of a command that belong together, as one argument of its function."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def packed(name: str, kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give the function one argument ``name`` of the dataclass ``kind``, made of the options named like its fields.

    It stands below the options, next to the function.
    """
    fields = [field.name for field in dataclasses.fields(kind)]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**options: Any) -> None:
            options[name] = kind(**{field: options.pop(field) for field in fields})
            command(**options)

        return run

    return decorate
