"""Which reports of clients were counted, so that a report that is sent again is not counted twice."""

from __future__ import annotations

from typing import Final

MOST: Final = 100_000  # clients remembered; a repeated report of a forgotten client would be counted twice


class Counted:
    """The newest counted report of every client: its run and its number, which grows during a run."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[str, int]] = {}  # the client that reported last comes last

    def is_new(self, client: str, run: str, number: int) -> bool:
        """Whether this report was not counted before; remembers it. Reports without a number are always new."""
        if not number:
            return True
        before, last = self._newest.pop(client, ("", 0))
        repeated = before == run and number <= last
        self._newest[client] = run, max(number, last) if before == run else number
        if len(self._newest) > MOST:
            del self._newest[next(iter(self._newest))]
        return not repeated
