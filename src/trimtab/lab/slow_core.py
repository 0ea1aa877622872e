"""A processor for brokers that share a machine: each broker counts as one core of a tenth of the speed.

A message burns CPU time and occupies its broker's core for ten times as long. The core is a lock that the processors
of one broker share; they are children of the broker's agent, so its process id names the lock.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.fleet.protocol.message import Message

SLOWER: Final = 10.0
_files: list[int] = []


def work(message: Message, spool: Sequence[Message], *, ms: float = 4.0) -> bytes:
    """The message's data, after ``ms`` milliseconds of CPU time on a core of a tenth of the speed."""
    if not _files:
        path = Path(tempfile.gettempdir()) / f"trimtab-core-{os.getppid()}"
        _files.append(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    fcntl.flock(_files[0], fcntl.LOCK_EX)
    try:
        began, end = time.monotonic(), time.thread_time() + ms / 1000.0
        while time.thread_time() < end:
            pass
        time.sleep(max(0.0, began + SLOWER * ms / 1000.0 - time.monotonic()))
    finally:
        fcntl.flock(_files[0], fcntl.LOCK_UN)
    return message.data
