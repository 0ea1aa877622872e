"""Replacing a folder as a whole: it is written beside its place and renamed at the end."""

from __future__ import annotations

import shutil
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trimtab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def replacing(folder: Path, refuse: Callable[[Path], None]) -> Iterator[Path]:
    """A folder to write to, which does not exist yet. It takes the place of ``folder`` if the block ends without an
    error, and is removed otherwise: then ``folder`` stays as it was.

    ``refuse(folder)`` raises an error if the present content must not be replaced. It is called before and after the
    block, since the folder may be written meanwhile.
    """
    refuse(folder)
    number = uuid.uuid4().hex[:8]
    fresh, old = (folder.with_name(f".{folder.name}.{number}.{part}") for part in ("partial", "old"))
    try:
        yield fresh
        refuse(folder)
        if folder.exists():
            folder.rename(old)
        fresh.rename(folder)
    except OSError as error:
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise BadInput(f"{folder} cannot be written: {error.strerror or error}") from None
    finally:
        for each in (fresh, old):
            shutil.rmtree(each, ignore_errors=True)
