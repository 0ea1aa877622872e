"""Processor functions that behave well, badly, and very badly; brokers and workers import them by name."""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def echo(message, spool):
    return message.data


def own_pid(message, spool):
    return os.getpid()


def double(message, spool):
    """The message twice."""
    return 2 * message.data


def nothing(message, spool):
    return None


def scaled(message, spool, *, by=1, unit=""):
    return f"{int(message.text) * by}{unit}"


def spooled(message, spool):
    """The spool, joined."""
    return b"".join(each.data for each in spool)


def texts(message, spool):
    """What is in the spool, as JSON; does what a message says before that."""
    obey(message, spool)
    return [earlier.text for earlier in spool]


def unfit(message, spool):
    return {message.text}


def loud(message, spool):
    print("a line that must not be taken for an answer")
    os.write(1, b"nor must this one\n")
    return message.data


def forever(message, spool):
    """Say who we are, then never come back."""
    print(os.getpid(), flush=True)
    while True:
        pass


def wait_once(message, spool, *, at, path):
    """At the message ``at``, tell whoever reads the named pipe ``path``, remove it, and wait for a signal."""
    if message.text == at and os.path.exists(path):
        with open(path, "wb") as pipe:
            os.unlink(path)
            pipe.write(b"here")
        signal.pause()
    return message.data


def noted(message, spool, *, path):
    """Leave a line in the file ``path`` first, then do what the message says."""
    with open(path, "a") as notes:
        notes.write(f"{message.text}\n")
    obey(message, spool)
    return message.data


def obey(message, spool):
    """Do what the message says."""
    match message.text:
        case "skip":
            return None
        case "raise":
            raise ValueError("not to my taste")
        case "leave":
            sys.exit(4)
        case "starve":
            raise MemoryError
        case "hang":
            while True:
                pass
        case "exit":
            os._exit(3)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "freeze":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "scribble":
            for descriptor in range(3, 64):
                with contextlib.suppress(OSError):
                    os.write(descriptor, b"\x00 is no kind of answer")
        case "orphan":
            if os.fork():
                os._exit(3)
            signal.pause()  # the child holds the pipes open, and would for ever
        case "hang up":
            os.closerange(3, 64)
    return message.data


async def later(message, spool):
    return message.data


NOT_A_FUNCTION = 42
