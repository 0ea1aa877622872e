"""Traffic counts on their way to the brokers: kept until they are acknowledged, and counted once."""

from __future__ import annotations

import itertools
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.observe.report import TopicReport

    Counts = dict[str, TopicReport]  # by topic


class Reports:
    """The numbered counts of one run of a client.

    Without an answer, a client cannot know whether its report was received. So the same counts are sent again under
    the same number, and the agent counts each number once. Newer counts wait for the next number.
    """

    def __init__(self) -> None:
        self.run = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._waiting: dict[str, tuple[int, Counts]] = {}  # by broker; the counts that it has not acknowledged

    def next(self, broker: str, take: Callable[[], Counts]) -> tuple[int, Counts]:
        """The unacknowledged counts, or else new ones, with their number; 0 if there is nothing to count."""
        if broker not in self._waiting and (counts := take()):
            self._waiting[broker] = next(self._numbers), counts
        return self._waiting.get(broker, (0, {}))

    def waits(self, broker: str) -> bool:
        """Whether the next report repeats counts."""
        return broker in self._waiting

    def settle(self, broker: str, number: int) -> None:
        """These counts were acknowledged, or refused for good."""
        if self._waiting.get(broker, (0, {}))[0] == number:
            self._waiting.pop(broker, None)
