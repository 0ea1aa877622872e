"""Goal 2, limits: no broker above its share of any resource, or above its message rate (Gupta, SEC'21, 3.4.2)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.control.goals.goal import Change, Finding, Goal
from trimtab.control.resources import forecast, relief, resources, too_full
from trimtab.control.verdict import ENOUGH, current_binding
from trimtab.model.placement import UNPLACED
from trimtab.observe.snapshot import USAGE_S

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.control.resources import Resource
    from trimtab.control.settings import Settings
    from trimtab.control.verdict import Verdict
    from trimtab.control.view import View
    from trimtab.fleet.protocol.plans import Plan, Question
    from trimtab.model.workload import Rows

OVERLOAD: Final = "overload"
RELIEVE: Final = "relieve"


class Limits(Goal):
    name: ClassVar[str] = "limits"

    def find(self, view: View, settings: Settings) -> Iterator[Finding]:
        for resource in resources(view, settings.overload, settings.messages):
            share, allowed = resource.share(), resource.allowed
            over = np.flatnonzero(share > allowed).tolist()
            if not over:
                continue
            names = ", ".join(view.brokers[row] for row in over)
            text = f"{names} above {allowed:.0%} of {resource.name}: {share.max():.0%} at most"
            use, limit = float(resource.use.sum()), float(resource.limit.sum())
            together = use / max(limit, 1e-9)
            if together > allowed:
                more = math.ceil((use / allowed - limit) / max(float(resource.limit.mean()), 1e-9))
                text += f"; all brokers together are at {together:.0%}, so moving cannot mend it: add {more} like them"
                yield Finding(OVERLOAD, text)
            else:
                yield Finding(OVERLOAD, text, aim=resource.name, broker=view.brokers[int(np.argmax(share))])

    def propose(self, view: View, settled: Rows, question: Question) -> Iterator[Change | str]:
        """Relieve the resource that the question names, once all keys are served."""
        limits = resources(view, question.overload, question.messages)
        full = _to_relieve(limits, question)
        if full is None or (view.current == UNPLACED).any():
            return
        placement, movers = relief(view, limits, full.name, question.frozen, question.most)
        then = float(full.share(forecast(view, full, placement)).max())
        if len(movers) and then < float(full.share().max()):
            yield Change(placement, movers, RELIEVE)
        else:
            yield f"no key that could move would leave it less {full.name}"

    def accept(self, view: View, placement: Rows, question: Question) -> str:
        if (view.current == UNPLACED).any():  # serving lost keys goes before limits
            return ""
        names = too_full(view, resources(view, question.overload, question.messages), placement)
        return f"{', '.join(names)} would be too full" if names else ""

    def mends(self, view: View, placement: Rows, question: Question) -> bool:
        """Whether no broker is full any more of the resource to be relieved."""
        full = _to_relieve(resources(view, question.overload, question.messages), question)
        return full is None or float(full.share(forecast(view, full, placement)).max()) <= full.allowed

    def still_helps(self, view: View, plan: Plan, then: Rows, settings: Settings) -> bool:
        """Whether the broker that was fullest is above the use down to which it is relieved."""
        current = current_binding(view, plan, settings)
        return current is not None and current[0] > current[1].room

    def settles_s(self, settings: Settings) -> float:
        """Brokers report their use as a mean over USAGE_S; loads are computed from the present placement."""
        return max(USAGE_S, settings.period_s)

    def helped(self, verdict: Verdict, view: View, settings: Settings) -> bool:
        """Whether the resource is no longer full, or half of the promised relief was measured."""
        current, binding = current_binding(view, verdict.plan, settings), verdict.plan.binding
        if current is None or binding is None:
            return super().helped(verdict, view, settings)
        half = binding.predicted + ENOUGH * (binding.now - binding.predicted)
        return current[0] <= max(half, current[1].allowed)


def _to_relieve(limits: list[Resource], question: Question) -> Resource | None:
    return next((resource for resource in limits if resource.name == question.aims.get(Limits.name)), None)
