"""Calls of an application's callbacks, in one way for topics, channels and dead letters."""

from __future__ import annotations

import inspect
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("trimtab.client")


async def call(callback: Callable[..., Any], arguments: tuple[Any, ...], of: str, *details: object) -> bool:
    """Call a function, and await what it returns if that can be awaited. Return False if it raised an exception.

    So coroutine functions, objects with an async ``__call__`` and functions that return a coroutine all serve.
    The exception is logged: ``of`` and ``details`` name the callback's source and the message, as logging formats them.
    """
    try:
        done = callback(*arguments)
        if done is not None and inspect.isawaitable(done):
            await done
    except Exception:
        log.exception(f"the callback of {of}", *details)
        return False
    return True
