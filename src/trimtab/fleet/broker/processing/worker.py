"""The main loop of a topic's worker process: read a message, call the topic's function, answer.

The first pipe carries one ``Setup`` and then one ``Request`` per message to the worker, each pickled behind its length.
The second pipe carries answers to the agent: ``ANSWER`` packs kind, CPU seconds since the last answer and length, then
follows the payload. The agent never unpickles data of the worker, because a user's function may write to any file
descriptor.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from trimtab.errors import BadInput
from trimtab.fleet.broker.processing.function import described, encode, load

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trimtab.fleet.broker.processing.function import Function
    from trimtab.fleet.protocol.message import Message

LENGTH: Final = struct.Struct("!Q")
ANSWER: Final = struct.Struct("!BdQ")
READY, REFUSED, RESULT, NOTHING, ERROR = range(1, 6)  # REFUSED: the function cannot be loaded; NOTHING: it gave None

_PR_SET_PDEATHSIG: Final = 1  # from <sys/prctl.h>
_WATCH_PARENT_S: Final = 0.5

Setup = tuple[str, int, list["Message"]]  # specification, size of the spool, messages in the spool
Request = tuple["Message", bool]  # False: add the message to the spool without processing it


def pack(request: Setup | Request) -> bytes:
    """Encode a request of the agent."""
    body = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def main(arguments: Iterable[str]) -> None:
    """``arguments``: this process's ends of the two pipes, and the process id of the agent."""
    down, up, parent = (int(argument) for argument in arguments)
    _die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the agent ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the agent's thread may have blocked some signals
    _prefer_for_oom_kill()
    for end in (down, up):
        os.set_inheritable(end, False)  # processes that the user's function starts do not inherit the pipes
    with contextlib.suppress(OSError):
        os.dup2(2, 1)  # a function prints to the log; the agent's standard output has readers of its own
    with contextlib.suppress(AttributeError):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    # The agent closes its ends when it no longer wants this worker.
    with contextlib.suppress(BrokenPipeError), open(down, "rb") as requests:
        serve(requests, up)


def serve(requests: BinaryIO, answers: int) -> None:
    """Answer every request in order to the file descriptor ``answers``, until there are no more."""
    setup = _receive(requests)
    if setup is None:
        return
    spec, spool_size, messages = setup
    accounted_s = 0.0

    def answer(kind: int, payload: bytes) -> None:
        nonlocal accounted_s
        cpu_s = time.process_time()
        _send(answers, ANSWER.pack(kind, cpu_s - accounted_s, len(payload)) + payload)
        accounted_s = cpu_s

    try:
        function = load(spec)
    except BadInput as problem:
        answer(REFUSED, _utf8(str(problem)))
        return
    spool: deque[Message] = deque(messages, maxlen=spool_size)
    answer(READY, b"")
    while (request := _receive(requests)) is not None:
        message, wanted = request
        spool.append(message)
        if wanted:
            answer(*_process(function, message, tuple(spool)))


def _process(function: Function, message: Message, spool: tuple[Message, ...]) -> tuple[int, bytes]:
    try:
        result = function(message, spool)
        return (NOTHING, b"") if result is None else (RESULT, encode(result))
    except BaseException as problem:  # SystemExit too: one message must not cost the next ones their worker
        # The frame after this one is the user's function, whose line says more than that of a library it called.
        inner = problem.__traceback__.tb_next if problem.__traceback__ else None
        place = f" ({os.path.basename(inner.tb_frame.f_code.co_filename)}, line {inner.tb_lineno})" if inner else ""
        return ERROR, _utf8(described(problem) + place)


def _receive(requests: BinaryIO) -> Any:
    """The next request; None if the agent has closed the pipe, also if it did so in the middle of one."""
    head = requests.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    body = requests.read(size)
    return pickle.loads(body) if len(body) == size else None


def _send(answers: int, data: bytes) -> None:
    unsent = memoryview(data)
    while unsent:
        unsent = unsent[os.write(answers, unsent) :]


def _utf8(text: str) -> bytes:
    return text.encode(errors="backslashreplace")


def _die_with(parent: int) -> None:
    """End this process when the agent ends, even if the agent is killed and the user's function is running."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # the agent ended before the death signal was set
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_PARENT_S)
    os._exit(1)


def _prefer_for_oom_kill() -> None:
    """If memory runs out, the kernel should take a processor, not the agent or the server beside it."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("500")
