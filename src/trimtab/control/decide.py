"""From what is seen to a plan. The same question always gives the same plan, so any decision can be replayed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.control.plan import LOAD, RELIEVE, Binding, Levels, Plan, Step, in_order
from trimtab.control.resources import all_that_binds, as_if, evenness, forecast, relief, resources, too_full
from trimtab.control.view import View
from trimtab.errors import BadInput
from trimtab.model.ids import Ids
from trimtab.model.placement import UNPLACED, Placement
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot
from trimtab.place.client.homes import Homes
from trimtab.place.registry import policy_with

if TYPE_CHECKING:
    from trimtab.control.resources import Resource
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
    relieve: str = ""  # a resource of which a broker uses too much
    overload: float = 1.0  # share of any resource that is too much
    messages: float | None = None  # messages/s that are, if that is set

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


@dataclass(frozen=True, slots=True, eq=False)
class _Change:
    """Other homes, and who moves to them, in this order."""

    home: Rows
    movers: Rows
    policy: str
    left: int = 0  # moves that the budget did not allow


def decide(view: View, question: Question) -> Plan | NoPlan:
    """Homes for those who have none; then as much of the policy's answer as the budget allows, if that is worth it.

    A broker that is too full of anything, and would stay so, is relieved, and nothing else is done.
    """
    there = [name for name in view.brokers if name != question.leaving]
    if not there:
        return NoPlan(question.number, question.at, question.reasons, "no broker is alive")
    whole = View.of(view.snapshot, view.homes, there) if question.leaving else view
    out = set(question.unfit) & set(there)
    part = whole.without(out) if 0 < len(out) < len(there) else whole
    settled, lost = rehomed(part), np.flatnonzero(part.home == UNPLACED).astype(np.int32)
    change: _Change | str = _Change(settled, lost, "re-home")
    if not question.only_lost and question.most > 0:
        better = _better(part, settled, question)
        if isinstance(better, _Change):
            change = replace(better, movers=np.concatenate([lost, better.movers]))
        elif not len(lost):
            change = better
    if isinstance(change, str):
        return NoPlan(question.number, question.at, question.reasons, change)
    return _plan(view, whole, part, change, question)


def _better(view: View, settled: Rows, question: Question) -> _Change | str:
    """Homes that are worth the moves; or why there are none."""
    limits = resources(view, question.overload, question.messages)
    target = wanted(view, settled, question)
    level = _worth_it(view, settled, target, question)
    if (view.home == UNPLACED).any():
        return level
    if isinstance(level, _Change) and (full_then := too_full(view, limits, level.home)):
        names = ", ".join(full_then)
        level = _worth_it(view, settled, _one_by_one(view, limits, view.home, question), question, "one by one")
        if isinstance(level, str) or too_full(view, limits, level.home):
            level = f"{names} would be too full"
    full = next((each for each in limits if each.name == question.relieve), None)
    if full is None or (
        isinstance(level, _Change) and float(full.share(forecast(view, full, level.home)).max()) <= full.allowed
    ):
        return level
    home, movers = relief(view, limits, full.name, question.frozen, question.most)
    then = float(full.share(forecast(view, full, home)).max())
    if len(movers) and then < float(full.share().max()) and not too_full(view, limits, home):
        return _Change(home, movers, RELIEVE)
    return level if isinstance(level, _Change) else f"nobody who could move would leave it less {full.name}"


def _one_by_one(view: View, limits: list[Resource], home: Rows, question: Question) -> Rows:
    """From these homes on, clients off brokers that have more than the mean, one by one, to where there is enough of
    everything. Policies know neither who must stay nor what else brokers are full of."""
    then = as_if(view, limits, home)
    even = evenness(view, then, TOLERANCE, home)
    return relief(view, [even, *then], even.name, question.frozen, len(home), home)[0]


def _plan(view: View, whole: View, part: View, change: _Change, question: Question) -> Plan:
    """``change`` is about ``part`` of the fleet; what it brings is said of the ``whole``."""
    rows = {name: row for row, name in enumerate(whole.brokers)}
    clients = {name: row for row, name in enumerate(whole.clients)}
    alive, steps, then = set(view.brokers), [], whole.home.copy()
    for row in change.movers.tolist():
        name, target = part.clients[row], part.brokers[change.home[row]]
        source = view.homes[name]
        steps.append(Step(name, source if source in alive else "", target))
        then[clients[name]] = rows[target]
    before, predicted = Levels.of(view.load()), Levels.of(whole.load(then))
    binding = None if question.only_lost else bound_by(whole, question, then)
    return Plan(
        question.number, question.at, question.reasons, change.policy, tuple(steps), before, predicted, change.left,
        binding,
    )  # fmt: skip


def _worth_it(
    view: View, settled: Rows, target: Rows, question: Question, policy: str | None = None
) -> _Change | str:  # fmt: skip
    """As much of it as the budget allows; or why not."""
    movers = in_order(view, target, question.most)
    trial = settled.copy()
    trial[movers] = target[movers]
    base, then = Levels.of(view.load(settled)), Levels.of(view.load(trial))
    if not len(movers):
        return "no other homes are better"
    if not worth_it(base, then, question.gain):
        return (
            f"the best that can be done changes the spread from {base.spread:.2f} to {then.spread:.2f} and the "
            f"highest load from {base.max_load:,.0f} to {then.max_load:,.0f} only"
        )
    left = int(np.count_nonzero((target != view.home) & (view.home != UNPLACED))) - len(movers)
    return _Change(trial, movers, policy or question.policy, left)


def bound_by(view: View, question: Question, then: Rows) -> Binding:
    """What there was least of: a resource, if one is to be relieved, else evenness."""
    found = all_that_binds(view, question.overload, question.messages)
    resource = next(each for each in found if each.name == (question.relieve or LOAD))
    now, after = resource.share(), resource.share(forecast(view, resource, then))
    row = int(np.argmax(now))
    return Binding(resource.name, view.brokers[row], float(now[row]), float(after[row]))


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
    """The policy's answer; clients that may not move stay, and others go in their place."""
    problem = replace(view.problem, current=Placement("client", settled))
    target: Rows = policy_named(question.policy, question.seed).place(problem).broker.copy()
    frozen = set(question.frozen)
    if frozen:
        kept = np.fromiter((name in frozen for name in view.clients), bool, len(view.clients))
        if (target[kept] != settled[kept]).any():
            target[kept] = settled[kept]
            target = _one_by_one(view, resources(view, question.overload, question.messages), target, question)
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
