"""Topics follow their clients: the network part of the goal ``promises`` (Gupta et al., SEC'21, 3.4, Algorithm 1).

Topics with the least choice of brokers go first. A topic goes to a broker that keeps its bound, network and processing
together, and the bounds of the topics that are there already. If there is none, it goes to the broker with the fewest
pairs of publisher and subscriber above the bound. A topic moves only if it gains enough: the paper has no such
hysteresis, and moves a topic whose bound cannot be kept at every change of a coordinate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.control.goals.goal import Finding
from trimtab.control.resources import resources, too_full
from trimtab.model.key import Key
from trimtab.model.placement import UNPLACED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from trimtab.control.hosting import Hosting, Miss
    from trimtab.fleet.protocol.plans import Question
    from trimtab.model.workload import Floats, Rows

FAR: Final = "far"  # kind of finding, and aim of a plan
NAMED: Final = 3  # topics named in a finding


def is_far(hosting: Hosting, miss: Miss) -> bool:
    """Whether the network alone takes longer than the bound."""
    return bool(hosting.network[miss.broker, miss.topic] > hosting.bound_ms[miss.topic])


def far_topics(hosting: Hosting) -> Iterator[Finding]:
    """Topics whose network latency is above their bound: first those that another broker would serve better."""
    view, latency = hosting.view, hosting.view.network
    bounds, better = _bounds(hosting), latency.better()
    now = latency.at_home_ms
    far = np.flatnonzero((latency.home != UNPLACED) & (now > bounds))
    if not len(far):
        return
    mendable = better[far].any(axis=1)
    far = far[np.lexsort((-(now / bounds)[far], ~mendable))]
    texts = [_sentence(hosting, row) for row in far[:NAMED].tolist()]
    more = f"; and {len(far) - NAMED:,} more" if len(far) > NAMED else ""
    names = [view.snapshot.workload.topics.ids[int(latency.topic[row])] for row in far.tolist()]
    reported = any(name in view.snapshot.missed for name in names) and bool(mendable.any())
    yield Finding(
        FAR, "; ".join(texts) + more, aim=FAR if mendable.any() else "",
        broker=view.brokers[int(latency.home[far[0]])], certain=reported,
    )  # fmt: skip


def followed(hosting: Hosting, question: Question) -> tuple[Rows, Rows]:
    """A placement in which topics are nearer to their clients, and the keys that move, in order.

    O(topics above their bound x brokers) predictions of latency.
    """
    view, latency = hosting.view, hosting.view.network
    placement, rate = view.current.copy(), hosting.rate.copy()
    limits, frozen = resources(view, question.overload, question.messages), set(question.frozen)
    bounds, better, now = _bounds(hosting), latency.better(), latency.at_home_ms
    far = np.flatnonzero((latency.home != UNPLACED) & (now > bounds) & better.any(axis=1))
    choice = (latency.worst_ms <= bounds[:, None]).sum(axis=1)
    moved: list[int] = []
    for row in far[np.lexsort((-(now / bounds)[far], choice[far]))].tolist():
        key = _key(hosting, row)
        if len(moved) >= question.most or view.keys[key] in frozen:
            continue
        source, taken = int(placement[key]), hosting.taken(key)
        for target in _candidates(hosting, row, rate, taken, better[row]):
            trial = placement.copy()
            trial[key] = target
            if not too_full(view, limits, trial, strict=True):
                placement = trial
                rate[source] = np.maximum(rate[source] - taken, 0.0)
                rate[target] += taken
                moved.append(key)
                break
    return placement, np.array(moved, np.int32)


def _candidates(
    hosting: Hosting, row: int, rate: Floats, taken: Floats, better: NDArray[np.bool_]
) -> list[int]:  # fmt: skip
    """The brokers that are better for a topic, the best first: those that keep all bounds, then those with the fewest
    violating pairs, then with the least worst case. None at which the topic would break bounds of others."""
    latency = hosting.view.network
    brokers = np.flatnonzero(better).astype(np.int32)
    column = int(np.flatnonzero(hosting.topic == latency.topic[row])[0])
    strains = np.nan_to_num(hosting.strains(rate[brokers] + taken, brokers), nan=0.0)
    before = np.nan_to_num(hosting.strains(rate[brokers], brokers), nan=0.0)
    others = np.delete(strains, column, axis=1) > np.maximum(1.0, np.delete(before, column, axis=1))
    able, own = np.asarray(~others.any(axis=1)), strains[:, column]
    order = np.lexsort((latency.worst_ms[row, brokers], latency.violating[row, brokers], own > 1.0))
    return [int(brokers[at]) for at in order if able[at]]


def _bounds(hosting: Hosting) -> Floats:
    """(N,) of the topics with a known network latency."""
    bounds = hosting.view.snapshot.workload.topics.latency_ms
    rows = hosting.view.network.topic
    return np.zeros(0) if bounds is None else np.asarray(bounds[rows], np.float64)


def _key(hosting: Hosting, row: int) -> int:
    view = hosting.view
    return view.rows[Key("topic", view.snapshot.workload.topics.ids[int(view.network.topic[row])], "")]


def _sentence(hosting: Hosting, row: int) -> str:
    view, latency = hosting.view, hosting.view.network
    name, home = view.snapshot.workload.topics.ids[int(latency.topic[row])], int(latency.home[row])
    bound, times, late = _bounds(hosting)[row], latency.worst_ms[row], latency.violating[row]
    text = (
        f"topic '{name}' has a bound of {bound:,.0f} ms, but takes up to {times[home]:,.0f} ms through the network at "
        f"{view.brokers[home]}"
    )
    best = int(np.lexsort((times, late))[0])
    if best == home or not np.isfinite(times[best]):
        return f"{text}, and no broker is nearer to its clients"
    end = "" if times[best] <= bound else ", the least of all brokers"
    return f"{text}; {times[best]:,.0f} ms at {view.brokers[best]}{end}"
