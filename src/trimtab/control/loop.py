"""The controller's decisions without a network and without a clock: views in, plans out.

Five rules keep it from oscillating, a known fault of load balancers (apache/pulsar PIP-364, #16059). A finding must
recur in several measurements. A plan must be worth its moves. The next plan waits until the last one has been measured,
and longer after each plan that did not help. A key that moved stays for a while, twice as long after each move. A
budget limits the moves within a period.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trimtab.control.decide import NoPlan, decide
from trimtab.control.goals import GOALS
from trimtab.control.goals.evenness import worth_it
from trimtab.control.goals.goal import Finding, Kind
from trimtab.control.move_memory import MoveMemory
from trimtab.control.outcome import Outcome, current_binding, reported
from trimtab.control.plan import GATHER, RELIEVE, Levels, Plan
from trimtab.control.question import Question
from trimtab.control.trouble import Trouble
from trimtab.model.placement import UNPLACED
from trimtab.observe.snapshot import USAGE_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from trimtab.control.plan import Step
    from trimtab.control.settings import Settings
    from trimtab.control.view import View

LONGEST: Final = 32  # periods to wait after plans that did not help
SEVERAL: Final = 3  # failed moves to one broker, of one plan
UNSURE: Final = 0.2  # planning waits while more than this share of the data has an unknown period
COUNTED_S: Final = 2.0  # time within which every broker has listed its links again after a move
GATHER_S: Final = 60.0  # interval of attempts to gather common subscriptions, doubled while none is worth it
RARELY: Final = 64  # the longest interval of these attempts, in GATHER_S


@dataclass(slots=True)
class Loop:
    """Call ``step`` at every look. The executor of plans calls ``moved`` for steps that are done and ``ended`` for a
    plan that is over. ``verdicts`` collects the outcomes of plans until the caller removes them."""

    settings: Settings
    number: int = 0  # of the last decision
    outcome: Outcome | None = None  # of the last plan
    findings: list[Finding] = field(default_factory=list)  # at the last look
    why_not: str = ""  # why nothing moves in spite of the findings
    question: Question | None = None  # of the last decision
    verdicts: list[Outcome] = field(default_factory=list)
    leaving: dict[str, float] = field(default_factory=dict)  # brokers to be removed, each with its deadline
    moves: MoveMemory = field(init=False)
    trouble: Trouble = field(init=False)
    _streaks: dict[Kind, int] = field(default_factory=dict)  # consecutive measurements with a finding of that kind
    _measured: float = -math.inf  # time of the newest measurement
    _pause: int = 0  # periods to wait after a plan that did not help; doubles
    _quiet_until: float = -math.inf
    _gather_s: float = GATHER_S
    _gather_after: float = -math.inf
    _unverified: bool = False  # the result of the last plan has not been measured yet
    _moved_by_hand: float = -math.inf  # time at which a move was noticed that no plan had ordered
    _left: int = 0  # moves of the last plan that the budget did not allow
    _brokers: frozenset[str] = frozenset()  # alive at the last look
    _reported_before: Levels | None = None  # reported by brokers when the last plan was made
    # Pairs of resource and broker whose relief did not help: something other than keys uses the resource.
    _futile: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.moves, self.trouble = MoveMemory(self.settings), Trouble(self.settings)

    def step(
        self, now: float, view: View, *, busy: bool = False, paused: bool = False, rehoming: bool = False,
        cordoned: Collection[str] = (),
    ) -> Plan | NoPlan | None:  # fmt: skip
        """Decide what to do now, if anything.

        ``busy``: a plan is being carried out. ``rehoming``: that plan serves all lost keys. ``paused``: only lost keys
        may move. ``cordoned``: brokers that get no keys and give none away.
        """
        self._look_at_brokers(now, frozenset(view.brokers))
        if self.moves.look(now, view.routing.brokers):
            self._moved_by_hand = now
        self.findings = [*self._find(now, view, cordoned), *self._unfinished(view)]
        kinds = {finding.kind for finding in self.findings}
        fresh = view.at != self._measured  # a second look at the same measurement does not count
        self._measured = view.at
        self._streaks = {kind: max(1, self._streaks.get(kind, 0) + fresh) for kind in kinds}
        self.why_not = ""
        if not len(view.brokers):
            self.why_not = "no broker is alive"
            return None
        if Kind.LOST in kinds and not rehoming:
            return self._decide(now, view, cordoned, only_lost=True)
        if not busy:
            self._verify(now, view)
        self.why_not = self._why_wait(now, view, busy=busy, paused=paused)
        firm = any(self._is_firm(finding) for finding in self.findings)
        return self._decide(now, view, cordoned) if firm and not self.why_not else None

    def _why_wait(self, now: float, view: View, *, busy: bool, paused: bool) -> str:
        if not any(self._is_firm(finding) for finding in self.findings):
            return "the next measurements must confirm it" if self.findings else ""
        if paused:
            return "the controller is paused"
        if busy:
            return "a plan is under way"
        if view.snapshot.unsure > UNSURE:
            return f"{view.snapshot.unsure:.0%} of the data was seen only once, so its period is not known yet"
        if view.at < self._moved_by_hand + COUNTED_S:
            return "keys were moved by hand; the brokers of their links have to be measured first"
        if self._unverified:
            return "the outcome of the last plan has not been measured yet"
        if now < self._quiet_until:
            return f"no plan helps at present; trying again in {self._quiet_until - now:.0f} s"
        if not self.moves.allowed(now, len(view.keys)):
            return f"the budget of moves in {self.settings.budget_s:g} s is used up"
        return ""

    def _find(self, now: float, view: View, cordoned: Collection[str]) -> list[Finding]:
        """Cordoned brokers need not be even with the others, nor have anything to do."""
        closed = set(cordoned) & set(view.brokers)
        part = view.without(closed) if 0 < len(closed) < len(view.brokers) else view
        findings: list[Finding] = []
        for goal in GOALS:
            findings += goal.find(part if goal.name == "evenness" else view, self.settings)
        # Gathering takes many moves to save anything, so it waits for the whole budget.
        gathers = now >= self._gather_after and not self.moves.used(now)
        return [finding for finding in findings if finding.kind is not Kind.SCATTERED or gathers]

    def _look_at_brokers(self, now: float, brokers: frozenset[str]) -> None:
        """A broker less or more is a new situation: earlier experience with plans and keys no longer counts."""
        if brokers == self._brokers:
            return
        for name in self._brokers - brokers:
            self.trouble.died(name, now)
        for name in brokers - self._brokers:
            self.trouble.returned(name, now)
        self._brokers = brokers
        if self._unverified:
            self._give_up_verifying("a broker joined or died before the measurement")
        self.moves.clear()
        self._futile.clear()
        self._pause, self._quiet_until, self._unverified, self._left = 0, -math.inf, False, 0
        self._gather_s, self._gather_after = GATHER_S, -math.inf

    def _is_firm(self, finding: Finding) -> bool:
        """Whether the finding has recurred often enough to act on it. A slight excess must recur once more."""
        return finding.kind is Kind.UNFINISHED or self._streaks[finding.kind] >= self.settings.patience + finding.slight

    def _is_to_be_relieved(self, finding: Finding) -> bool:
        """Whether a broker is full of a resource, and no relief of that has failed before."""
        return (
            bool(finding.resource) and self._is_firm(finding) and (finding.resource, finding.broker) not in self._futile
        )

    def _unfinished(self, view: View) -> list[Finding]:
        if self._left and view.load().cov > self.settings.enough:
            return [Finding(Kind.UNFINISHED, f"{self._left:,} moves of the last plan are left")]
        self._left = 0
        return []

    def _decide(self, now: float, view: View, cordoned: Collection[str], *, only_lost: bool = False) -> Plan | NoPlan:
        self.number += 1
        settings = self.settings
        unfit = tuple(sorted({*self.unfit(now, view), *(set(cordoned) & set(view.brokers))}))
        firm = {finding.kind for finding in self.findings if self._is_firm(finding)}
        only_scattered = firm == {Kind.SCATTERED}
        self.question = Question(
            self.number, now, tuple(f"{finding.kind}: {finding}" for finding in self.findings), settings.policy,
            settings.seed + self.number, settings.gain, self.moves.allowed(now, len(view.keys)),
            () if only_lost else self.moves.frozen(now, view), unfit, only_lost,
            relieve=next((finding.resource for finding in self.findings if self._is_to_be_relieved(finding)), ""),
            overload=settings.overload, messages=settings.messages, alpha=settings.alpha, beta=settings.beta,
            gather=settings.gather if now >= self._gather_after else 0.0, knobs=dict(settings.knobs),
        )  # fmt: skip
        decision = decide(view, self.question)
        if isinstance(decision, Plan):
            self._left, self._reported_before = decision.left, reported(view)
            return decision
        self.why_not, self._left = decision.why, 0
        if only_scattered:
            self._gather_later(now)
        elif troubled := [name for name in unfit if name not in cordoned]:
            self._quiet_until = min(self._unfit_until(name) for name in troubled)
        else:
            self._wait_longer(now)
        return decision

    def unfit(self, now: float, view: View) -> tuple[str, ...]:
        """Brokers that get no keys for a while."""
        return tuple(name for name in view.brokers if now < self._unfit_until(name))

    def _unfit_until(self, broker: str) -> float:
        return max(self.trouble.until(broker), self.leaving.get(broker, 0.0))

    def _wait_longer(self, now: float) -> None:
        self._pause = min(LONGEST, max(1, 2 * self._pause))
        self._quiet_until = now + self._pause * self.settings.period_s

    def _gather_later(self, now: float) -> None:
        self._gather_after = now + self._gather_s
        self._gather_s = min(2.0 * self._gather_s, RARELY * GATHER_S)

    def moved(self, now: float, steps: Iterable[Step]) -> None:
        """These steps have been carried out."""
        self.moves.moved(now, steps)

    def is_hopeless(self, failed: Iterable[Step]) -> bool:
        """Whether too many moves of a plan have failed for its remaining steps to be worth much."""
        return any(times >= SEVERAL for times in Counter(step.target for step in failed).values())

    def ended(self, now: float, plan: Plan, failed: Iterable[Step] = ()) -> None:
        """All steps are carried out, except those that failed. A broker to which several moves failed gets no keys for
        a while, and a new plan is made without it at once."""
        if self._unverified:
            self._give_up_verifying("the next plan began before the measurement")
        self.outcome, self._unverified = Outcome(plan, now, self._reported_before), True
        if not plan.before.mean:  # made without a measurement
            self._give_up_verifying("the plan was made without a measurement")
        for broker, times in Counter(step.target for step in failed).items():
            if times >= SEVERAL and self.trouble.failed(broker, now) and self._unverified:
                self._give_up_verifying("several of its moves failed")

    def _verify(self, now: float, view: View) -> None:
        """Judge the last plan, once a measurement was taken after its end."""
        outcome = self.outcome
        if outcome is None or not self._unverified:
            return
        plan, relieved = outcome.plan, outcome.plan.policy == RELIEVE
        # Brokers report their usage as a mean over USAGE_S; loads are computed from the present placement.
        if view.at < outcome.ended + (max(USAGE_S, self.settings.period_s) if relieved else self.settings.period_s):
            return
        self._unverified = False
        helped = outcome.measure(view, self.settings)
        self.verdicts.append(outcome)
        if plan.policy == GATHER and helped:  # the budget may have cut the plan off, so gathering may go on at once
            self._gather_s, self._gather_after = GATHER_S, -math.inf
        elif plan.policy == GATHER:
            self._gather_later(now)
        if helped:
            self._pause = 0
            return
        if relieved and plan.binding is not None and outcome.binding is not None:
            self._futile.add((plan.binding.resource, plan.binding.broker))
        self._wait_longer(now)

    def _give_up_verifying(self, why: str) -> None:
        assert self.outcome is not None
        self.outcome.unmeasured, self._unverified = why, False
        self.verdicts.append(self.outcome)

    def memory(self, now: float) -> dict[str, Any]:
        """State that a successor needs in order not to move the same keys again."""
        return self.moves.as_json(now) | {
            "trouble": self.trouble.as_json(now), "pause": self._pause, "quiet_until": max(self._quiet_until, 0.0),
            "brokers": sorted(self._brokers), "leaving": self.leaving, "in_vain": sorted(self._futile),
            "gather": [self._gather_s, max(self._gather_after, 0.0)],
        }  # fmt: skip

    def remember(self, values: dict[str, Any]) -> None:
        """Restore the state that ``memory`` returned."""
        self.moves.restore(values)
        self.trouble.restore(values.get("trouble", {}))
        self._pause, self._quiet_until = values.get("pause", 0), values.get("quiet_until", -math.inf)
        self._brokers, self.leaving = frozenset(values.get("brokers", ())), dict(values.get("leaving", {}))
        self._futile = {(resource, broker) for resource, broker in values.get("in_vain", ())}
        self._gather_s, self._gather_after = values.get("gather", (GATHER_S, -math.inf))

    def still_helps(self, view: View, plan: Plan, left: Iterable[Step]) -> bool:
        """Whether the remaining steps of a plan are still worth carrying out."""
        if plan.policy == RELIEVE:
            binding = current_binding(view, plan, self.settings)
            return binding is not None and binding[0] > binding[1].room
        remaining = list(left)
        for step in remaining:
            if not step.source and step.key in view.rows and view.current[view.rows[step.key]] == UNPLACED:
                return True
        then = view.placed({step.key: step.target for step in remaining})
        if plan.policy == GATHER:
            return view.load(then).total < view.load().total
        return worth_it(Levels.of(view.load()), Levels.of(view.load(then)), 0.0)
