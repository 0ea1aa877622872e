"""Declaration of a world's options: its fields are the options of ``trimtab world``."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def option(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})
