"""From what is seen to a plan. The same question always gives the same plan, so any decision can be replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from trimtab.control.goals import GOALS
from trimtab.control.goals.served import settled
from trimtab.control.plan import LOAD, Binding, Levels, Plan, Step
from trimtab.control.question import Question
from trimtab.control.resources import all_that_binds, forecast
from trimtab.control.view import View
from trimtab.model.ids import Ids
from trimtab.model.key import RoutingTable
from trimtab.model.placement import UNPLACED
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from trimtab.control.goals.goal import Change
    from trimtab.model.workload import Rows


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Why nothing moves though something is wrong."""

    number: int
    at: float
    reasons: tuple[str, ...]
    why: str


def decide(view: View, question: Question) -> Plan | NoPlan:
    """Brokers for keys that have none; then as much of a goal's proposal as the budget allows, if it is worth it."""
    there = [name for name in view.brokers if name != question.leaving]
    if not there:
        return NoPlan(question.number, question.at, question.reasons, "no broker is alive")
    whole = View.of(view.snapshot, view.routing, there) if question.leaving else view
    out = set(question.unfit) & set(there)
    part = whole.without(out) if 0 < len(out) < len(there) else whole
    change = _change(part, question)
    if isinstance(change, str):
        return NoPlan(question.number, question.at, question.reasons, change)
    return _plan(view, whole, part, change, question)


def _change(view: View, question: Question) -> Change | str:
    """The proposal of the latest goal that every earlier goal accepts and that mends what these have found; else the
    proposal of an earlier goal; else one that is accepted at least."""
    start = settled(view)
    lost = np.flatnonzero(view.current == UNPLACED).astype(np.int32)
    goals = GOALS[:1] if question.only_lost or question.most <= 0 else GOALS
    accepted: list[Change] = []
    why = "every key is at a broker that is alive"
    for at in reversed(range(len(goals))):
        refused, vetoed = "", ""
        for proposal in goals[at].propose(view, start, question):
            if isinstance(proposal, str):
                refused = refused or proposal
                continue
            first = lost if at else lost[:0]  # keys that have no broker, which the first goal itself moves
            change = replace(proposal, movers=np.concatenate([first, proposal.movers]))
            veto = next(filter(None, (goal.accept(view, change.placement, question) for goal in goals[:at])), "")
            if veto:
                vetoed = vetoed or veto
            elif all(goal.mends(view, change.placement, question) for goal in goals[:at]):
                return change
            else:
                accepted.append(change)
        why = (vetoed or refused or why) if at else why
    return accepted[0] if accepted else why


def _plan(view: View, whole: View, part: View, change: Change, question: Question) -> Plan:
    """``change`` is about ``part`` of the fleet; its effect is computed for the ``whole``."""
    alive, steps = set(view.brokers), []
    for row in change.movers.tolist():
        key, target = part.keys[row], part.brokers[change.placement[row]]
        source = view.broker_of(key)
        steps.append(Step(key, source if source in alive else "", target))
    then = whole.placed({step.key: step.target for step in steps})
    before, predicted = Levels.of(view.load()), Levels.of(whole.load(then))
    binding = None if question.only_lost else bound_by(whole, question, then)
    return Plan(
        question.number, question.at, question.reasons, change.policy, tuple(steps), before, predicted, change.left,
        binding,
    )  # fmt: skip


def bound_by(view: View, question: Question, then: Rows) -> Binding:
    """The scarcest resource: the one to be relieved, if there is one, else evenness."""
    found = all_that_binds(view, question.overload, question.messages)
    resource = next(each for each in found if each.name == (question.relieve or LOAD))
    now, after = resource.share(), resource.share(forecast(view, resource, then))
    row = int(np.argmax(now))
    return Binding(resource.name, view.brokers[row], float(now[row]), float(after[row]))


def warm_up(policy: str) -> None:
    """Compile what a decision takes, which is a matter of half a minute on a machine that has never decided."""
    clients, brokers = 60, 4  # so many clients that no policy looks at all placements one by one
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
