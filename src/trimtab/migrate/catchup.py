"""The catch-up rule: one stream out of two routes, without a gap, a duplicate or a message out of order.

While a subscriber moves it listens on its old route and on the new one, so most messages come twice, and those
on the faster route overtake. Every source numbers its messages, and that is all the rule needs: the next number
is delivered, an old one is a duplicate, a later one waits until the ones before it have come on the slower
route. The same rule restores the order when a publisher changes its broker while messages are on their way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_HELD: Final = 10_000  # messages of one source kept back; more means that the gap will not be filled
MOST_SOURCES: Final = 100_000  # remembered; forgetting one only means that its duplicates are not seen


class Numbered(Protocol):
    """Anything with a place in a source's sequence; an empty source has none."""

    @property
    def source(self) -> str: ...
    @property
    def number(self) -> int: ...


T = TypeVar("T", bound=Numbered)


class Catchup:
    """Orders what one subscription receives. Times are seconds on any clock that only goes forward."""

    __slots__ = ("_given_up", "_held", "_last", "_since", "duplicates", "keep_late", "missed", "wait_s")

    def __init__(self, wait_s: float = 1.0, *, keep_late: bool = False) -> None:
        self.wait_s = wait_s  # how long a gap may delay what follows it; 0 if gaps mean nothing
        self.keep_late = keep_late  # what comes after all is delivered, out of order, instead of dropped
        self.duplicates = 0  # messages dropped because they had been delivered, or given up, before
        self.missed = 0  # numbers given up: lost, or later than wait_s
        self._last: dict[str, int] = {}  # source -> last number delivered
        # source -> number -> message that waits behind a gap, or None for one that need not be waited for
        self._held: dict[str, dict[int, Numbered | None]] = {}
        self._since: dict[str, float] = {}  # source -> when its gap was seen first; same keys as _held
        self._given_up: dict[str, set[int]] = {}  # source -> numbers that may still come; only with keep_late

    def accept(self, message: T, now: float) -> Sequence[T]:
        """What can be delivered now that ``message`` has come, in order."""
        source, number = message.source, message.number
        if not source:
            return (message,)
        last = self._last.get(source)
        if last is None:  # whoever comes later, starts here
            self._remember(source, number)
            if source in self._held:
                return [message, *self._follow(source, now)]  # type: ignore[list-item]
            return (message,)
        if number == last + 1:
            self._last[source] = number
            if source in self._held:
                return [message, *self._follow(source, now)]  # type: ignore[list-item]  # only Ts are held
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
        self._since.setdefault(source, now)
        if number in held:
            self.duplicates += 1
            return ()
        held[number] = message
        if len(held) > MOST_HELD:
            return list(self._give_up(source, now))  # type: ignore[arg-type]
        return ()

    def skip(self, source: str, number: int, now: float) -> list[Numbered]:
        """``number`` will not come, for a reason that is known; what can be delivered now that nobody waits for it."""
        if not source or number <= self._last.get(source, -1):
            return []
        self._held.setdefault(source, {}).setdefault(number, None)
        self._since.setdefault(source, now)
        return list(self._follow(source, now)) if self._last.get(source) == number - 1 else []

    def overdue(self, now: float) -> list[Numbered]:
        """Messages whose gap has not been filled in time, to be delivered without what is missing."""
        late = [source for source, since in self._since.items() if now - since >= self.wait_s]
        return [message for source in late for message in self._give_up(source, now)]

    @property
    def holds(self) -> bool:
        """Whether anything waits, so that ``overdue`` must be asked again."""
        return bool(self._held)

    def position(self, source: str) -> int | None:
        """The last number of ``source`` that was delivered."""
        return self._last.get(source)

    def positions(self) -> dict[str, int]:
        return dict(self._last)

    def resume(self, positions: dict[str, int]) -> None:
        """Go on where another left off: everything up to these numbers has been dealt with."""
        for source, number in positions.items():
            if self._last.get(source, -1) < number:
                self._remember(source, number)

    def _follow(self, source: str, now: float) -> Iterator[Numbered]:
        """What waited right behind the last number delivered."""
        held = self._held[source]
        while (following := self._last[source] + 1) in held:
            message = held.pop(following)
            self._last[source] = following
            if message is not None:
                yield message
        if held:
            self._since[source] = now
        else:
            del self._held[source], self._since[source]

    def _give_up(self, source: str, now: float) -> Iterator[Numbered]:
        first = min(self._held[source])
        gap = range(self._last.get(source, first - 1) + 1, first)
        self.missed += len(gap)
        if self.keep_late:
            self._given_up.setdefault(source, set()).update(gap[-MOST_HELD:])
        self._last[source] = first - 1
        return self._follow(source, now)

    def _remember(self, source: str, number: int) -> None:
        if len(self._last) >= MOST_SOURCES:
            for old in list(self._last)[: MOST_SOURCES // 10]:
                if old not in self._held:
                    del self._last[old]
        self._last[source] = number
