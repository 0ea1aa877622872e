"""The outcome of a plan: its measured effect compared with the predicted one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trimtab.control.plan import GATHER, RELIEVE, Levels, Plan
from trimtab.control.resources import binding_candidates

if TYPE_CHECKING:
    from trimtab.control.resources import Resource
    from trimtab.control.settings import Settings
    from trimtab.control.view import View

WORSE: Final = 1.1  # a reported spread above this multiple of the earlier one counts as worse
ENOUGH: Final = 0.5  # share of the predicted gain that must be measured


@dataclass(slots=True)
class Outcome:
    plan: Plan
    ended: float
    said_before: Levels | None = None  # all traffic by the brokers' own reports, before the plan
    measured: Levels | None = None  # by the measurement after the plan
    said: Levels | None = None  # all traffic by the brokers' own reports, after the plan
    binding: float | None = None  # share of the scarcest resource in use after the plan
    helped: bool | None = None
    unmeasured: str = ""  # why the outcome can never be measured

    def as_json(self) -> dict[str, Any]:
        levels = {name: getattr(self, name) for name in ("said_before", "measured", "said")}
        values = {name: level.as_json() if level else None for name, level in levels.items()}
        return values | {"binding": self.binding, "helped": self.helped, "unmeasured": self.unmeasured}

    def measure(self, view: View, settings: Settings) -> bool:
        """Whether at least half of the predicted gain was measured, and brokers' own reports do not contradict it.

        Brokers' reports include the traffic between processes of the fleet. So the reported spread need not fall by as
        much, but must not have risen.
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
        if (current := current_binding(view, plan, settings)) is not None:
            self.binding, resource = current
            if plan.binding is not None and plan.policy == RELIEVE:  # no longer full, or half of the promised relief
                half = plan.binding.predicted + ENOUGH * (plan.binding.now - plan.binding.predicted)
                good, worse = self.binding <= max(half, resource.allowed), False
        self.helped = good and not worse
        return self.helped


def current_binding(view: View, plan: Plan, settings: Settings) -> tuple[float, Resource] | None:
    """The share in use now of the resource that was scarcest when the plan was made."""
    candidates = binding_candidates(view, settings.overload, settings.messages)
    brokers, binding = list(view.brokers), plan.binding
    if binding is None or binding.broker not in brokers:
        return None
    row = brokers.index(binding.broker)
    matches = (resource for resource in candidates if resource.name == binding.resource)
    return next(((float(resource.share()[row]), resource) for resource in matches), None)


def reported(view: View) -> Levels | None:
    """How even the loads are by the brokers' own reports, if all of them report."""
    load = view.measured()
    return Levels.of(load) if load is not None else None
