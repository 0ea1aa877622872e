"""Decides: from a view of the fleet and a question to a plan.

The same view and question always give the same plan, so any decision can be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from trimtab.control.goals import GOALS
from trimtab.control.goals.following import FAR
from trimtab.control.goals.promises import LATENCY
from trimtab.control.goals.served import settled
from trimtab.control.goals.thrift import unused
from trimtab.control.hosting import Hosting, latency_model
from trimtab.control.resources import binding_candidates, forecast
from trimtab.control.view import View
from trimtab.fleet.protocol.plans import LOAD, Binding, Levels, Plan, Question, Step
from trimtab.model.ids import Ids
from trimtab.model.key import RoutingTable
from trimtab.model.placement import UNPLACED
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.control.goals.goal import Change, Goal
    from trimtab.model.workload import Rows


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Why nothing moves though something is wrong."""

    number: int
    at: float
    reasons: tuple[str, ...]
    why: str


def decide(view: View, question: Question) -> Plan | NoPlan:
    """Place keys that have no broker; then as much of a goal's proposal as the budget allows, if it is worth it."""
    staying = [name for name in view.brokers if name != question.leaving]
    if not staying:
        return NoPlan(question.number, question.at, question.reasons, "no broker is alive")
    whole = View.of(view.snapshot, view.routing, staying) if question.leaving else view
    excluded = set(question.unfit) & set(staying)
    part = whole.without(excluded) if 0 < len(excluded) < len(staying) else whole
    change = _change(part, question)
    if isinstance(change, str):
        return NoPlan(question.number, question.at, question.reasons, change)
    return _plan(view, whole, part, change, question)


def _change(view: View, question: Question) -> Change | str:
    """Choose a proposal, or give the reason why there is none. Goals are asked from the last to the first.

    The first proposal wins that every earlier goal accepts and that also mends the findings of the earlier goals. If
    there is none, the first proposal wins that every earlier goal accepts.
    """
    start = settled(view)
    lost = np.flatnonzero(view.current == UNPLACED).astype(np.int32)
    goals = GOALS[:1] if question.only_lost or question.most <= 0 else GOALS
    accepted: list[Change] = []
    why = "every key is at a broker that is alive"
    if question.most <= 0 and not question.only_lost:
        why = "the budget allows no move, and " + why
    for at in reversed(range(len(goals))):
        refused, vetoed = "", ""
        if goals[at].name in question.resting:
            continue
        for proposal in _proposals(goals[at], view, start, question):
            if isinstance(proposal, str):
                refused = refused or proposal
                continue
            first = lost if at else lost[:0]  # keys that have no broker; the first goal's own proposal has them already
            change = replace(proposal, movers=np.concatenate([first, proposal.movers]), goal=goals[at].name)
            veto = next(filter(None, (goal.accept(view, change.placement, question) for goal in goals[:at])), "")
            if veto:
                vetoed = vetoed or veto
            elif all(goal.mends(view, change.placement, question) for goal in goals[:at]):
                return change
            else:
                accepted.append(change)
        why = (vetoed or refused or why) if at else why
    return accepted[0] if accepted else why


def _proposals(goal: Goal, view: View, start: Rows, question: Question) -> Iterator[Change | str]:
    """The goal's proposals, in rows of ``view``. Brokers that thrift has emptied do not exist for some goals."""
    idle = unused(view) if question.thrift and goal.in_use_only else []
    if not 0 < len(idle) < len(view.brokers):
        yield from goal.propose(view, start, question)
        return
    part = view.without(idle)
    rows = view.brokers.find(part.brokers.arrow)
    for proposal in goal.propose(part, settled(part), question):
        yield proposal if isinstance(proposal, str) else replace(proposal, placement=rows[proposal.placement])


def _plan(view: View, whole: View, part: View, change: Change, question: Question) -> Plan:
    """The plan of a change. ``change`` is computed on ``part`` of the fleet, its effect on the ``whole``."""
    alive, steps = set(view.brokers), []
    for row in change.movers.tolist():
        key, target = part.keys[row], part.brokers[change.placement[row]]
        source = view.broker_of(key)
        steps.append(Step.of(key, source if source in alive else "", target))
    then = whole.placed({step.key: step.target for step in steps})
    before, predicted = Levels.of(view.load()), Levels.of(whole.load(then))
    binding = None if question.only_lost else bound_by(whole, question, then)
    return Plan(
        question.number, question.at, question.reasons, change.policy, tuple(steps), before, predicted, change.left,
        binding, change.goal, aside=question.aside,
    )  # fmt: skip


def bound_by(view: View, question: Question, then: Rows) -> Binding:
    """The scarcest resource: the one that a goal aims at, if there is one, else evenness."""
    if LATENCY in question.aims.values() or FAR in question.aims.values():
        hosting = Hosting.of(view, latency_model(question.model), question.headroom)
        every = range(len(view.brokers))
        strain, later = hosting.strain(hosting.rate, every), hosting.strain(hosting.rates(then), every)
        row = int(np.argmax(strain))
        return Binding(LATENCY, view.brokers[row], float(strain[row]), float(later[row]))
    limits = binding_candidates(view, question.overload, question.messages)
    candidates = {resource.name: resource for resource in limits}
    resource = candidates[next((aim for aim in question.aims.values() if aim in candidates), LOAD)]
    now, after = resource.share(), resource.share(forecast(view, resource, then))
    row = int(np.argmax(now))
    return Binding(resource.name, view.brokers[row], float(now[row]), float(after[row]))


def warm_up(policy: str) -> None:
    """Compile the kernels of a decision: half a minute on a machine whose cache has none of them."""
    clients, brokers = 60, 4  # too many clients for a policy to enumerate all placements
    rows, ones = np.arange(clients, dtype=np.int32), np.ones(clients)
    fours = np.ones(brokers)
    workload = Workload(
        Topics(Ids.numbered("t", clients), np.arange(1.0, clients + 1), ones, spool=ones),
        Clients(Ids.numbered("c", clients), lat=ones, lon=ones),
        Brokers(
            Ids.numbered("b", brokers), storage=clients * fours, compute=clients * fours, lat=fours,
            lon=np.arange(float(brokers)),
        ),
        Links.subscriptions(rows, rows),
    )  # fmt: skip
    homes = RoutingTable.of_homes({f"c{row}": "b9" if row % 9 == 0 else "b0" for row in range(clients)})
    view = View.of(Snapshot(0.0, workload), homes, [f"b{row}" for row in range(brokers)])
    for gather in (0.0, 1e-9):
        decide(view, Question(0, 0.0, (), policy, 0, 0.1, clients, gather=gather))
