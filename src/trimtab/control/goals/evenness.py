"""Goal 5, evenness: loads are level within alpha (Nguyen, DEBS'19, Algorithm 1). The operator's policy proposes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from trimtab.control.goals.goal import Change, Finding, Goal
from trimtab.control.move_order import in_order
from trimtab.control.resources import as_if, evenness, relief, resources
from trimtab.control.verdict import CLOSE, worth_it
from trimtab.errors import BadInput
from trimtab.fleet.protocol.plans import Levels
from trimtab.model.placement import UNPLACED, Placement
from trimtab.place.client.instance import Instance
from trimtab.place.registry import full_name, policy_with

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trimtab.control.settings import Settings
    from trimtab.control.view import View
    from trimtab.fleet.protocol.plans import Question
    from trimtab.model.workload import Rows
    from trimtab.place.policy import Policy

IMBALANCE: Final = "imbalance"
IDLE: Final = "idle"
SLIGHT: Final = 1.5  # an imbalance below this multiple of the allowed spread is slight
ROUNDS: Final = 4  # rounds of single moves after a policy's placement
TOLERANCE: Final = 0.02  # share above the mean that a broker may keep: to get closer takes many moves for little gain


class Evenness(Goal):
    name: ClassVar[str] = "evenness"
    counts_cordoned: ClassVar[bool] = False
    in_use_only: ClassVar[bool] = True

    def find(self, view: View, settings: Settings) -> Iterator[Finding]:
        """Check the two thresholds of Algorithm 1, on the spread of loads and on their mean, and look for idle brokers:
        one idle broker among fifty hardly shows in the spread."""
        load = view.load()
        if load.cov > settings.alpha and load.mean > settings.beta:
            fullest = view.brokers[int(np.argmax(load.levels))]
            text = f"loads are spread by {load.cov:.2f}, more than {settings.alpha:g}; {fullest} has the most"
            yield Finding(IMBALANCE, text, slight=load.cov < SLIGHT * settings.alpha)
        able = view.problem.speed > 0.0
        mean = float(load.levels[able].mean()) if able.any() else 0.0
        rows = np.flatnonzero(able & (load.levels < settings.idle * mean)).tolist()
        if rows and mean > settings.beta:
            names = ", ".join(view.brokers[row] for row in rows)
            yield Finding(IDLE, f"{names} below {settings.idle:.0%} of the mean load")

    def propose(self, view: View, settled: Rows, question: Question) -> Iterator[Change | str]:
        yield levelling(view, settled, question)
        # Policies know neither the frozen keys nor the load of plain NATS clients, so single moves may do better.
        yield _worth_it(view, settled, _one_by_one(view, view.current, question), question, "one by one")

    def accept(self, view: View, placement: Rows, question: Question) -> str:
        then, now = view.load(placement).cov, view.load().cov
        return f"it would spread loads by {then:.2f}" if then > max(question.alpha, now) * (1 + CLOSE) else ""

    def mends(self, view: View, placement: Rows, question: Question) -> bool:
        return view.load(placement).cov <= question.alpha


def policy_named(name: str, seed: int = 0, set_to: Mapping[str, Any] | None = None) -> Policy:
    """A policy of the family client, with those of the offered knobs that it has."""
    family = name.rpartition("/")[0]
    if family not in ("", "client"):
        raise BadInput(f"the controller asks policies of client/, but '{name}' is one of {family}/")
    # Policies that build their own initial placement begin with the present brokers instead.
    offered: dict[str, Any] = {"seed": seed, "initial": "round-robin", "tolerance": TOLERANCE}
    return policy_with(full_name(name, "client"), **(offered | dict(set_to or {})))


def levelling(view: View, settled: Rows, question: Question) -> Change | str:
    """The policy's change; or the reason why it is not worth it."""
    return _worth_it(view, settled, target_of(view, settled, question), question)


def target_of(view: View, settled: Rows, question: Question, **more: Any) -> Rows:
    """The policy's placement. Frozen keys stay at their broker, and single moves of other keys make up for them."""
    problem = replace(view.problem, current=Placement("client", settled))
    set_to: dict[str, Any] = {"alpha": question.alpha, "beta": question.beta} | more | question.knobs
    target: Rows = policy_named(question.policy, question.seed, set_to).place(problem).broker.copy()
    frozen = set(question.frozen)
    if frozen:
        kept = np.fromiter((key in frozen for key in view.keys), bool, len(view.keys))
        if (target[kept] != settled[kept]).any():
            target[kept] = settled[kept]
            target = _one_by_one(view, target, question)
    return _polished(view, target, question)


def _polished(view: View, target: Rows, question: Question) -> Rows:
    """Level the wire loads of the policy's placement further by single moves.

    The policy's model of loads leaves out savings of publishers at the broker of their subscribers, so its loads may
    differ from the wire loads. Where they agree, the placement is returned unchanged.
    """
    modelled = Instance.of(view.problem).counts(target)[1] + view.own
    if np.allclose(modelled, view.load(target).per_broker, rtol=TOLERANCE):
        return target
    best, spread = target, view.load(target).cov
    for _ in range(ROUNDS):
        trial = _one_by_one(view, best, question)
        then = view.load(trial).cov
        if then > spread * (1 - TOLERANCE):
            break
        best, spread = trial, then
    return best


def _one_by_one(view: View, placement: Rows, question: Question) -> Rows:
    """Move keys of brokers above the mean one by one to brokers that have enough of every resource."""
    then = as_if(view, resources(view, question.overload, question.messages), placement)
    even = evenness(view, then, TOLERANCE, placement)
    return relief(view, [even, *then], even.name, question.frozen, len(placement), placement)[0]


def _worth_it(
    view: View, settled: Rows, target: Rows, question: Question, policy: str | None = None
) -> Change | str:  # fmt: skip
    """As much of the move to ``target`` as the budget allows; or the reason why it is not worth it."""
    movers = in_order(view, target, question.most)
    trial = settled.copy()
    trial[movers] = target[movers]
    base, then = Levels.of(view.load(settled)), Levels.of(view.load(trial))
    if not len(movers):
        return "no other placement is better"
    if not worth_it(base, then, question.gain, question.alpha):
        return (
            f"the best that can be done changes the spread from {base.spread:.2f} to {then.spread:.2f} and the "
            f"highest load from {base.max_load:,.0f} to {then.max_load:,.0f} only"
        )
    return Change(trial, movers, policy or question.policy, _left(view, target, movers))


def _left(view: View, target: Rows, movers: Rows) -> int:
    return int(np.count_nonzero((target != view.current) & (view.current != UNPLACED))) - len(movers)
