"""The processor of one topic: takes its messages in order, keeps a worker process running for it, reports results."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import BadInput, BadKnob
from trimtab.fleet import tasks
from trimtab.fleet.broker.processing.child import Child
from trimtab.fleet.broker.processing.worker import ERROR, NOTHING, RESULT
from trimtab.fleet.protocol.processor import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trimtab.fleet.protocol.message import Message

WINDOW: Final = 16  # messages with the worker at a time, so that it never waits for the event loop
GRACE_S: Final = 0.5  # time for a worker to exit by itself when its processor is stopped
STOP_S: Final = 10.0  # limit for ending a worker; after half of it, the task that ends it is cancelled again
FIRST_PAUSE_S: Final = 0.1  # before a worker that could not start is tried again; doubles each time
LAST_PAUSE_S: Final = 5.0


class TopicProcessor:
    """Processes messages in order in one worker process; a message that fails does not affect the others.

    ``on_result(message, result)`` or ``on_dead(message, reason)`` is called on the event loop, in the order of
    ``submit``, once for each message. A message is dead if its function raises an exception, takes longer than
    ``limit_s``, ends the worker, or returns more than ``most_bytes``. If the worker has ended, a new worker continues
    with the same spool and the next message. The spool contains messages, not results, so also those that are dead.
    """

    def __init__(
        self,
        topic: str,
        spec: str,
        *,
        spool_size: int,
        limit_s: float,
        most_bytes: float = math.inf,
        on_result: Callable[[Message, bytes | None], None],
        on_dead: Callable[[Message, str], None],
    ) -> None:
        parse(spec)
        if spool_size < 0:
            raise BadKnob(f"the processor of topic '{topic}'", "spool_size", spool_size, "0 or more")
        if not limit_s > 0.0:
            raise BadKnob(f"the processor of topic '{topic}'", "limit_s", limit_s, "above 0")
        self.topic = topic
        self.spec = spec
        self.spool_size = spool_size
        self.limit_s = limit_s
        self.most_bytes = most_bytes  # of a result
        self.backlog = 0  # submitted and not yet answered
        self.processed = 0
        self.dead = 0
        self.busy_s = 0.0  # CPU time of the workers, without their starts
        self._on_result = on_result
        self._on_dead = on_dead
        # The worker's spool at its last answer, and the messages remembered since.
        self._spool: deque[Message] = deque(maxlen=spool_size)
        # Messages that are not in the spool yet, oldest first. False: only to be remembered, not processed.
        self._line: deque[tuple[Message, bool]] = deque()
        self._sent = 0  # messages at the front of the line that the worker has; the first of them is to be processed
        self._head_since = 0.0  # start of the first message's time limit
        self._late: tuple[Message, bool] | None = None  # the message that the worker was killed for
        self._child: Child | None = None  # None while no worker is ready
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()  # number of answers to wait for
        self._answered = 0
        self._started: asyncio.Future[None] | None = None
        self._life: asyncio.Task[None] | None = None
        self._stopped = False

    @property
    def spool(self) -> list[Message]:
        """The worker's spool after all answers so far, which another worker needs to continue."""
        return list(self._spool)

    @property
    def pid(self) -> int | None:
        """The worker's process id; None while no worker is ready."""
        return None if self._child is None else self._child.pid

    async def start(self, spool: Iterable[Message] = ()) -> None:
        """Return when the worker is ready. A processor is started once.

        Raises ``BadInput`` if the worker cannot load the function, ``OSError`` if no process can be started. No
        process is left running then.
        """
        if self._life is not None or self._stopped:
            raise RuntimeError(f"the processor of topic '{self.topic}' has been started or stopped before")
        self._spool.extend(spool)
        self._started = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(self._started), name=f"processor of {self.topic}")
        try:
            await asyncio.shield(self._started)
        except BaseException:
            await self.stop()
            raise

    def submit(self, message: Message) -> None:
        """Process a message after all earlier ones. After ``stop`` it is dropped."""
        if not self._stopped:
            self.backlog += 1
            self._line.append((message, True))
            self._feed()

    def remember(self, message: Message) -> None:
        """Add a message to the spool, in order with submitted ones, without processing it."""
        if not self._stopped:
            self._line.append((message, False))
            self._feed()

    async def drained(self) -> None:
        """Return when everything submitted so far has been answered, or when the processor is stopped."""
        if self.backlog:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((self._answered + self.backlog, waiter))
            await waiter

    async def stop(self) -> None:
        """End the worker; messages that wait are dropped. May be called again, and at any time."""
        if not self._stopped:
            self._stopped = True
            self._line.clear()
            self._sent = self.backlog = 0
            self._wake()
            if self._timer is not None:
                self._timer.cancel()
            if self._started is not None and not self._started.done():
                self._started.set_exception(RuntimeError(f"the processor of topic '{self.topic}' was stopped"))
            if self._life is not None:
                await tasks.end(self._life, within_s=STOP_S, again_s=STOP_S / 2)
        if self._life is not None:
            await asyncio.wait({self._life}, timeout=STOP_S)  # an earlier call of ``stop`` may still be ending it
            if self._life.done() and not self._life.cancelled():
                self._life.result()  # raises if the task failed unexpectedly

    async def _live(self, started: asyncio.Future[None]) -> None:
        """Start a worker, and replace it whenever it has ended, until cancelled."""
        try:
            child = await self._launch()
        except (BadInput, OSError) as problem:
            started.set_exception(problem)
            return
        started.set_result(None)
        pause_s = 0.0
        while True:
            answered_before = self._answered
            self._feed()
            try:
                await child.gone()
            except asyncio.CancelledError:
                self._child = None
                await child.end(GRACE_S)
                raise
            self._child = None
            await child.end()
            self._bury(child)
            # A worker that answered nothing is replaced after a pause, because the next one may fail too.
            pause_s = 0.0 if self._answered > answered_before else _longer(pause_s)
            child = await self._replace(pause_s)

    async def _launch(self) -> Child:
        child = Child(self.topic, self._on_answer, self._feed)
        await child.start((self.spec, self.spool_size, self.spool))
        self._child = child
        return child

    async def _replace(self, pause_s: float) -> Child:
        while True:
            await asyncio.sleep(pause_s)
            try:
                return await self._launch()
            except (BadInput, OSError) as problem:
                self._sent = len(self._line)  # as if all messages were sent to a worker
                self._advance()
                while self._sent:
                    self._lose_head(f"its worker cannot start: {problem}")
                pause_s = _longer(pause_s)

    def _bury(self, child: Child) -> None:
        """Report the message that ended the worker, if any, as dead; the next worker gets the messages after it.

        If the answer to a late message arrives just before the worker is killed, the answer counts. The next worker
        then starts again with the message that the killed one had just begun.
        """
        head = self._line[0] if self._sent else None
        late, self._late = self._late, None
        if head is not None and (late is None or late is head):
            self.busy_s += child.unreported_s
            reason = f"took longer than {self.limit_s:g} s" if late else f"its worker died: {child.exit_reason}"
            self._lose_head(reason)
        self._sent = 0

    def _feed(self) -> None:
        """Send messages to the worker, up to ``WINDOW`` and as long as its pipe has room."""
        child = self._child
        while child is not None and child.has_room and self._sent < min(len(self._line), WINDOW):
            message, to_process = self._line[self._sent]
            if not child.send((message, to_process)):
                return  # the next worker gets it
            self._sent += 1
            if self._sent == 1:
                self._advance()

    def _advance(self) -> None:
        """Keep the invariant of ``_sent``: the worker's first message is to be processed, and its time limit runs."""
        while self._sent and not self._line[0][1]:
            self._spool.append(self._line.popleft()[0])
            self._sent -= 1
        if self._sent:
            self._head_since = asyncio.get_running_loop().time()
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_at(self._head_since + self.limit_s, self._check_deadline)

    def _check_deadline(self) -> None:
        """Kill the worker if its first message is late; otherwise set the timer for that message's deadline.

        One timer serves many messages: it is not reset at every answer.
        """
        self._timer = None
        if not self._sent or self._child is None or self._late is not None:
            return
        loop = asyncio.get_running_loop()
        deadline = self._head_since + self.limit_s
        if loop.time() < deadline:
            self._timer = loop.call_at(deadline, self._check_deadline)
        else:
            self._late = self._line[0]
            self._child.kill()

    def _on_answer(self, kind: int, cpu_s: float, payload: bytes) -> None:
        """Handle an answer, which always belongs to the head of the line."""
        if self._stopped:
            return
        if not self._sent or kind not in (RESULT, NOTHING, ERROR):
            if self._child is not None:
                self._child.kill()  # the user's function has written into the pipe
            return
        self.busy_s += cpu_s
        if kind == ERROR:
            self._lose_head(payload.decode(errors="replace"))
        elif kind == RESULT and len(payload) > self.most_bytes:
            self._lose_head(f"its result of {len(payload):,} bytes is over the limit of {self.most_bytes:,}")
        else:
            self.processed += 1
            self._finish_head(self._on_result, payload if kind == RESULT else None)
        self._feed()

    def _lose_head(self, reason: str) -> None:
        self.dead += 1
        self._finish_head(self._on_dead, reason)

    def _finish_head(self, report: Callable[[Message, Any], None], what: str | bytes | None) -> None:
        message = self._line.popleft()[0]
        self._spool.append(message)
        self._sent -= 1
        self._answered += 1
        self.backlog -= 1
        self._advance()
        try:
            report(message, what)
        except Exception as problem:  # an error in the caller's callback must not affect the next message
            context = {"message": f"report on a message of topic '{self.topic}' failed", "exception": problem}
            asyncio.get_running_loop().call_exception_handler(context)
        self._wake()

    def _wake(self) -> None:
        while self._waiters and (self._stopped or self._waiters[0][0] <= self._answered):
            _, waiter = self._waiters.popleft()
            if not waiter.done():  # it may have been cancelled
                waiter.set_result(None)


def _longer(pause_s: float) -> float:
    return min(max(2.0 * pause_s, FIRST_PAUSE_S), LAST_PAUSE_S)
