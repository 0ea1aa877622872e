"""The interface of a goal: it finds faults, proposes changes, and accepts or refuses the changes of other goals."""

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
    UNFINISHED = "unfinished"  # the budget did not allow all moves of the last plan


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of the present placement, described in a sentence."""

    kind: Kind
    text: str
    slight: bool = False  # the excess is so small that it may be noise
    resource: str = ""  # a resource of which one broker has too little and the others have enough
    broker: str = ""  # the broker that has least of that resource

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
        """Faults of the present placement."""
        ...

    def propose(self, view: View, settled: Rows, question: Question) -> Iterator[Change | str]:
        """Changes that would mend the faults, the best first, or the reason why there are none. ``settled`` is the
        present placement with every lost key at a broker that is alive."""
        ...

    def accept(self, view: View, placement: Rows, question: Question) -> str:
        """The reason why this placement harms the goal; empty if it does not."""
        ...

    def mends(self, view: View, placement: Rows, question: Question) -> bool:
        """Whether this placement mends the goal's findings, as far as the question is about them."""
        ...
