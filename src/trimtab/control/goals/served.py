"""Goal 1, served: every key is at a broker that is alive (Nguyen, DEBS'19; Gupta, SEC'21)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.control.goals.goal import Change, Finding, Goal
from trimtab.model.key import counted
from trimtab.model.placement import UNPLACED
from trimtab.place.client.homes import Homes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.control.settings import Settings
    from trimtab.control.view import View
    from trimtab.fleet.protocol.plans import Question
    from trimtab.model.workload import Rows

LOST: Final = "lost"


class Served(Goal):
    name: ClassVar[str] = "served"

    def find(self, view: View, _: Settings) -> Iterator[Finding]:
        lost = np.flatnonzero(view.current == UNPLACED).tolist()
        if lost:
            keys = [view.keys[row] for row in lost]
            verb = "is" if len(keys) == 1 else "are"
            yield Finding(LOST, f"{counted(keys)} {verb} at a broker that is not alive")

    def propose(self, view: View, settled: Rows, question: Question) -> Iterator[Change | str]:
        lost = np.flatnonzero(view.current == UNPLACED).astype(np.int32)
        yield Change(settled, lost, "re-home") if len(lost) else "every key is at a broker that is alive"

    def accept(self, view: View, placement: Rows, question: Question) -> str:
        lost = int(np.count_nonzero(placement == UNPLACED))
        return f"it leaves {lost:,} without a broker" if lost else ""

    def mends(self, view: View, placement: Rows, question: Question) -> bool:
        return not self.accept(view, placement, question)


def settled(view: View) -> Rows:
    """The present placement with lost keys settled, the heaviest first, each at the broker with the least load."""
    placement = view.current.copy()
    lost = np.flatnonzero(placement == UNPLACED).tolist()
    if lost:
        assert view.problem.current is not None
        homes = Homes(view.problem, view.problem.current)
        homes.settle(lost)
        placement[lost] = [homes.home(key) for key in lost]
    return placement
