"""One worker process as the event loop sees it: started, written to, listened to, ended and cleared away."""

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

START_LIMIT_S: Final = 60.0  # a module may import a lot
LAST_WORDS_S: Final = 1.0  # between the two signs of a worker's end: its pipe and its process
POLL_S: Final = 0.05  # where the kernel cannot tell us of an end

# The worker finds modules where the agent does. The topic is there for whoever looks at the list of processes.
_PROGRAM: Final = (
    "import sys; topic, *ends = sys.argv[1:5]; sys.path[:] = sys.argv[5:]; del sys.argv[1:]; "
    "from trimtab.fleet.broker.processing.worker import main; main(ends)"
)


class Child:
    """A worker process. ``on_answer(kind, cpu_s, payload)`` and ``on_room()`` are called on the event loop.

    Started anew, not forked, because the agent has threads and sockets. The kernel ends it with the thread that
    started it, so this must be the event loop's own; it is suspended for the half millisecond that this takes.
    """

    def __init__(self, topic: str, on_answer: Callable[[int, float, bytes], None], on_room: Callable[[], None]) -> None:
        self.topic = topic
        self.pid = -1
        self.unreported_s = 0.0  # CPU time that no answer told of; known when it has ended
        self._on_answer = on_answer
        self._loop = asyncio.get_running_loop()
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._answers = AnswerPipe(self._take, self.kill)
        self._requests = RequestPipe(on_room)
        self._our_ends: list[FileIO] = []
        self._ready: asyncio.Future[str | None] = self._loop.create_future()  # why not, or None if it is
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._reported_s = 0.0
        self._hung_up = False  # it had to be killed after it would no longer answer
        self._poll: asyncio.TimerHandle | None = None

    async def start(self, setup: Setup) -> None:
        """Return when the worker is ready; ``BadInput`` if it never will be, and then it is gone, too."""
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
                why_not = f"processor '{setup[0]}': its worker died while it started: {self.how_it_ended}"
            else:
                why_not = f"processor '{setup[0]}' was not ready within {START_LIMIT_S:g} s"
            if why_not is not None:
                raise BadInput(why_not)
        except BaseException:
            await self.end()
            raise

    @property
    def has_room(self) -> bool:
        """Whether to send more now; if not, ``on_room`` is called when there is room again."""
        return self._requests.has_room

    def send(self, request: Request) -> bool:
        """False if the worker is known not to get it."""
        return self._requests.write(pack(request))

    def kill(self) -> None:
        """Begin the end of it, and of whatever it started; ``gone`` tells when it has ended."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)

    async def gone(self) -> None:
        """Return when it has ended, or at least hung up, and everything that it had answered has been heard."""
        signs = {self._exited, self._answers.lost}
        await asyncio.wait(signs, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait(signs, timeout=LAST_WORDS_S)

    async def end(self, grace_s: float = 0.0) -> None:
        """Leave nothing of it: not a process, not a zombie, not an open file. It may end by itself for ``grace_s``."""
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
            if self._process is not None and not self._exited.done():  # whoever waits for us has no more time
                self.kill()
                self._reap(0)
            self._hang_up()
        await asyncio.wait({self._requests.lost, self._answers.lost})
        for end in self._our_ends:
            end.close()

    @property
    def how_it_ended(self) -> str:
        code = self._process.returncode if self._process is not None else None
        if code is None or self._hung_up:
            return "it closed its pipe"
        return f"signal {-code}" if code < 0 else f"exit code {code}"

    async def _launch(self) -> None:
        with contextlib.ExitStack() as their_ends:
            ends = []
            for our_mode in ("wb", "rb"):
                reading, writing = os.pipe()
                ours, theirs = (writing, reading) if our_mode == "wb" else (reading, writing)
                self._our_ends.append(os.fdopen(ours, our_mode, buffering=0))
                their_ends.callback(os.close, theirs)
                ends.append(theirs)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, self.topic, *map(str, ends), str(os.getpid()), *_search_path()],
                stdin=subprocess.DEVNULL,
                pass_fds=ends,
                start_new_session=True,  # a process group of its own, to end it with what it started
            )
        self.pid = self._process.pid
        try:
            self._pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(self._pidfd, self._reap)
        except (AttributeError, OSError):  # not Linux, or too old, or too many files
            self._reap()
        requests, answers = self._our_ends
        await self._loop.connect_write_pipe(lambda: self._requests, requests)
        await self._loop.connect_read_pipe(lambda: self._answers, answers)

    def _reap(self, options: int = os.WNOHANG) -> None:
        """Take note of the end of the process, if it has ended; by ``wait4``, which says what it cost."""
        if self._exited.done() or self._process is None:
            return
        if self._pidfd >= 0:
            self.kill()  # what it left behind; until it is reaped, its number is no one else's
        try:
            pid, status, usage = os.wait4(self.pid, options)
        except ChildProcessError:  # someone reaps all children of the agent
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
            self.kill()  # something writes into the pipe that is not the worker's loop

    def _hang_up(self) -> None:
        self._requests.close()
        self._answers.close()


def _search_path() -> list[str]:
    """Where this process finds modules, then the current folder: last, so that nothing in it hides a library."""
    path = []
    for entry in [*sys.path, ""]:
        with contextlib.suppress(FileNotFoundError):  # the current folder may have been removed
            path.append(os.path.abspath(entry))
    return list(dict.fromkeys(path))
