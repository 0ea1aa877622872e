"""Starts processes, restarts them when they die, and ends them when it ends itself."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import logging
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trimtab.errors import BadInput
from trimtab.fleet import tasks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = logging.getLogger("trimtab.supervisor")
AGAIN_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # pauses before a process that keeps dying is restarted
STEADY_S: Final = 10.0  # after this lifetime, the next restart waits for the first of these pauses again
STOP_S: Final = 5.0  # time between SIGTERM and SIGKILL
_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG


@dataclass(slots=True)
class Child:
    """A process that should always run."""

    name: str
    argv: list[str]
    log: Path
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    restarts: int = 0

    def start(self) -> None:
        # Signals of the terminal (Ctrl-C) reach only the supervisor, which then ends its processes in order.
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                env=os.environ | self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    @property
    def pid(self) -> int:
        return self.process.pid if self.process else 0

    def tail(self) -> str:
        """The last line of its log."""
        try:
            lines = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""


def _end_with_parent() -> None:
    """Called in the child: it dies with a killed supervisor (on Linux; elsewhere agents watch their parent)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)


class Supervisor:
    """``async with Supervisor() as fleet: fleet.start(child)``; on leaving, the process started last ends first."""

    def __init__(self, on_restart: Callable[[Child], None] = lambda _: None) -> None:
        self.children: list[Child] = []
        self._watchers: dict[str, asyncio.Task[None]] = {}
        self._on_restart = on_restart
        self._stopping = False

    async def __aenter__(self) -> Supervisor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def start(self, child: Child) -> None:
        if child.name in self._watchers:
            raise BadInput(f"process '{child.name}' runs already")
        child.log.parent.mkdir(parents=True, exist_ok=True)
        child.start()
        self.children.append(child)
        self._watchers[child.name] = asyncio.create_task(self._watch(child), name=f"watch {child.name}")

    async def _watch(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        deaths = 0
        while True:
            began = loop.time()
            assert child.process is not None
            while child.process.poll() is None:
                await asyncio.sleep(0.05)
            if self._stopping:
                return
            deaths = 0 if loop.time() - began > STEADY_S else deaths
            await asyncio.sleep(AGAIN_S[min(deaths, len(AGAIN_S) - 1)])
            deaths += 1
            child.restarts += 1
            try:
                self._on_restart(child)
            except Exception:  # for example, the terminal that it writes to is gone
                log.exception("the restart of '%s' could not be reported", child.name)
            await self._start_again(child)

    async def _start_again(self, child: Child) -> None:
        """Start a process until that succeeds: the system may have no memory, processes or files left just now."""
        pauses = itertools.chain(AGAIN_S, itertools.repeat(AGAIN_S[-1]))
        for pause_s in pauses:
            try:
                child.start()
                return
            except (OSError, subprocess.SubprocessError) as error:
                log.error("'%s' cannot be started, and is tried again in %g s: %s", child.name, pause_s, error)
            await asyncio.sleep(pause_s)

    def find(self, name: str) -> Child:
        for child in self.children:
            if child.name == name:
                return child
        raise BadInput(f"no process is called '{name}'; there are: {', '.join(c.name for c in self.children)}")

    async def stop(self) -> None:
        """End all processes, the one started last first."""
        self._stopping = True
        await tasks.end(*self._watchers.values())  # first, because a watcher could restart a process
        for child in reversed(self.children):
            await self._end(child)
        self.children.clear()

    def kill_all(self) -> None:
        """Kill all processes and their children at once, from any thread and without the event loop."""
        self._stopping = True
        running = [child.process for child in list(self.children) if child.process is not None]
        for process in running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # each child leads a process group
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_S)

    async def kill(self, children: list[Child]) -> None:
        """Kill processes at once and together; they are not restarted."""
        for child in children:
            self._watchers[child.name].cancel()
        for child in children:
            if child.process is not None:
                child.process.kill()

    async def remove(self, child: Child) -> None:
        """End a process for good."""
        watcher = self._watchers.pop(child.name)
        await tasks.end(watcher)
        self.children.remove(child)
        await self._end(child)

    async def _end(self, child: Child) -> None:
        process = child.process
        if process is None:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STOP_S
        if process.poll() is None:
            process.terminate()
        while process.poll() is None and loop.time() < deadline:
            await asyncio.sleep(0.01)
        if process.poll() is None:
            process.kill()
            process.wait()
