"""Questions and plans that do not come from the loop: what people ask for, and what is left without a measurement."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from trimtab.control.decide import Question, policy_named
from trimtab.control.plan import Levels, Plan, Step
from trimtab.control.progress import MOVED
from trimtab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trimtab.control.settings import Settings
    from trimtab.control.view import View


def because(what: str, reason: str | None) -> tuple[str, ...]:
    return (f"{what}: {reason}" if reason else what,)


def rebalance(
    number: int, at: float, view: View, settings: Settings, policy: str | None, budget: float | None, reason: str | None
) -> Question:
    """The best there is, whatever the detectors say."""
    policy_named(policy or settings.policy)
    clients = len(view.clients)
    most = clients if budget is None else math.ceil(budget * clients)
    return Question(
        number, at, because("asked for", reason), policy or settings.policy, settings.seed + number, 0.0, most,
        overload=settings.overload, messages=settings.messages,
    )  # fmt: skip


def refuse_to_empty(broker: str, alive: Sequence[str]) -> None:
    if broker not in alive:
        raise BadInput(f"broker '{broker}' is not alive; alive: {', '.join(alive) or 'none'}")
    if len(alive) == 1:
        raise BadInput(f"'{broker}' is the last broker: there is nowhere to go; add a broker first")


def leaves(broker: str, reason: str | None) -> tuple[str, ...]:
    return because(f"'{broker}' is to be removed", reason)


def empty(number: int, at: float, settings: Settings, broker: str, reason: str | None) -> Question:
    """Everybody off that broker; nobody else moves."""
    reasons = leaves(broker, reason)
    return Question(number, at, reasons, settings.policy, settings.seed, 0.0, 0, only_lost=True, leaving=broker)


def back(at: float, view: View, plan: Plan, outcome: Mapping[str, Any], reason: str | None) -> Plan:
    """Whom that plan has moved, to where they came from; those that have gone elsewhere since stay there."""
    brokers = {name: row for row, name in enumerate(view.brokers)}
    clients = {name: row for row, name in enumerate(view.clients)}
    steps = tuple(
        Step(step.client, step.target, step.source)
        for step, state in zip(plan.steps, outcome["states"], strict=True)
        if state == MOVED and step.source in brokers and view.homes.get(step.client) == step.target
    )
    if not steps:
        raise BadInput(f"nobody that plan {plan.number} has moved can go back: they have left, or their broker is away")
    then = view.home.copy()
    for step in steps:
        then[clients[step.client]] = brokers[step.target]
    reasons = because(f"plan {plan.number} is taken back", reason)
    return Plan(0, at, reasons, "roll back", steps, Levels.of(view.load()), Levels.of(view.load(then)))


def by_number(at: float, homes: Mapping[str, str], alive: Sequence[str], reasons: tuple[str, ...] = ()) -> Plan | None:
    """Clients of brokers that are not among those, to those that have the fewest: all that is known without a
    measurement."""
    lost = [name for name, home in homes.items() if home not in set(alive)]
    if not lost or not alive:
        return None
    count = dict.fromkeys(sorted(alive), 0)
    for home in homes.values():
        if home in count:
            count[home] += 1
    steps = []
    for name in sorted(lost):
        target = min(count, key=lambda broker: (count[broker], broker))
        count[target] += 1
        steps.append(Step(name, homes[name] if reasons else "", target))  # with reasons, its home is there still
    reasons = reasons or (f"{len(lost):,} clients have no home, and there is no measurement to place them by",)
    nothing = Levels(0.0, 0.0, 0.0)
    return Plan(0, at, reasons, "by number", tuple(steps), nothing, nothing)
