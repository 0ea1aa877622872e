"""What a plan brought: measured after it, and held against what it promised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trimtab.control.plan import GATHER, RELIEVE, Levels, Plan
from trimtab.control.resources import all_that_binds

if TYPE_CHECKING:
    from trimtab.control.resources import Resource
    from trimtab.control.settings import Settings
    from trimtab.control.view import View

WORSE: Final = 1.1  # times what it was
ENOUGH: Final = 0.5  # share of the predicted gain that must show


@dataclass(slots=True)
class Outcome:
    plan: Plan
    ended: float
    said_before: Levels | None = None  # by the brokers themselves, everything that they carry
    measured: Levels | None = None  # once it was measured
    said: Levels | None = None  # by the brokers themselves, then
    binding: float | None = None  # share of the scarcest resource in use, then
    helped: bool | None = None
    unmeasured: str = ""  # why that will never be known

    def as_json(self) -> dict[str, Any]:
        levels = {name: getattr(self, name) for name in ("said_before", "measured", "said")}
        seen = {name: each.as_json() if each else None for name, each in levels.items()}
        return seen | {"binding": self.binding, "helped": self.helped, "unmeasured": self.unmeasured}

    def measure(self, view: View, settings: Settings) -> bool:
        """Whether the plan has brought at least half of what it promised, and brokers do not report otherwise.

        What brokers report includes the traffic between processes of the fleet. So it need not fall by as much, but
        must not have risen.
        """
        plan, self.measured, self.said = self.plan, Levels.of(view.load()), reported(view)
        promised = plan.before.spread - plan.predicted.spread  # negative for a plan that was rolled back
        good = self.measured.spread <= max(plan.predicted.spread + ENOUGH * abs(promised), settings.alpha)
        before, after = self.said_before, self.said
        worse = (
            promised > 0.0 and before is not None and after is not None
            and after.spread > max(WORSE * before.spread, settings.alpha)
        )  # fmt: skip
        if plan.policy == GATHER:
            saved, wanted = plan.before.mean - self.measured.mean, plan.before.mean - plan.predicted.mean
            good = good and saved >= ENOUGH * wanted
        if (found := now_bound(view, plan, settings)) is not None:
            self.binding, resource = found
            if plan.binding is not None and plan.policy == RELIEVE:  # full no longer, or half of what was promised
                half = plan.binding.predicted + ENOUGH * (plan.binding.now - plan.binding.predicted)
                good, worse = self.binding <= max(half, resource.allowed), False
        self.helped = good and not worse
        return self.helped


def now_bound(view: View, plan: Plan, settings: Settings) -> tuple[float, Resource] | None:
    """The share in use now of the resource that was scarcest when the plan was made."""
    limits = all_that_binds(view, settings.overload, settings.messages)
    brokers, binding = list(view.brokers), plan.binding
    if binding is None or binding.broker not in brokers:
        return None
    row = brokers.index(binding.broker)
    return next(((float(each.share()[row]), each) for each in limits if each.name == binding.resource), None)


def reported(view: View) -> Levels | None:
    """How even brokers are by their own reports, if all of them report."""
    load = view.measured()
    return Levels.of(load) if load is not None else None
