"""The controller without a network and without a clock: views in, plans out.

What keeps it from oscillating, which its peers are known for (apache/pulsar PIP-364, #16059): it must find the same
thing several times in a row; a plan must be worth it; the next plan waits until the last one has been measured, and
longer each time one has not helped; a key that moved stays for a while, twice as long each time; and only so many keys
move within a period.
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
from trimtab.control.outcome import Outcome, now_bound, reported
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
UNSURE: Final = 0.2  # share of all data of which it is not known how often it comes: too much to plan on
COUNTED_S: Final = 2.0  # after which every broker has listed its links again
GATHER_S: Final = 60.0  # between attempts to bring common subscriptions together, doubled while none is worth it
RARELY: Final = 64  # times GATHER_S, at the most


@dataclass(slots=True)
class Loop:
    """``step`` at every look. The executor of plans says which steps ``moved`` and when a plan has ``ended``; verdicts
    about plans since the last time are in ``verdicts``."""

    settings: Settings
    number: int = 0  # of the last decision
    outcome: Outcome | None = None  # of the last plan
    found: list[Finding] = field(default_factory=list)  # at the last look
    why_not: str = ""  # nothing moves though something was found
    question: Question | None = None  # that the last decision answered
    verdicts: list[Outcome] = field(default_factory=list)
    leaving: dict[str, float] = field(default_factory=dict)  # brokers that are to be removed, until when
    moves: MoveMemory = field(init=False)
    trouble: Trouble = field(init=False)
    _seen: dict[Kind, int] = field(default_factory=dict)  # measurements in a row
    _measured: float = -math.inf  # when the last of these was
    _pause: int = 0  # periods to wait after a plan that did not help; doubles
    _quiet_until: float = -math.inf
    _gather_s: float = GATHER_S
    _gather_after: float = -math.inf
    _unseen: bool = False  # the result of the last plan has not been measured yet
    _shaken: float = -math.inf  # when somebody else was seen to have moved keys
    _rest: int = 0  # moves of the last plan that the budget did not allow
    _brokers: frozenset[str] = frozenset()  # alive at the last look
    _said_before: Levels | None = None  # reported by brokers when the last plan was made
    # Resources and brokers that were relieved in vain: something else uses them.
    _in_vain: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.moves, self.trouble = MoveMemory(self.settings), Trouble(self.settings)

    def step(
        self, now: float, view: View, *, busy: bool = False, paused: bool = False, rehoming: bool = False,
        cordoned: Collection[str] = (),
    ) -> Plan | NoPlan | None:  # fmt: skip
        """What to do now, if anything. ``busy``: a plan is being carried out, and ``rehoming``: it serves all lost
        keys; ``paused``: only lost keys may move; ``cordoned``: no key goes to these brokers, and none leaves them."""
        self._look_at_brokers(now, frozenset(view.brokers))
        if self.moves.look(now, view.routing.brokers):
            self._shaken = now
        self.found = [*self._findings(now, view, cordoned), *self._unfinished(view)]
        kinds = {each.kind for each in self.found}
        fresh = view.at != self._measured  # a measurement that is looked at twice is not found twice
        self._measured = view.at
        self._seen = {kind: max(1, self._seen.get(kind, 0) + fresh) for kind in kinds}
        self.why_not = ""
        if not len(view.brokers):
            self.why_not = "no broker is alive"
            return None
        if Kind.LOST in kinds and not rehoming:
            return self._decide(now, view, cordoned, only_lost=True)
        if not busy:
            self._verify(now, view)
        self.why_not = self._why_wait(now, view, busy=busy, paused=paused)
        firm = any(self._is_firm(each) for each in self.found)
        return self._decide(now, view, cordoned) if firm and not self.why_not else None

    def _why_wait(self, now: float, view: View, *, busy: bool, paused: bool) -> str:
        if not any(self._is_firm(each) for each in self.found):
            return "it has to be found again first" if self.found else ""
        if paused:
            return "it is paused"
        if busy:
            return "a plan is under way"
        if view.snapshot.unsure > UNSURE:
            return f"{view.snapshot.unsure:.0%} of the data has come once only; how often is not known yet"
        if view.at < self._shaken + COUNTED_S:
            return "keys have been moved by hand; where links are has to be measured first"
        if self._unseen:
            return "what the last plan brought has not been measured yet"
        if now < self._quiet_until:
            return f"nothing that could be done helps; trying again in {self._quiet_until - now:.0f} s"
        if not self.moves.allowed(now, len(view.keys)):
            return f"so many have moved in the last {self.settings.budget_s:g} s as the budget allows"
        return ""

    def _findings(self, now: float, view: View, cordoned: Collection[str]) -> list[Finding]:
        """Cordoned brokers need not be even with the others, nor have anything to do."""
        closed = set(cordoned) & set(view.brokers)
        part = view.without(closed) if 0 < len(closed) < len(view.brokers) else view
        found = [each for goal in GOALS for each in goal.find(part if goal.name == "evenness" else view, self.settings)]
        # Gathering takes many moves to save anything, so it waits for the whole budget.
        gathers = now >= self._gather_after and not self.moves.used(now)
        return [each for each in found if each.kind is not Kind.SCATTERED or gathers]

    def _look_at_brokers(self, now: float, brokers: frozenset[str]) -> None:
        """A broker less or more is a new situation: earlier experience with plans and keys no longer counts."""
        if brokers == self._brokers:
            return
        for name in self._brokers - brokers:
            self.trouble.died(name, now)
        for name in brokers - self._brokers:
            self.trouble.returned(name, now)
        self._brokers = brokers
        if self._unseen:
            self._never_measured("a broker has come or gone before")
        self.moves.clear()
        self._in_vain.clear()
        self._pause, self._quiet_until, self._unseen, self._rest = 0, -math.inf, False, 0
        self._gather_s, self._gather_after = GATHER_S, -math.inf

    def _is_firm(self, found: Finding) -> bool:
        """It was found so many times in a row; a slight excess, once more."""
        return found.kind is Kind.UNFINISHED or self._seen[found.kind] >= self.settings.patience + found.slight

    def _is_to_be_relieved(self, found: Finding) -> bool:
        """A broker is full of something, and a relief of it has not been in vain."""
        return bool(found.resource) and self._is_firm(found) and (found.resource, found.broker) not in self._in_vain

    def _unfinished(self, view: View) -> list[Finding]:
        if self._rest and view.load().cov > self.settings.enough:
            return [Finding(Kind.UNFINISHED, f"{self._rest:,} moves of the last plan are left")]
        self._rest = 0
        return []

    def _decide(self, now: float, view: View, cordoned: Collection[str], *, only_lost: bool = False) -> Plan | NoPlan:
        self.number += 1
        settings = self.settings
        unfit = tuple(sorted({*self.unfit(now, view), *(set(cordoned) & set(view.brokers))}))
        firm = {each.kind for each in self.found if self._is_firm(each)}
        only_scattered = firm == {Kind.SCATTERED}
        self.question = Question(
            self.number, now, tuple(f"{each.kind}: {each}" for each in self.found), settings.policy,
            settings.seed + self.number, settings.gain, self.moves.allowed(now, len(view.keys)),
            () if only_lost else self.moves.frozen(now, view), unfit, only_lost,
            relieve=next((each.resource for each in self.found if self._is_to_be_relieved(each)), ""),
            overload=settings.overload, messages=settings.messages, alpha=settings.alpha, beta=settings.beta,
            gather=settings.gather if now >= self._gather_after else 0.0, knobs=dict(settings.knobs),
        )  # fmt: skip
        made = decide(view, self.question)
        if isinstance(made, Plan):
            self._rest, self._said_before = made.left, reported(view)
            return made
        self.why_not, self._rest = made.why, 0
        if only_scattered:
            self._gather_later(now)
        elif troubled := [name for name in unfit if name not in cordoned]:
            self._quiet_until = min(self._unfit_until(name) for name in troubled)
        else:
            self._wait_longer(now)
        return made

    def unfit(self, now: float, view: View) -> tuple[str, ...]:
        """Brokers that no key is to go to for a while."""
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
        """Whether so many moves of a plan have failed that the rest of it is not worth much."""
        return any(times >= SEVERAL for times in Counter(each.target for each in failed).values())

    def ended(self, now: float, plan: Plan, failed: Iterable[Step] = ()) -> None:
        """All steps are carried out, but for those that failed. A broker to which several failed is not used for a
        while: a new plan is made without it, at once."""
        if self._unseen:
            self._never_measured("the next plan has begun before")
        self.outcome, self._unseen = Outcome(plan, now, self._said_before), True
        if not plan.before.mean:  # made without a measurement
            self._never_measured("there was nothing to compare with")
        for broker, times in Counter(each.target for each in failed).items():
            if times >= SEVERAL and self.trouble.failed(broker, now) and self._unseen:
                self._never_measured("several of its moves failed")

    def _verify(self, now: float, view: View) -> None:
        """Whether the last plan has helped, once there is a measurement from after its end."""
        outcome = self.outcome
        if outcome is None or not self._unseen:
            return
        plan, relieved = outcome.plan, outcome.plan.policy == RELIEVE
        # What brokers use is a mean over some time; loads are computed from the placement as it is.
        if view.at < outcome.ended + (max(USAGE_S, self.settings.period_s) if relieved else self.settings.period_s):
            return
        self._unseen = False
        helped = outcome.measure(view, self.settings)
        self.verdicts.append(outcome)
        if plan.policy == GATHER and helped:  # the budget may have allowed a part only
            self._gather_s, self._gather_after = GATHER_S, -math.inf
        elif plan.policy == GATHER:
            self._gather_later(now)
        if helped:
            self._pause = 0
            return
        if relieved and plan.binding is not None and outcome.binding is not None:
            self._in_vain.add((plan.binding.resource, plan.binding.broker))
        self._wait_longer(now)

    def _never_measured(self, why: str) -> None:
        assert self.outcome is not None
        self.outcome.unmeasured, self._unseen = why, False
        self.verdicts.append(self.outcome)

    def memory(self, now: float) -> dict[str, Any]:
        """What another controller has to know so as not to move again what has moved."""
        return self.moves.as_json(now) | {
            "trouble": self.trouble.as_json(now), "pause": self._pause, "quiet_until": max(self._quiet_until, 0.0),
            "brokers": sorted(self._brokers), "leaving": self.leaving, "in_vain": sorted(self._in_vain),
            "gather": [self._gather_s, max(self._gather_after, 0.0)],
        }  # fmt: skip

    def remember(self, values: dict[str, Any]) -> None:
        """What ``memory`` was."""
        self.moves.restore(values)
        self.trouble.restore(values.get("trouble", {}))
        self._pause, self._quiet_until = values.get("pause", 0), values.get("quiet_until", -math.inf)
        self._brokers, self.leaving = frozenset(values.get("brokers", ())), dict(values.get("leaving", {}))
        self._in_vain = {(resource, broker) for resource, broker in values.get("in_vain", ())}
        self._gather_s, self._gather_after = values.get("gather", (GATHER_S, -math.inf))

    def still_helps(self, view: View, plan: Plan, left: Iterable[Step]) -> bool:
        """Whether the rest of a plan is worth carrying out, as things are now."""
        if plan.policy == RELIEVE:
            found = now_bound(view, plan, self.settings)
            return found is not None and found[0] > found[1].room
        rest = list(left)
        for step in rest:
            if not step.source and step.key in view.rows and view.current[view.rows[step.key]] == UNPLACED:
                return True
        then = view.placed({step.key: step.target for step in rest})
        if plan.policy == GATHER:
            return view.load(then).total < view.load().total
        return worth_it(Levels.of(view.load()), Levels.of(view.load(then)), 0.0)
