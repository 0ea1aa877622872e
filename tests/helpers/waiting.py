"""Waiting for a condition instead of a time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_S = 20.0
PAUSE_S = 0.01  # between two looks


async def until(condition: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """Wait until ``condition()`` is true and return its value; it may be a coroutine function."""
    for pause_s in _pauses(condition, limit_s):
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        await asyncio.sleep(pause_s)
    return None


def until_blocking(condition: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """The same outside an event loop."""
    for pause_s in _pauses(condition, limit_s):
        if value := condition():
            return value
        time.sleep(pause_s)
    return None


async def always(condition: Callable[[], Any], seconds: float) -> None:
    """Check that ``condition()`` stays true: for tests of what must not happen, where only time can tell."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        value = condition()
        assert await value if asyncio.iscoroutine(value) else value, f"no longer true: {_name(condition)}"
        await asyncio.sleep(0.1)


async def turns(count: int = 5) -> None:
    """Let the event loop run everything that can run now."""
    for _ in range(count):
        await asyncio.sleep(0)


def _pauses(condition: Callable[[], Any], limit_s: float) -> Iterator[float]:
    deadline = time.monotonic() + limit_s
    while True:
        late = time.monotonic() >= deadline  # asked before the look, so that there is one after the deadline
        yield PAUSE_S
        assert not late, f"not true within {limit_s:g} s: {_name(condition)}"


def _name(condition: Callable[[], Any]) -> str:
    code = getattr(condition, "__code__", None)
    return f"{condition.__qualname__} ({code.co_filename}:{code.co_firstlineno})" if code else repr(condition)
