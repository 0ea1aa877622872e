"""One piece of work at a time in a thread of its own, so that what must be quick need not wait for what takes long."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Beside:
    """All but the work itself happens in the thread that calls: nothing that it keeps is shared."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "beside")
        self._work: Future[Any] | None = None
        self._finish: Callable[[Any], None] = lambda _: None
        self._later: list[Callable[[], None]] = []

    @property
    def busy(self) -> bool:
        return self._work is not None

    def start(self, work: Callable[[], Any], finish: Callable[[Any], None]) -> None:
        """``work`` begins in the other thread; ``settle`` calls ``finish`` with what came of it."""
        assert not self.busy
        self._finish, self._work = finish, self._pool.submit(work)

    def settle(self, *, wait: bool = False) -> bool:
        """Finish what is done, or wait for it; what went wrong there is raised here. Whether there was anything."""
        if self._work is None or not (wait or self._work.done()):
            return False
        work, self._work = self._work, None
        made = work.result()
        self._finish(made)
        for drop in self._later:
            drop()
        self._later.clear()
        return True

    def when_free(self, drop: Callable[[], None]) -> None:
        """Let go of something that the work may still be using."""
        if self.busy:
            self._later.append(drop)
        else:
            drop()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
