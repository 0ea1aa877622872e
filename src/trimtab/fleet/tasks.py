"""Tasks that end for certain, also when a library swallows their cancellation; and where a task waits.

In Python 3.11 ``asyncio.wait_for`` may return normally although its task was cancelled, and nats-py catches
``CancelledError`` in some calls. A task in a loop then goes on, and a caller that cancels it once and awaits it never
returns. The functions here cancel until the task is done, and give up after a limit with a message in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable

    T = TypeVar("T")
    F = TypeVar("F", bound=asyncio.Future[Any])

log = logging.getLogger("trimtab.tasks")
AGAIN_S: Final = 1.0  # interval of cancellations of the same task; its time for its own clean-up
WITHIN_S: Final = 4.0  # limit of all cancellations; less than the supervisor waits before it kills a process
ROUNDS: Final = 3  # attempts to end background tasks, which may start others while they end
LISTED: Final = 20  # lines in a description of pending tasks


async def end(*tasks: asyncio.Future[Any], within_s: float = WITHIN_S, again_s: float = AGAIN_S) -> None:
    """Cancel tasks until they are done, for at most ``within_s``. The current task is left out.

    A task that fails while it is ended is logged, and so is one that has not ended within the limit. A task that was
    done before keeps its result or exception for its owner.
    """
    running = [task for task in tasks if not task.done()]
    await _cancel(running, within_s, again_s)
    for task in running:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed while it was ended: %r", _name(task), error)


async def within(limit_s: float, work: Awaitable[T]) -> T:
    """The result of ``work``, or ``TimeoutError`` after ``limit_s``.

    ``asyncio.wait_for`` and ``asyncio.timeout`` cancel only once, so calls of nats-py may take longer inside them.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=limit_s)
    finally:
        await _cancel([task], WITHIN_S, AGAIN_S)
    if not task.done() or task.cancelled():
        raise TimeoutError(f"not done within {limit_s:g} s")
    return task.result()


async def happens(event: asyncio.Event, within_s: float) -> bool:
    """Whether the event is set within this time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
    return event.is_set()


async def run_until(stop: asyncio.Event, *work: Coroutine[Any, Any, None]) -> None:
    """Run all of ``work`` until ``stop`` is set or the first one ends; then end the others and raise its exception."""
    running = [asyncio.create_task(coroutine, name=getattr(coroutine, "__qualname__", None)) for coroutine in work]
    stopping = asyncio.create_task(stop.wait(), name="stop")
    try:
        done, _ = await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end(*running, stopping)
    for task in done:
        task.result()


def run(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run``, which cancels the remaining tasks only once and then awaits them; here they end for certain."""

    async def whole() -> T:
        try:
            return await main
        finally:
            for task in await _cancel(asyncio.all_tasks(), WITHIN_S, AGAIN_S):
                asyncio.tasks._unregister_task(task)  # or asyncio.run would await it

    return asyncio.run(whole())


class Background:
    """Tasks without an awaiting caller: kept until they are done, failures logged, ended together."""

    __slots__ = ("_log", "_once", "_owner", "_tasks")

    def __init__(self, owner: str, log: logging.Logger) -> None:
        self._owner = owner
        self._log = log
        self._tasks: set[asyncio.Task[Any]] = set()
        self._once: dict[Hashable, asyncio.Task[Any]] = {}

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def start_once(self, work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Hashable) -> None:
        """Start ``work(*arguments)``, unless a task that was started by the same call still runs."""
        key = (work, *arguments)
        if key not in self._once:
            self._once[key] = task = self.start(work(*arguments))
            task.add_done_callback(lambda _: self._once.pop(key))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("%s: %r", self._owner, error)

    async def end(self) -> None:
        """End all tasks, and the tasks that they start meanwhile."""
        for _ in range(ROUNDS):
            if not self._tasks or await _cancel(self._tasks, WITHIN_S, AGAIN_S):
                break


async def _cancel(tasks: Iterable[F], within_s: float, again_s: float) -> set[F]:
    """Cancel tasks until all are done. Return those that are not done within the limit."""
    left = {task for task in tasks if not task.done() and task is not asyncio.current_task()}
    rounds = max(1, math.ceil(within_s / again_s))
    for _ in range(rounds):
        if not left:
            break
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=min(again_s, within_s))
    for task in left:
        log.error("%s was cancelled %d times and has not ended; it waits at %s", _name(task), rounds, where(task))
    return left


def _name(task: asyncio.Future[Any]) -> str:
    return f"task '{task.get_name()}'" if isinstance(task, asyncio.Task) else f"a {type(task).__name__}"


def where(task: asyncio.Future[Any]) -> str:
    """Where a task is suspended: the calls that await each other, the innermost last."""
    calls = []
    awaited: Any = task.get_coro() if isinstance(task, asyncio.Task) else None
    while (frame := getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)) is not None:
        calls.append(f"{frame.f_code.co_qualname} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})")
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    return " > ".join(calls) or "an unknown place"


def describe(tasks: Iterable[asyncio.Task[Any]]) -> list[str]:
    """A line for every place where pending tasks wait, with their names; rare places first."""
    places: dict[str, list[str]] = defaultdict(list)
    for task in tasks:
        if not task.done():
            places[where(task)].append(task.get_name())
    lines = []
    for place, names in sorted(places.items(), key=lambda item: (len(item[1]), item[1])):
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        lines.append(f"{min(names)}{others}: {place}")
    return [*lines[:LISTED], *([f"{len(lines) - LISTED} more places"] if len(lines) > LISTED else [])]
