"""The interface of a goal: it finds faults, proposes changes, and accepts or refuses the changes of later goals.

The loop treats all goals alike. A goal that tries something costly and of uncertain gain sets ``pause_s``: the loop
then asks it at that interval only, and at twice the interval after each attempt that was not worth it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from trimtab.control.verdict import spread_fell, worth_it
from trimtab.fleet.protocol.plans import Levels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.control.settings import Settings
    from trimtab.control.verdict import Verdict
    from trimtab.control.view import View
    from trimtab.fleet.protocol.plans import Plan, Question
    from trimtab.model.workload import Rows


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of the present placement, described in a sentence."""

    kind: str  # one word
    text: str
    slight: bool = False  # the excess is so small that it may be noise
    aim: str = ""  # what a plan has to change to mend it, if that is narrower than the goal: a resource
    broker: str = ""  # the broker that the aim is about
    certain: bool = False  # needs no further measurement: a broker has reported it
    goal: str = ""  # set by the loop

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """Another placement, and the keys that move to get there, in order."""

    placement: Rows
    movers: Rows
    policy: str
    left: int = 0  # moves that the budget did not allow
    goal: str = ""  # set by ``decide``


class Goal(ABC):
    """One file each in this folder."""

    name: ClassVar[str]
    counts_cordoned: ClassVar[bool] = True  # whether findings are about cordoned brokers too
    in_use_only: ClassVar[bool] = False  # whether brokers that thrift has emptied do not exist for it
    pause_s: ClassVar[float] = 0.0  # interval of attempts; 0: no limit
    waits: ClassVar[bool] = True  # whether the outcome of the last plan must be measured before the next one

    @abstractmethod
    def find(self, view: View, settings: Settings) -> Iterator[Finding]:
        """Faults of the present placement."""

    @abstractmethod
    def propose(self, view: View, settled: Rows, question: Question) -> Iterator[Change | str]:
        """Changes that would mend the faults, the best first, or the reason why there are none. ``settled`` is the
        present placement with every lost key at a broker that is alive."""

    @abstractmethod
    def accept(self, view: View, placement: Rows, question: Question) -> str:
        """The reason why this placement harms the goal; empty if it does not."""

    @abstractmethod
    def mends(self, view: View, placement: Rows, question: Question) -> bool:
        """Whether this placement mends the goal's findings, as far as the question is about them."""

    def still_helps(self, view: View, plan: Plan, then: Rows, settings: Settings) -> bool:
        """Whether a plan under way, whose remaining steps lead to the placement ``then``, is still worth its moves."""
        return worth_it(Levels.of(view.load()), Levels.of(view.load(then)), 0.0)

    def settles_s(self, settings: Settings) -> float:
        """Time from the end of a plan to the first measurement that shows its whole effect."""
        return settings.period_s

    def helped(self, verdict: Verdict, view: View, settings: Settings) -> bool:
        """Whether the measurement of an ended plan shows enough of what was predicted."""
        return spread_fell(verdict, settings)
