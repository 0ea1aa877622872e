"""What every goal is: it finds what is wrong, proposes changes, and accepts or refuses those of other goals."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.control.question import Question
    from trimtab.control.settings import Settings
    from trimtab.control.view import View
    from trimtab.model.workload import Rows


class Kind(StrEnum):
    LOST = "lost"  # keys whose broker is not alive
    OVERLOAD = "overload"
    IMBALANCE = "imbalance"
    IDLE = "idle"
    SCATTERED = "scattered"  # clients with common subscriptions at different brokers
    UNFINISHED = "unfinished"  # the budget did not allow all of the last plan


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, in a sentence."""

    kind: Kind
    text: str
    slight: bool = False  # so little above what is allowed that it may be noise
    resource: str = ""  # of which a broker has too little, and others have enough
    broker: str = ""  # that has least of it

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """Another placement, and the keys that move to get there, in order."""

    placement: Rows
    movers: Rows
    policy: str
    left: int = 0  # moves that the budget did not allow


class Goal(Protocol):
    """One file each in this folder."""

    name: str

    def find(self, view: View, settings: Settings) -> Iterator[Finding]:
        """What is wrong, if anything."""
        ...

    def propose(self, view: View, settled: Rows, question: Question) -> Iterator[Change | str]:
        """Changes that would mend it, the best first; or why there are none. ``settled`` is the present placement with
        every key at a broker that is alive."""
        ...

    def accept(self, view: View, placement: Rows, question: Question) -> str:
        """Empty, or why this placement harms the goal."""
        ...

    def mends(self, view: View, placement: Rows, question: Question) -> bool:
        """Whether this placement mends what the goal has found, as far as the question is about it."""
        ...
