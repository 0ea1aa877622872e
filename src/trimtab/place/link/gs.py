"""``link/gs`` and ``link/gs-strict``: GreedyScheduler (Lambert & Sakellariou, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from trimtab.model.placement import Placement
from trimtab.place.link.greedy import greedy_links

if TYPE_CHECKING:
    from trimtab.model.problem import Problem


@dataclass(frozen=True, slots=True)
class Gs:
    """The topic with the most links left goes to the broker with the most bandwidth left, and so on.

    Mended: as printed the loop never ends when the roomiest broker cannot take the next topic; that topic is
    dropped, since room only shrinks. O(L + T log B) for L links, T topics and B brokers.
    """

    may_leave_unplaced: ClassVar[bool] = True
    keeps_limits: ClassVar[bool] = True

    def place(self, problem: Problem) -> Placement:
        return Placement("link", greedy_links(problem.topic, problem.data_rate, problem.bandwidth, False))


@dataclass(frozen=True, slots=True)
class GsStrict:
    """``gs`` with the strict inner test ``b_k > r_i``: the last slot of a broker stays empty.

    The algorithm is printed with ``>=``, but only the strict test gives the numbers printed in Tables III
    and IV, so this is what to compare with the paper, and ``gs`` what to use.
    """

    may_leave_unplaced: ClassVar[bool] = True
    keeps_limits: ClassVar[bool] = True

    def place(self, problem: Problem) -> Placement:
        return Placement("link", greedy_links(problem.topic, problem.data_rate, problem.bandwidth, True))
