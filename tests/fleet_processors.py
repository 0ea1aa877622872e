"""Processors for tests; the agents of the test fleet can import them."""

from __future__ import annotations

import os
import signal
import time


def spooled(message, spool):
    """The spool, joined."""
    return b"".join(each.data for each in spool)


def moody(message, spool):
    """Does what the message says."""
    if message.text == "raise":
        raise ValueError("as asked")
    if message.text == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if message.text == "hang":
        time.sleep(60)
    return None if message.text == "skip" else message.data


def double(message, spool):
    """The message twice."""
    return 2 * message.data
