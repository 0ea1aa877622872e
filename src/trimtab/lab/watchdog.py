"""Watches a run in stages: reports where a slow stage waits, and finally ends the process.

It runs in a thread, so it also works while the event loop is blocked or is being closed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trimtab.errors import TrimtabError
from trimtab.fleet.tasks import describe

if TYPE_CHECKING:
    from collections.abc import Callable

CHECK_S: Final = 0.25  # interval of checks
ANSWER_S: Final = 2.0  # time after which an event loop that has not listed its tasks counts as blocked
CALLS: Final = 5  # innermost calls shown of a blocked event loop


class Stuck(TrimtabError):
    """A stage has not ended within its limit."""


@dataclass(frozen=True, slots=True)
class _Stage:
    name: str
    began: float
    slow_s: float
    limit_s: float
    reported_s: float = 0.0  # age of the stage at its last report


class Watchdog:
    """``with Watchdog(say) as watchdog``, around the event loop. ``say`` is called in the watchdog's thread.

    A stage that passes its limit is cancelled, and ``Stuck`` is raised instead of ``CancelledError``. If its task does
    not begin its clean-up within ``clean_up_s``, or does not finish it within ``clean_up_s``, the process ends with
    exit code 1.
    """

    def __init__(self, say: Callable[[str], None], *, clean_up_s: float) -> None:
        self._say = say
        self._clean_up_s = clean_up_s
        self._stage: _Stage | None = None
        self._verdict = ""
        self._task: asyncio.Task[object] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last_resort: list[Callable[[], None]] = []
        self._over = threading.Event()
        self._main = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if kind is not None and issubclass(kind, asyncio.CancelledError) and self._verdict:
            raise Stuck(self._verdict) from None

    def before_exit(self, work: Callable[[], None]) -> None:
        """Add work to do in the watchdog's thread before it ends the process. The work added last is done first."""
        self._last_resort.append(work)

    def stage(self, name: str, slow_s: float, limit_s: float) -> None:
        """The current task begins a stage, which is reported after ``slow_s`` and cancelled after ``limit_s``."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        if self._verdict and self._task is not None:  # the task has suppressed its cancellation
            self._task.cancel()
        else:
            self._stage = _Stage(name, time.monotonic(), slow_s, limit_s)

    def clean_up(self, name: str, slow_s: float) -> None:
        """The current task begins its clean-up, after a stage that was cancelled or after the last stage."""
        self._stage = _Stage(name, time.monotonic(), slow_s, self._clean_up_s)

    def _watch(self) -> None:
        while not self._over.wait(CHECK_S):
            if (stage := self._stage) is None:
                continue
            age_s = time.monotonic() - stage.began
            if age_s > stage.limit_s:
                self._give_up(stage, age_s)
            elif age_s > max(stage.slow_s, 2 * stage.reported_s):
                self._say(f"'{stage.name}' has taken {age_s:.0f} s so far. {self._pending()}")
                reported = _Stage(stage.name, stage.began, stage.slow_s, stage.limit_s, age_s)
                if self._stage is stage:
                    self._stage = reported

    def _give_up(self, stage: _Stage, age_s: float) -> None:
        sentence = f"'{stage.name}' has not ended within {age_s:.0f} s"
        self._say(f"{sentence}. {self._pending()}")
        if not self._verdict and self._loop is not None and self._task is not None and not self._loop.is_closed():
            self._verdict = f"{sentence}, so the run was ended"
            self._stage = _Stage(f"ending '{stage.name}'", time.monotonic(), self._clean_up_s, self._clean_up_s)
            self._loop.call_soon_threadsafe(self._task.cancel)
            return
        for work in reversed(self._last_resort):
            try:
                work()
            except Exception as error:
                self._say(f"{error!r} before the end of the process")
        self._say(f"{self._verdict or sentence}; the process ends without the rest of its clean-up")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)

    def _pending(self) -> str:
        """The places where all tasks wait, or where the event loop is blocked."""
        waits: list[str] = []
        listed = threading.Event()

        def list_tasks() -> None:
            waits.extend(describe(asyncio.all_tasks(self._loop)))
            listed.set()

        try:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(list_tasks)
        except (AssertionError, RuntimeError):  # there is no event loop, or it is closed
            pass
        else:
            if listed.wait(ANSWER_S):
                return "\n  ".join(["It waits for:", *waits])
        frame = sys._current_frames().get(self._main)
        calls = traceback.extract_stack(frame)[-CALLS:] if frame is not None else []
        places = [f"{call.name} ({call.filename}:{call.lineno})" for call in calls]
        return "\n  ".join(["The event loop does not answer; its thread is at:", *places])
