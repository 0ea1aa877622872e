"""One long job at a time in a background thread, so that short jobs in the main thread do not wait for it."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class BackgroundJob:
    """Runs ``work`` in a background thread. Everything else runs in the caller's thread, so no state is shared."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "background")
        self._work: Future[Any] | None = None
        self._finish: Callable[[Any], None] = lambda _: None
        self._later: list[Callable[[], None]] = []

    @property
    def busy(self) -> bool:
        return self._work is not None

    def start(self, work: Callable[[], Any], finish: Callable[[Any], None]) -> None:
        """Start ``work`` in the background thread; ``settle`` calls ``finish`` with its result."""
        assert not self.busy
        self._finish, self._work = finish, self._pool.submit(work)

    def settle(self, *, wait: bool = False) -> bool:
        """Finish the job if its work is done, or wait for it. Returns whether a job was finished.

        An exception of the work is raised here.
        """
        if self._work is None or not (wait or self._work.done()):
            return False
        work, self._work = self._work, None
        result = work.result()
        self._finish(result)
        for drop in self._later:
            drop()
        self._later.clear()
        return True

    def when_free(self, drop: Callable[[], None]) -> None:
        """Call ``drop`` as soon as no job runs that may still use the data to be dropped."""
        if self.busy:
            self._later.append(drop)
        else:
            drop()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
