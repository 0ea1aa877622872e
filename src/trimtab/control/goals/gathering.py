"""Gathering, a part of evenness: clients with the same subscriptions share a broker (Nguyen, DEBS'19).

A broker receives one copy of a topic, however many of its clients subscribe to it. So a level fleet whose clients are
gathered by their subscriptions carries less in total. Gathering takes many moves, so it is tried at intervals and with
the whole budget only, and proposed when the saving is worth it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.control.goals.evenness import levelling, target_of
from trimtab.control.goals.goal import Change, Finding, Goal
from trimtab.control.move_order import in_order
from trimtab.control.verdict import ENOUGH, spread_fell
from trimtab.model.placement import UNPLACED
from trimtab.place.knobs import knobs
from trimtab.place.registry import full_name
from trimtab.place.wire import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.control.settings import Settings
    from trimtab.control.verdict import Verdict
    from trimtab.control.view import View
    from trimtab.fleet.protocol.plans import Plan, Question
    from trimtab.model.workload import Rows

GATHER: Final = "gather"
SCATTERED: Final = "scattered"
NEAR: Final = 0.5  # share of the threshold above which levelling alone may scatter subscriptions beyond it


class Gathering(Goal):
    name: ClassVar[str] = "gathering"
    counts_cordoned: ClassVar[bool] = False
    in_use_only: ClassVar[bool] = True
    pause_s: ClassVar[float] = 60.0

    def find(self, view: View, settings: Settings) -> Iterator[Finding]:
        load = view.load()
        if settings.gather and load.mean > settings.beta and (saving := scatter(view)) > settings.gather:
            yield Finding(SCATTERED, f"copies of topics between brokers are {saving:.0%} of all load")

    def propose(self, view: View, settled: Rows, question: Question) -> Iterator[Change | str]:
        """A change within the budget, if the policy supports it and it saves enough compared with levelling alone.

        Levelling alone may scatter subscriptions that share a broker now. Gathering them later takes a second plan.
        """
        if not question.gather or scatter(view) <= NEAR * question.gather:
            return
        names = {knob.name for knob in knobs(full_name(question.policy, "client"))}
        if "budget" not in names or not len(view.keys):
            yield "the policy does not gather"
            return
        few = levelling(view, settled, question)
        level = few.placement if isinstance(few, Change) else settled
        if max(scatter(view), scatter(view, level)) <= question.gather:
            return
        target = target_of(view, settled, question, budget=min(1.0, question.most / len(view.keys)))
        movers = in_order(view, target, question.most)
        placement = settled.copy()
        placement[movers] = target[movers]
        base, then = view.load(level), view.load(placement)
        if then.cov > question.alpha:  # level first, gather later
            yield f"gathering common subscriptions would leave loads spread by {then.cov:.2f}"
        elif then.total > (1.0 - question.gather) * base.total:
            yield f"gathering common subscriptions would save {1.0 - then.total / max(base.total, 1e-9):.0%} only"
        else:
            left = int(np.count_nonzero((target != view.current) & (view.current != UNPLACED))) - len(movers)
            yield Change(placement, movers, GATHER, left)

    def accept(self, view: View, placement: Rows, question: Question) -> str:
        then, now = view.load(placement).total, view.load().total
        more = then / max(now, 1e-9) - 1.0
        return f"it would add {more:.0%} to all load" if question.gather and more > question.gather else ""

    def mends(self, view: View, placement: Rows, question: Question) -> bool:
        return not question.gather or scatter(view, placement) <= question.gather

    def still_helps(self, view: View, plan: Plan, then: Rows, settings: Settings) -> bool:
        return view.load(then).total < view.load().total

    def helped(self, verdict: Verdict, view: View, settings: Settings) -> bool:
        plan, measured = verdict.plan, verdict.measured
        assert measured is not None
        saved, promised = plan.before.mean - measured.mean, plan.before.mean - plan.predicted.mean
        return spread_fell(verdict, settings) and saved >= ENOUGH * promised


def scatter(view: View, placement: Rows | None = None) -> float:
    """Share of all load caused by copies of topics to second and further brokers: an upper bound of what gathering
    saves."""
    load = view.load(placement)
    data, carrier = view.data, view.carriers(placement)
    row = np.flatnonzero((carrier != UNPLACED) & ~data.publishes & ~view.whole[data.topic])
    count = max(len(data.published), 1)
    pairs = distinct(carrier[row].astype(np.int64) * count + data.topic[row], len(view.brokers) * count)
    places = np.bincount(pairs % count, minlength=len(data.published))
    copies = float((data.delivered * np.maximum(places - 1, 0)).sum())
    return copies / load.total if load.total > 0.0 else 0.0
