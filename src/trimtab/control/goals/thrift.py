"""Goal 4, thrift: no more brokers in use than the goals before it take (Khare et al., SEC'18). Off unless asked for.

A broker is emptied when every key of it fits at the others: below the share of each resource down to which full
brokers are relieved, and with every latency bound kept with some reserve. An emptied broker stays alive. The goals
before this one use it again when they need it; the goals after this one leave it empty.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.control.goals.goal import Change, Finding, Goal
from trimtab.control.hosting import Hosting, latency_model
from trimtab.control.resources import Costs, resources
from trimtab.model.placement import UNPLACED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from trimtab.control.resources import Resource
    from trimtab.control.settings import Settings
    from trimtab.control.verdict import Verdict
    from trimtab.control.view import View
    from trimtab.fleet.protocol.plans import Plan, Question
    from trimtab.model.key import Key
    from trimtab.model.workload import Floats, Rows

SURPLUS: Final = "surplus"
EMPTY: Final = "empty"
RESERVE: Final = 0.85  # strain up to which brokers are filled, so that promises do not ask for another one at once


class Thrift(Goal):
    name: ClassVar[str] = "thrift"
    counts_cordoned: ClassVar[bool] = False
    pause_s: ClassVar[float] = 30.0

    def find(self, view: View, settings: Settings) -> Iterator[Finding]:
        if not settings.thrift or (view.current == UNPLACED).any():
            return
        hosting = Hosting.of(view, latency_model(settings.model), settings.headroom)
        limits = resources(view, settings.overload, settings.messages)
        found = emptied(view, hosting, limits, math.ceil(settings.budget * len(view.keys)))
        if found is not None:
            broker, placement = found
            count = int(np.count_nonzero(placement != view.current))
            text = f"{view.brokers[broker]} is not needed: what it serves ({count:,} to move) fits at the other brokers"
            yield Finding(SURPLUS, text, aim=EMPTY, broker=view.brokers[broker])

    def propose(self, view: View, settled: Rows, question: Question) -> Iterator[Change | str]:
        if question.aims.get(self.name) != EMPTY or (view.current == UNPLACED).any():
            return
        hosting = Hosting.of(view, latency_model(question.model), question.headroom)
        limits = resources(view, question.overload, question.messages)
        found = emptied(view, hosting, limits, question.most, question.frozen)
        if found is None:
            yield "no broker's topics, clients and links fit at the other brokers within the budget of moves"
        else:
            yield Change(found[1], np.flatnonzero(found[1] != view.current).astype(np.int32), EMPTY)

    def accept(self, view: View, placement: Rows, question: Question) -> str:
        if not question.thrift:
            return ""
        filled = sorted(used(placement) - used(view.current))
        return f"{', '.join(view.brokers[row] for row in filled)} would be in use again" if filled else ""

    def mends(self, view: View, placement: Rows, question: Question) -> bool:
        return question.aims.get(self.name) != EMPTY or len(used(placement)) < len(used(view.current))

    def still_helps(self, view: View, plan: Plan, then: Rows, settings: Settings) -> bool:
        return len(used(then)) < len(used(view.current))

    def helped(self, verdict: Verdict, view: View, settings: Settings) -> bool:
        sources = {step.source for step in verdict.plan.steps}
        return not {view.brokers[row] for row in used(view.current)} >= sources


def used(placement: Rows) -> set[int]:
    """Rows of brokers that have keys."""
    return set(placement[placement != UNPLACED].tolist())


def unused(view: View) -> list[str]:
    """Names of brokers that have no keys."""
    busy = used(view.current)
    return [name for row, name in enumerate(view.brokers) if row not in busy]


def emptied(
    view: View, hosting: Hosting, limits: list[Resource], most: int, frozen: Collection[Key] = ()
) -> tuple[int, Rows] | None:
    """A broker that is not needed, and a placement without it; None if all brokers in use are needed.

    Brokers are tried in order of their load, if they have at most ``most`` keys, none of them frozen. Without any
    limit, nothing is known about what fits, so all brokers are needed.
    """
    in_use = sorted(used(view.current), key=lambda row: (view.load().levels[row], row))
    if len(in_use) < 2 or not (limits or hosting.promised):
        return None
    held = set(frozen)
    for source in in_use:
        keys = np.flatnonzero(view.current == source).astype(np.int32)
        if len(keys) > most or (held and any(view.keys[key] in held for key in keys.tolist())):
            continue
        costs = Costs.of(view, limits, view.current)
        placement = packed(view, hosting, costs, keys, [row for row in in_use if row != source])
        if placement is not None:
            return source, placement
    return None


def packed(
    view: View, hosting: Hosting, costs: Costs, keys: Rows, targets: list[int], *,
    begin: Rows | None = None, full: float = RESERVE,
) -> Rows | None:  # fmt: skip
    """The placement ``begin`` with these keys at the ``targets``, or None if they do not fit there.

    ``hosting`` and ``costs`` are those of ``begin``, which is the present placement by default. Brokers are filled
    up to the strain ``full``. The key that takes most goes first, to the fullest target that has room for it: best fit
    decreasing. O(keys x targets), and a prediction of latency for each key with processing.
    """
    placement, rate = (view.current if begin is None else begin).copy(), hosting.rate.copy()
    room = np.maximum(costs.room * costs.limit[:, targets] - costs.use[:, targets], 0.0)
    takes = np.array([costs.takes(key) for key in keys.tolist()]).reshape(len(keys), len(costs.limit))
    if (takes.sum(axis=0) > room.sum(axis=1)).any():
        return None
    work = np.array([float(hosting.taken(key) @ hosting.processing_ms) for key in keys.tolist()])
    share = (takes / costs.limit.mean(axis=1)).max(axis=1, initial=0.0)
    for at in np.lexsort((-share, -work)).tolist():
        key, taken = int(keys[at]), hosting.taken(int(keys[at]))
        then = (costs.use[:, targets] + takes[at][:, None]) / costs.limit[:, targets]
        fits = (then <= costs.room).all(axis=0)
        fullest = np.argsort(-np.where(fits, then.max(axis=0, initial=0.0), -1.0), kind="stable")
        target = next(
            (targets[row] for row in fullest.tolist() if fits[row] and _kept(hosting, rate, taken, targets[row], full)),
            -1,
        )
        if target < 0:
            return None
        costs.use[:, target] += takes[at]
        rate[target] += taken
        placement[key] = target
    return placement


def _kept(hosting: Hosting, rate: Floats, taken: Floats, broker: int, full: float) -> bool:
    """Whether the strain of a broker stays within ``full`` with the rates that are added."""
    if not hosting.promised or not taken.any():
        return True
    return bool(hosting.strain((rate[broker] + taken)[None, :], [broker])[0] <= full)
