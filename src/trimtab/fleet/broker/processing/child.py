"""The event loop's handle of one worker process: starts it, sends requests, receives answers, ends and reaps it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import BadInput
from trimtab.fleet.broker.processing.pipes import AnswerPipe, RequestPipe
from trimtab.fleet.broker.processing.worker import READY, REFUSED, pack

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO

    from trimtab.fleet.broker.processing.worker import Request, Setup

START_LIMIT_S: Final = 60.0  # limit of a worker's start; a module may import a lot
LAST_ANSWERS_S: Final = 1.0  # longest time between the two signs of a worker's end, its closed pipe and its exit
POLL_S: Final = 0.05  # interval of the check for an exit, on systems without pidfd

# The worker has the agent's module search path. The topic is an argument only so that a process list shows it.
_PROGRAM: Final = (
    "import sys; topic, *ends = sys.argv[1:5]; sys.path[:] = sys.argv[5:]; del sys.argv[1:]; "
    "from trimtab.fleet.broker.processing.worker import main; main(ends)"
)


class Child:
    """A worker process. ``on_answer(kind, cpu_s, payload)`` and ``on_room()`` are called on the event loop.

    The process is spawned, not forked, because the agent has threads and sockets. The kernel ends it together with the
    thread that started it. So the event loop's own thread starts it, which suspends the loop for half a millisecond.
    """

    def __init__(self, topic: str, on_answer: Callable[[int, float, bytes], None], on_room: Callable[[], None]) -> None:
        self.topic = topic
        self.pid = -1
        self.unreported_s = 0.0  # CPU time that no answer has reported; set when the worker has ended
        self._on_answer = on_answer
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._answers = AnswerPipe(self._take, self.kill)
        self._requests = RequestPipe(on_room)
        self._agent_ends: list[FileIO] = []
        self._ready: asyncio.Future[str | None] = self._loop.create_future()  # None, or why it cannot serve
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._reported_s = 0.0
        self._hung_up = False  # whether it was killed because it had closed its pipe
        self._poll: asyncio.TimerHandle | None = None

    async def start(self, setup: Setup) -> None:
        """Return when the worker is ready. If it cannot become ready, end it and raise ``BadInput``."""
        try:
            await self._launch()
            self._requests.write(pack(setup))
            signs: set[asyncio.Future[Any]] = {self._ready, self._exited, self._answers.lost}
            await asyncio.wait(signs, timeout=START_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            if not self._ready.done() and (self._exited.done() or self._answers.lost.done()):
                await self.gone()
            if self._ready.done():
                why_not = self._ready.result()
            elif self._exited.done():
                why_not = f"processor '{setup[0]}': its worker died while it started: {self.exit_reason}"
            else:
                why_not = f"processor '{setup[0]}' was not ready within {START_LIMIT_S:g} s"
            if why_not is not None:
                raise BadInput(why_not)
        except BaseException:
            await self.end()
            raise

    @property
    def has_room(self) -> bool:
        """Whether the request pipe has room. If it has none, ``on_room`` is called when it has room again."""
        return self._requests.has_room

    def send(self, request: Request) -> bool:
        """Send a request. Returns False if the worker's pipe is closed."""
        return self._requests.write(pack(request))

    def kill(self) -> None:
        """Kill the worker and the processes that it started. ``gone`` waits for its end."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def gone(self) -> None:
        """Return when the worker has exited or closed its pipe, and its last answers have been received."""
        signs = {self._exited, self._answers.lost}
        await asyncio.wait(signs, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(signs, timeout=LAST_ANSWERS_S)

    async def end(self, grace_s: float = 0.0) -> None:
        """End the worker, reap it and close its pipes. The worker may exit by itself within ``grace_s``."""
        try:
            if self._process is not None and not self._exited.done():
                if grace_s:
                    self._hang_up()
                    await asyncio.wait({self._exited}, timeout=grace_s)
                else:
                    self._hung_up = True
                self.kill()
                await asyncio.wait({self._exited})
        finally:
            if self._process is not None and not self._exited.done():  # this call was cancelled
                self.kill()
                self._reap(0)
            self._hang_up()
        await asyncio.wait({self._requests.lost, self._answers.lost})
        for end in self._agent_ends:
            end.close()

    @property
    def exit_reason(self) -> str:
        code = self._process.returncode if self._process is not None else None
        if code is None or self._hung_up:
            return "it closed its pipe"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    async def _launch(self) -> None:
        with contextlib.ExitStack() as worker_ends:
            ends = []
            for mode in ("wb", "rb"):
                reading, writing = os.pipe()
                agent_end, worker_end = (writing, reading) if mode == "wb" else (reading, writing)
                self._agent_ends.append(os.fdopen(agent_end, mode, buffering=0))
                worker_ends.callback(os.close, worker_end)
                ends.append(worker_end)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, self.topic, *map(str, ends), str(os.getpid()), *_search_path()],
                stdin=subprocess.DEVNULL,
                pass_fds=ends,
                start_new_session=True,  # a process group of its own, so that ``kill`` ends its children too
            )
        self.pid = self._process.pid
        try:
            self._pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(self._pidfd, self._reap)
        except (AttributeError, OSError):  # not Linux, or too old, or too many files
            self._reap()
        requests, answers = self._agent_ends
        await self._loop.connect_write_pipe(lambda: self._requests, requests)
        await self._loop.connect_read_pipe(lambda: self._answers, answers)

    def _reap(self, options: int = os.WNOHANG) -> None:
        """Reap the process if it has exited, by ``wait4``, which also reports its CPU time."""
        if self._exited.done() or self._process is None:
            return
        if self._pidfd >= 0:
            self.kill()  # kills its children; until it is reaped, its process id cannot belong to another process
        try:
            pid, status, usage = os.wait4(self.pid, options)
        except ChildProcessError:  # other code in the agent has reaped it
            self._process.returncode = 255
        else:
            if pid == 0:
                self._poll = self._loop.call_later(POLL_S, self._reap)
                return
            self._process.returncode = os.waitstatus_to_exitcode(status)
            self.unreported_s = max(0.0, usage.ru_utime + usage.ru_stime - self._reported_s)
        if self._poll is not None:
            self._poll.cancel()
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
        self._exited.set_result(None)

    def _take(self, kind: int, cpu_s: float, payload: bytes) -> None:
        self._reported_s += cpu_s
        if self._ready.done():
            self._on_answer(kind, cpu_s, payload)
        elif kind == READY:
            self._ready.set_result(None)
        elif kind == REFUSED:
            self._ready.set_result(payload.decode(errors="replace"))
        else:
            self.kill()  # the user's function has written into the pipe

    def _hang_up(self) -> None:
        self._requests.close()
        self._answers.close()


def _search_path() -> list[str]:
    """This process's module search path, then the current folder: last, so that no module in it hides a library."""
    path = []
    for entry in [*sys.path, ""]:
        with contextlib.suppress(FileNotFoundError):  # the current folder may have been removed
            path.append(os.path.abspath(entry))
    return list(dict.fromkeys(path))
