"""The catch-up rule: one stream out of two routes, without a gap, a duplicate or a message out of order.

While a subscriber moves, it listens on its old route and on the new one. Most messages then arrive twice, and those on
the faster route arrive first. Every source numbers its messages. The rule needs only these numbers: the next number is
delivered, an old number is a duplicate, and a later number waits until the numbers before it have arrived on the slower
route. The same rule restores the order when a publisher changes its broker while messages are in flight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_HELD: Final = 10_000  # most messages of one source held behind a gap; beyond that, the gap is given up
RECENT: Final = 1_000  # distance from the highest number within which a late message still counts as new
MOST_SOURCES: Final = 100_000  # most sources remembered; duplicates of a forgotten source are not detected


class Numbered(Protocol):
    """A message with a source and a sequence number; a message with an empty source is not numbered."""

    @property
    def source(self) -> str: ...
    @property
    def number(self) -> int: ...


T = TypeVar("T", bound=Numbered)


class Catchup:
    """Orders the messages of one subscription. Times are seconds on any monotonic clock."""

    __slots__ = ("_given_up", "_held", "_last", "duplicates", "keep_late", "missed", "wait_s")

    def __init__(self, wait_s: float = 1.0, *, keep_late: bool = False) -> None:
        self.wait_s = wait_s  # how long a gap may delay the messages behind it; 0: gaps are ignored
        self.keep_late = keep_late  # a message that arrives after its gap was given up is delivered, not dropped
        self.duplicates = 0  # messages dropped because they had been delivered, or given up, before
        self.missed = 0  # numbers given up: lost, or later than wait_s
        self._last: dict[str, int] = {}  # source -> last number delivered
        # source -> number -> arrival time and message; None for a skipped number
        self._held: dict[str, dict[int, tuple[float, Numbered | None]]] = {}
        self._given_up: dict[str, set[int]] = {}  # source -> numbers that may still arrive; only with keep_late

    def accept(self, message: T, now: float) -> Sequence[T]:
        """The messages that can be delivered after ``message`` has arrived, in order."""
        source, number = message.source, message.number
        if not source:
            return (message,)
        last = self._last.get(source)
        if last is not None and number == last + 1 and source not in self._held:  # nearly always
            self._last[source] = number
            return (message,)
        if last is None or number == last + 1:  # a subscriber that joins late starts at the first message it sees
            self._remember(source, number)
            if source in self._held:
                return [message, *self._follow(source)]  # type: ignore[list-item]  # only Ts are held
            return (message,)
        if number <= last:
            if self.keep_late and number in self._given_up.get(source, ()):
                self._given_up[source].remove(number)
                self.missed -= 1
                return (message,)
            self.duplicates += 1
            return ()
        if not self.wait_s:
            self._last[source] = number
            return (message,)
        held = self._held.setdefault(source, {})
        if number in held:
            self.duplicates += 1
            return ()
        held[number] = (now, message)
        if len(held) > MOST_HELD:
            return list(self._give_up(source))  # type: ignore[arg-type]
        return ()

    def skip(self, source: str, number: int, now: float) -> list[Numbered]:
        """Do not wait for ``number``, which is known not to arrive; returns the messages that can be delivered now."""
        if not source or number <= self._last.get(source, -1):
            return []
        self._held.setdefault(source, {}).setdefault(number, (now, None))
        return list(self._follow(source)) if source in self._last else []

    def overdue(self, now: float) -> list[Numbered]:
        """Give up gaps older than ``wait_s``; returns the messages behind them, which can be delivered now."""
        ready: list[Numbered] = []
        for source in list(self._held):
            while source in self._held:
                held = self._held[source]
                if now - held[min(held)][0] < self.wait_s:
                    break
                ready += self._give_up(source)
        return ready

    @property
    def holds(self) -> bool:
        """Whether messages wait behind a gap, so that ``overdue`` must be called again."""
        return bool(self._held)

    def held(self) -> list[Numbered]:
        """The messages that wait behind gaps."""
        by_number = (sorted(held.items()) for held in self._held.values())
        return [message for items in by_number for _, (_, message) in items if message is not None]

    def retry(self, source: str, number: int) -> None:
        """Expect a delivered message again because it could not be used; with ``keep_late`` it is delivered again."""
        self._given_up.setdefault(source, set()).add(number)
        self.missed += 1

    def done(self, source: str, number: int) -> bool:
        """Whether this message was delivered, and is not expected again."""
        return number <= self._last.get(source, -1) and number not in self._given_up.get(source, ())

    def given_up(self) -> dict[str, list[int]]:
        """Numbers that were given up and may still arrive, with ``keep_late``, by source."""
        return {source: sorted(numbers) for source, numbers in self._given_up.items() if numbers}

    def positions(self) -> dict[str, int]:
        return dict(self._last)

    def resume(self, positions: dict[str, int], given_up: dict[str, list[int]] | None = None) -> list[Numbered]:
        """Continue from another ``Catchup``: all numbers up to ``positions`` were delivered or given up."""
        ready: list[Numbered] = []
        for source, numbers in (given_up or {}).items():
            self._given_up.setdefault(source, set()).update(numbers)
        for source, number in positions.items():
            if self._last.get(source, -1) < number:
                self._remember(source, number)
                if source in self._held:
                    ready += self._follow(source)
        return ready

    def _follow(self, source: str) -> Iterator[Numbered]:
        """Deliver the held messages that directly follow the last number; drop older ones."""
        held = self._held[source]
        for old in [number for number in held if number <= self._last[source]]:
            del held[old]
        while (following := self._last[source] + 1) in held:
            _, message = held.pop(following)
            self._last[source] = following
            if message is not None:
                yield message
        if not held:
            del self._held[source]

    def _give_up(self, source: str) -> Iterator[Numbered]:
        first = min(self._held[source])
        gap = range(self._last.get(source, first - 1) + 1, first)
        self.missed += len(gap)
        if self.keep_late:
            self._given_up.setdefault(source, set()).update(gap[-MOST_HELD:])
        self._last[source] = max(first - 1, self._last.get(source, first - 1))
        return self._follow(source)

    def _remember(self, source: str, number: int) -> None:
        if source not in self._last and len(self._last) >= MOST_SOURCES:
            for old in list(self._last)[: MOST_SOURCES // 10]:
                if old not in self._held:
                    del self._last[old]
                    self._given_up.pop(old, None)
        self._last[source] = number


class Seen:
    """Detects duplicates among numbered messages that may arrive in any order."""

    __slots__ = ("_last", "_open")

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # source -> highest number seen
        self._open: dict[str, set[int]] = {}  # source -> lower numbers that may still arrive

    def is_new(self, source: str, number: int) -> bool:
        last = self._last.get(source)
        if last is None or number > last:
            if last is not None and number > last + 1:
                self._open.setdefault(source, set()).update(range(max(last + 1, number - RECENT), number))
            self._last[source] = number
            waiting = self._open.get(source)
            if waiting and len(waiting) > 2 * RECENT:
                self._open[source] = {late for late in waiting if late > number - RECENT}
            return True
        waiting = self._open.get(source)
        if waiting and number in waiting:
            waiting.remove(number)
            return True
        return False
