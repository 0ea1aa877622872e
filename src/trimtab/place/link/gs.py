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
    """Gives the topic with the most unplaced links to the broker with the most free bandwidth (Lambert, Algorithm 1).

    Corrected: as printed, the loop never ends when the roomiest broker cannot take the next topic. Here that topic is
    dropped, since room only shrinks. O(L + T log B) for L links, T topics and B brokers.
    """

    may_leave_unplaced: ClassVar[bool] = True
    keeps_limits: ClassVar[bool] = True

    def place(self, problem: Problem) -> Placement:
        return Placement("link", greedy_links(problem.topic, problem.data_rate, problem.bandwidth, False))


@dataclass(frozen=True, slots=True)
class GsStrict:
    """Like ``gs``, but never fills a broker's bandwidth completely, as in the paper's tables (Lambert, Tables III, IV).

    The inner test is ``b_k > r_i``. The algorithm is printed with ``>=``, but only the strict test gives the
    printed numbers: compare the paper with ``gs-strict``, and use ``gs``.
    """

    may_leave_unplaced: ClassVar[bool] = True
    keeps_limits: ClassVar[bool] = True

    def place(self, problem: Problem) -> Placement:
        return Placement("link", greedy_links(problem.topic, problem.data_rate, problem.bandwidth, True))
