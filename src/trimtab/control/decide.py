"""From what is seen to a plan. The same question always gives the same plan, so any decision can be replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.control.plan import Levels, Plan, Step, in_order
from trimtab.control.view import View
from trimtab.errors import BadInput
from trimtab.model.ids import Ids
from trimtab.model.placement import UNPLACED, Placement
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot
from trimtab.place.client.homes import Homes
from trimtab.place.registry import policy_with

if TYPE_CHECKING:
    from trimtab.model.workload import Rows
    from trimtab.place.policy import Policy

CLOSE: Final = 1e-9
TOLERANCE: Final = 0.02  # that a broker may have more than the mean: to come closer takes many moves and brings little


@dataclass(frozen=True, slots=True)
class Question:
    """Everything that a decision depends on, beside the view."""

    number: int
    at: float
    reasons: tuple[str, ...]
    policy: str
    seed: int
    gain: float
    most: int  # moves that the budget allows
    frozen: tuple[str, ...] = ()  # clients that have moved not long ago
    unfit: tuple[str, ...] = ()  # brokers that nobody is to go to
    only_lost: bool = False  # nobody moves but those who have no home
    leaving: str = ""  # a broker that everybody is to leave

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Question:
        lists = {name: tuple(said[name]) for name in ("reasons", "frozen", "unfit")}
        return cls(**(said | lists))


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Why nothing moves though something is wrong."""

    number: int
    at: float
    reasons: tuple[str, ...]
    why: str


def decide(view: View, question: Question) -> Plan | NoPlan:
    """Homes for those who have none; then as much of the policy's answer as the budget allows, if that is worth it."""
    whole = view
    if question.unfit and len(question.unfit) < len(view.brokers):
        view = view.without(question.unfit)
    if question.leaving:
        view = View.of(view.snapshot, view.homes, [name for name in view.brokers if name != question.leaving])
    if not len(view.brokers):
        return NoPlan(question.number, question.at, question.reasons, "no broker is alive")
    home, before = view.home, Levels.of(whole.load())
    settled = rehomed(view)
    lost = np.flatnonzero(home == UNPLACED)
    chosen, left, policy = lost, 0, "re-home"
    if not question.only_lost and question.most > 0:
        target = wanted(view, settled, question)
        movers = in_order(view, target, question.most)
        trial = settled.copy()
        trial[movers] = target[movers]
        base, then = Levels.of(view.load(settled)), Levels.of(view.load(trial))
        if len(movers) and worth_it(base, then, question.gain):
            settled, chosen, policy = trial, np.concatenate([lost, movers]), question.policy
            left = int(np.count_nonzero((target != view.home) & (home != UNPLACED))) - len(movers)
        elif not len(lost):
            why = "no other homes are better" if not len(movers) else (
                f"the best that can be done changes the spread from {base.spread:.2f} to {then.spread:.2f} and the "
                f"highest load from {base.max_load:,.0f} to {then.max_load:,.0f} only"
            )  # fmt: skip
            return NoPlan(question.number, question.at, question.reasons, why)
    there = set(whole.brokers)
    steps = tuple(
        Step(name, view.homes[name] if view.homes[name] in there else "", view.brokers[settled[row]])
        for row in chosen.tolist()
        for name in [view.clients[row]]
    )
    predicted = Levels.of(view.load(settled))
    return Plan(question.number, question.at, question.reasons, policy, steps, before, predicted, left)


def worth_it(before: Levels, then: Levels, gain: float) -> bool:
    """A spread that is lower by ``gain``, or by that share of it if it was more than one, or a highest load that is
    lower by half that share; and neither any higher."""
    if then.spread > before.spread * (1 + CLOSE) or then.max_load > before.max_load * (1 + CLOSE):
        return False
    less = gain * max(before.spread, 0.5)
    return then.spread <= before.spread - less or then.max_load <= before.max_load * (1 - gain / 2)


def rehomed(view: View) -> Rows:
    """Everybody's home; those who have none go where the load is least with them, the heaviest first."""
    home = view.home.copy()
    lost = np.flatnonzero(home == UNPLACED).tolist()
    if lost:
        assert view.problem.current is not None
        homes = Homes(view.problem, view.problem.current)
        homes.settle(lost)
        home[lost] = [homes.home(client) for client in lost]
    return home


def wanted(view: View, settled: Rows, question: Question) -> Rows:
    """The policy's answer; clients that may not move stay."""
    problem = replace(view.problem, current=Placement("client", settled))
    target: Rows = policy_named(question.policy, question.seed).place(problem).broker.copy()
    frozen = set(question.frozen)
    if frozen:
        kept = np.fromiter((name in frozen for name in view.clients), bool, len(view.clients))
        target[kept] = settled[kept]
    return target


def policy_named(name: str, seed: int = 0) -> Policy:
    """Of the family client, with its seed if it draws."""
    family, _, short = name.rpartition("/")
    if family not in ("", "client"):
        raise BadInput(f"the controller moves clients, but '{name}' places {family}s; name a policy of client/")
    # Whoever has a home keeps it where a policy would begin with a placement of its own.
    return policy_with(f"client/{short}", seed=seed, initial="round-robin", tolerance=TOLERANCE)


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
    homes = {f"c{row}": "b9" if row % 9 == 0 else "b0" for row in range(clients)}
    view = View.of(Snapshot(0.0, workload), homes, [f"b{row}" for row in range(brokers)])
    decide(view, Question(0, 0.0, (), policy, 0, 0.1, clients))
