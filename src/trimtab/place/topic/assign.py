"""PlaceTopics of Gupta et al. (SEC'21, Algorithm 1, lines 1 to 11): topics in the order of increasing choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from trimtab.compiled import compiled

if TYPE_CHECKING:
    from trimtab.model.nearness import Counts
    from trimtab.model.workload import Floats, Rows
    from trimtab.place.topic.room import Room

LISTED: Final = 8  # best brokers of each topic that are listed at first, where all can be listed
AT_ONCE: Final = 1 << 21  # most entries of a list of all brokers of some topics


class Ranking(Protocol):
    """The order in which brokers are tried for topics."""

    @property
    def listed(self) -> int:
        """The number of best brokers of a topic that are known without further work."""
        ...

    def best(self, topics: Rows, most: int) -> Rows:
        """(len(topics), most) brokers of each topic, the best first; UNPLACED where there are no more."""
        ...


def assign(
    topics: Rows, choices: Counts, ranking: Ranking, room: Room, home: Rows, *, tried: Counts | None = None
) -> Rows:  # fmt: skip
    """Give each of these topics the first of its brokers that has room for it.

    Topics are in increasing order of ``choices`` (len(topics),), which is also the number of brokers that are tried for
    each, unless ``tried`` gives another one. A topic keeps its broker of ``home`` where none has room. Returns the new
    homes.
    """
    home, used = home.copy(), room.used(home)
    brokers = room.limit.shape[1]
    order = np.argsort(choices, kind="stable")
    topics, choices = topics[order], (choices if tried is None else tried)[order]
    listed = min(ranking.listed, brokers)
    best = ranking.best(topics, listed)
    at = 0
    while at < len(topics) and brokers:
        at += _assign(topics[at:], best[at:], choices[at:], room.use, room.limit, used, home)
        if at < len(topics):  # none of the listed brokers has room for this topic
            some = slice(at, at + max(1, AT_ONCE // brokers))
            everything = ranking.best(topics[some], brokers)
            at += _assign(topics[some], everything, choices[some], room.use, room.limit, used, home)
    return home


@compiled
def _assign(
    topics: Rows, best: Rows, choices: Counts, use: Floats, limit: Floats, used: Floats, home: Rows
) -> int:  # fmt: skip
    """The number of topics before the first one whose listed brokers are full, while it has more choices."""
    resources, listed = len(use), best.shape[1]
    for i in range(len(topics)):
        t = topics[i]
        old = home[t]
        if old >= 0:
            for r in range(resources):
                used[r, old] -= use[r, t]
        found = -1
        for c in range(min(choices[i], listed)):
            b = best[i, c]
            if b < 0:
                break
            fits = True
            for r in range(resources):
                fits = fits and used[r, b] + use[r, t] <= limit[r, b]
            if fits:
                found = b
                break
        stuck = found < 0 and choices[i] > listed
        if found < 0:
            found = old
        if found >= 0:
            for r in range(resources):
                used[r, found] += use[r, t]
        if stuck:
            return i
        home[t] = found
    return len(topics)
