"""Settings and main function of a fleet's other processes: controllers and the data cluster.

Settings are passed in a file that only its owner can read, since those of Spark may contain passwords.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import msgspec

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet.protocol import coding
from trimtab.fleet.site.credentials import read_secret, write_secret

if TYPE_CHECKING:
    from collections.abc import Callable

    S = TypeVar("S")


class ControllerProcess(msgspec.Struct, frozen=True):
    """Settings of ``trimtab.control.process``."""

    home: str  # the fleet folder
    settings: dict[str, Any] | None = None  # ``[control]``; None: that of trimtab.toml
    paused: bool = False


class PipelineProcess(msgspec.Struct, frozen=True):
    """Settings of ``trimtab.pipeline.process``."""

    home: str  # the fleet folder
    manifest: str | None = None  # manifest of an application; None: only measure the fleet
    spark: dict[str, str] | None = None  # ``[spark]``; None: that of trimtab.toml


def write_settings(path: Path, settings: ControllerProcess | PipelineProcess) -> None:
    write_secret(path, coding.plain(settings))


def begin(kind: type[S], run: Callable[[S], None]) -> NoReturn:
    """The main function of such a process: its only argument is the file with its settings."""
    try:
        if len(sys.argv) != 2:
            raise BadInput(f"this process needs one argument, the file with its settings; it got {len(sys.argv) - 1}")
        run(coding.from_plain(read_secret(Path(sys.argv[1]), "trimtab up writes it"), kind))
    except (BadInput, Unreachable) as error:
        print(f"trimtab: {error}", file=sys.stderr)
        sys.exit(2)
    sys.exit(0)
