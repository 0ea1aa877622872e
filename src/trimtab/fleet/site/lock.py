"""A file lock that lets only one process at a time use a folder."""

from __future__ import annotations

import fcntl
from typing import IO, TYPE_CHECKING

from trimtab.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path


def lock(folder: Path, what: str, remedy: str) -> IO[str]:
    """Lock ``folder`` until the returned file is closed or the process ends; refused if another process holds it."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle = (folder / "lock").open("w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        handle.close()
        raise BadInput(f"{what} runs already; {remedy}") from None
    return handle
