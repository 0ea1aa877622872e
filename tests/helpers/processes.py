"""Which tests start servers or Spark, and a guard that refuses both to all other tests.

A test that starts a nats-server has the fixture ``nats_server``, itself or by a fixture it uses; one that starts Spark
has the fixture ``java``. Markers are made of that, so nobody has to remember them, and the guard finds who forgets the
fixture: it also reaches Python processes that the test starts, by their environment.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

MARKERS = {"nats_server": "live", "java": "spark"}  # of a test, by the fixture it has
NEEDED = {"nats-server": "nats_server", "java": "java", "spark-submit": "java"}  # fixture, by the program
GUARDED = [str(Path(__file__).parent / "guard"), str(Path(__file__).parents[1])]  # first on a guarded process's path

_allowed = set(MARKERS)  # fixtures that the running test has


class NotAsked(Exception):
    """A test has started what it has no fixture for."""


def fixtures_of(names: list[str]) -> set[str]:
    """Those that say what a test starts."""
    return set(MARKERS) & set(names)


def allow(fixtures: set[str]) -> None:
    """From now on, programs that need other fixtures than these are refused to threads made from now on."""
    _allowed.clear()
    _allowed.update(fixtures)
    path = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and each not in GUARDED]
    os.environ["PYTHONPATH"] = os.pathsep.join(path if fixtures else [*GUARDED, *path])


def keep_allowed(thread: threading.Thread) -> None:
    """Let a thread start later what may be started now: a supervisor restarts its servers between tests."""
    thread.allowed = frozenset(_allowed)  # type: ignore[attr-defined]


def refuse_all() -> None:
    _allowed.clear()
    sys.addaudithook(check)


def check(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: Python calls it before it starts a process."""
    if event != "subprocess.Popen":
        return
    executable, words = arguments[:2]
    first = words if isinstance(words, str | bytes | os.PathLike) else next(iter(words), "")
    for program in (executable, first):
        needed = NEEDED.get(os.path.basename(os.fsdecode(program or "")))
        if needed and needed not in getattr(threading.current_thread(), "allowed", _allowed):
            raise NotAsked(f"a test that starts {os.fsdecode(program)} needs the fixture '{needed}'")
