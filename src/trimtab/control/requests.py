"""Questions and plans of operators' requests, and plans without a measurement."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from trimtab.control.goals.evenness import policy_named
from trimtab.errors import BadInput
from trimtab.fleet.protocol.plans import LINKS_PLACED, MOVED, Levels, Outcome, Plan, Question, Step
from trimtab.model.key import counted
from trimtab.place.knobs import typed
from trimtab.place.registry import full_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from trimtab.control.settings import Settings
    from trimtab.control.view import View
    from trimtab.fleet.protocol.admin_verbs import Rebalance
    from trimtab.model.key import Key


NOTHING: Final = Levels(0.0, 0.0, 0.0)  # levels of a plan without a measurement


def because(what: str, reason: str | None) -> tuple[str, ...]:
    return (f"{what}: {reason}" if reason else what,)


def rebalance(number: int, at: float, view: View, settings: Settings, request: Rebalance) -> Question:
    """The question of a rebalance by hand: any improvement is accepted, whatever the goals find."""
    name, budget = request.policy or settings.policy, request.budget
    policy_named(name)
    policy = full_name(name, "client")
    own = settings.knobs if policy == full_name(settings.policy, "client") else {}
    most = len(view.keys) if budget is None else math.ceil(budget * len(view.keys))
    return Question(
        number, at, because("asked for", request.reason), name, settings.seed + number, 0.0, most,
        overload=settings.overload, messages=settings.messages, alpha=settings.alpha, beta=settings.beta,
        gather=settings.gather, knobs=own | typed(policy, request.knobs or {}), model=dict(settings.model),
        headroom=settings.headroom, thrift=settings.thrift,
    )  # fmt: skip


def refuse_to_empty(broker: str, alive: Sequence[str]) -> None:
    if broker not in alive:
        raise BadInput(f"broker '{broker}' is not alive; alive: {', '.join(alive) or 'none'}")
    if len(alive) == 1:
        raise BadInput(f"'{broker}' is the last broker: there is nowhere to go; add a broker first")


def leaves(broker: str, reason: str | None) -> tuple[str, ...]:
    return because(f"'{broker}' is to be removed", reason)


def empty(number: int, at: float, settings: Settings, broker: str, reason: str | None) -> Question:
    """The question of emptying a broker: every key leaves it, and no other key moves."""
    reasons = leaves(broker, reason)
    return Question(number, at, reasons, settings.policy, settings.seed, 0.0, 0, only_lost=True, leaving=broker)


def back(at: float, view: View, placed: Mapping[Key, str], plan: Plan, outcome: Outcome, reason: str | None) -> Plan:
    """A plan that returns the keys that ``plan`` moved to their sources, and the links that it admitted or refused.

    ``placed`` has the present broker of every key. Keys that have moved again since then stay.
    """
    alive = set(view.brokers)
    steps = tuple(
        step.back
        for step, state in zip(plan.steps, outcome.states, strict=True)
        if state == MOVED and step.source in alive and placed.get(step.key) == step.target
    )
    links = tuple(
        link.back
        for link in plan.links
        if outcome.links == LINKS_PLACED and placed.get(link.key, "") == link.target
        and (not link.source or link.source in alive)
    )  # fmt: skip
    if not steps and not links:
        raise BadInput(f"nothing that plan {plan.number} has moved can go back: it is gone, or its broker is not alive")
    reasons = because(f"plan {plan.number} is taken back", reason)
    return by_hand(at, view, steps, reasons, "roll back", links)


def by_hand(
    at: float, view: View | None, steps: tuple[Step, ...], reasons: tuple[str, ...], policy: str,
    links: tuple[Step, ...] = (),
) -> Plan:  # fmt: skip
    """A plan with given steps. Without a view, its levels are zero."""
    before = predicted = NOTHING
    if view is not None:
        then = view.placed({step.key: step.target for step in steps})
        before, predicted = Levels.of(view.load()), Levels.of(view.load(then))
    return Plan(0, at, reasons, policy, steps, before, predicted, links=links)


def by_number(
    at: float, brokers: Mapping[Key, str], leave: Callable[[str], bool], targets: Sequence[str],
    reasons: tuple[str, ...] = (),
) -> Plan | None:  # fmt: skip
    """A plan without a measurement: each key of a broker to ``leave`` goes to the target with fewest keys.

    ``reasons`` are given for a broker that is still running but must be emptied. None if no key has to move, or if
    there is no target.
    """
    lost = [key for key, broker in brokers.items() if leave(broker)]
    if not lost or not targets:
        return None
    count = dict.fromkeys(sorted(targets), 0)
    for broker in brokers.values():
        if broker in count:
            count[broker] += 1
    steps = []
    for key in sorted(lost):
        target = min(count, key=lambda broker: (count[broker], broker))
        count[target] += 1
        steps.append(Step.of(key, brokers[key] if reasons else "", target))  # with reasons, its broker is still alive
    reasons = reasons or (f"{counted(lost)} without a broker, and no measurement to place them by",)
    return Plan(0, at, reasons, "by number", tuple(steps), NOTHING, NOTHING)
