"""Topics at their present brokers, and which brokers are better by enough to be worth a move."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.model.placement import UNPLACED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.nearness import Counts, Nearness, Ranked
    from trimtab.model.workload import Floats, Rows

MANY: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Present:
    """Topics at their brokers, with every latency lowered by the improvement that a move has to bring.

    A broker is better if it is better than this: fewer violating pairs, or as many and a smaller worst case.
    """

    worst_ms: Floats  # (T,) infinite without a broker
    violating: Counts  # (T,)
    less_ms: Floats  # (T,) the improvement
    located: NDArray[np.bool_]  # (T,) whether the latency of a client is known

    @classmethod
    def of(cls, nearness: Nearness, home: Rows, margin: float, margin_ms: float) -> Present:
        hosted = nearness.at(home)
        worst = np.where(home == UNPLACED, np.inf, np.nan_to_num(hosted.worst_ms, nan=0.0, posinf=np.inf))
        less = gain_needed(worst, margin, margin_ms)
        lowered = nearness.at(home, less_ms=less).violating
        return cls(worst - less, np.where(home == UNPLACED, MANY, lowered), less, nearness.located)

    def better(self, ranked: Ranked) -> NDArray[np.bool_]:
        """(T, K) whether each of the listed brokers is better for the topic."""
        now, pairs = self.worst_ms[:, None], self.violating[:, None]
        fewer, nearer = ranked.violating < pairs, (ranked.violating == pairs) & (ranked.worst_ms < now)
        return np.asarray((ranked.broker != UNPLACED) & (fewer | nearer))


def gain_needed(worst_ms: Floats, margin: float, margin_ms: float) -> Floats:
    """The improvement in ms that is worth a move: a topic would follow every change of an estimate without it."""
    return np.where(np.isfinite(worst_ms), np.maximum(margin_ms, margin * worst_ms), 0.0)
