"""The controller's decisions without a network and without a clock: views in, plans out.

Five rules keep it from oscillating, a known fault of load balancers (apache/pulsar PIP-364, #16059). A finding must
recur in several measurements. A plan must be worth its moves. The next plan waits until the last one has been measured,
and longer after each plan that did not help. A key that moved stays for a while, twice as long after each move. A
budget limits the moves within a period.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.control.decide import NoPlan, decide
from trimtab.control.drift import DRIFT, WHY, DriftWatch
from trimtab.control.goals import GOALS, goal_of
from trimtab.control.goals.goal import Finding
from trimtab.control.goals.served import LOST
from trimtab.control.goals.thrift import unused
from trimtab.control.memory import Memory, Pace
from trimtab.control.move_memory import MoveMemory
from trimtab.control.trends import Trends
from trimtab.control.trouble import Trouble
from trimtab.control.verdict import Verdict, reported
from trimtab.fleet.protocol.plans import LOAD, Levels, Plan, Question
from trimtab.model.placement import UNPLACED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from trimtab.control.goals.goal import Goal
    from trimtab.control.settings import Settings
    from trimtab.control.view import View
    from trimtab.fleet.protocol.plans import Step
    from trimtab.model.key import Key

LONGEST: Final = 32  # periods to wait after plans that did not help
SEVERAL: Final = 3  # failed moves to one broker, of one plan
UNSURE: Final = 0.2  # planning waits while more than this share of the data has an unknown period
COUNTED_S: Final = 2.0  # time within which every broker has listed its links again after a move
RARELY: Final = 64  # the longest interval of attempts of a goal with a pause, as a multiple of the pause
STALE_S: Final = 30.0  # time after a move in which latencies of before are among those measured over the last 20 s
URGENT: Final = 64  # most moves of an urgent plan
UNFINISHED: Final = "unfinished"  # the budget did not allow all moves of the last plan


@dataclass(slots=True)
class Loop:
    """Call ``step`` at every look. The executor of plans calls ``moved`` for steps that are done and ``ended`` for a
    plan that is over. ``verdicts`` collects those on plans until the caller removes them."""

    settings: Settings
    number: int = 0  # of the last decision
    verdict: Verdict | None = None  # on the last plan
    findings: list[Finding] = field(default_factory=list)  # at the last look
    why_not: str = ""  # why nothing moves in spite of the findings
    question: Question | None = None  # of the last decision
    verdicts: list[Verdict] = field(default_factory=list)
    leaving: dict[str, float] = field(default_factory=dict)  # brokers to be removed, each with its deadline
    moves: MoveMemory = field(init=False)
    trouble: Trouble = field(init=False)
    drift: DriftWatch = field(init=False)
    trends: Trends = field(init=False)
    view: View | None = None  # at the last look, with the growth of rates
    _streaks: dict[str, int] = field(default_factory=dict)  # consecutive measurements with a finding of that kind
    _measured: float = -math.inf  # time of the newest measurement
    _pause: int = 0  # periods to wait after a plan that did not help; doubles
    _quiet_until: float = -math.inf
    _urgent_after: float = -math.inf  # time of the next attempt for the reported topics that no broker has room for
    _hopeless: frozenset[str] = frozenset()  # these topics
    _unverified: bool = False  # the result of the last plan has not been measured yet
    _moved_by_hand: float = -math.inf  # time at which a move was noticed that no plan had ordered
    _left: int = 0  # moves of the last plan that the budget did not allow
    _brokers: frozenset[str] = frozenset()  # alive at the last look
    _reported: Levels | None = None  # reported by brokers at the last look
    _reported_before: Levels | None = None  # reported by brokers when the last plan began
    # Goal, aim and broker whose plan did not help: something other than keys uses the resource.
    _futile: set[tuple[str, str, str]] = field(default_factory=set)
    _changed: dict[str, float] = field(default_factory=dict)  # brokers that keys left or joined, and when
    _paces: dict[str, Pace] = field(default_factory=dict)  # of goals that are asked at intervals

    def __post_init__(self) -> None:
        self.moves, self.trouble = MoveMemory(self.settings), Trouble(self.settings)
        self.drift = DriftWatch(self.settings.model, self.settings.headroom)
        self.trends = Trends(self.settings)

    def step(
        self, now: float, view: View, *, busy: bool = False, paused: bool = False, rehoming: bool = False,
        cordoned: Collection[str] = (), moving: Collection[Key] = (),
    ) -> Plan | NoPlan | None:  # fmt: skip
        """Decide what to do now, if anything.

        ``busy``: a plan is being carried out. ``rehoming``: that plan serves all lost keys. ``paused``: only lost keys
        may move. ``cordoned``: brokers that get no keys and give none away. ``moving``: keys whose moves are under way.
        """
        view = self.view = self.trends.look(self._without_stale_latencies(now, view))
        self._look_at_brokers(now, frozenset(view.brokers))
        if self.moves.look(now, view.routing.brokers):
            self._moved_by_hand = now
        self._reported = reported(view)
        if view.snapshot.unsure <= UNSURE and self.drift.look(view):
            self.settings = replace(self.settings, model=self.drift.model)
        self.findings = [*self._find(now, view, cordoned), *self._unfinished(view), *self.drift.findings]
        kinds = {finding.kind for finding in self.findings}
        fresh = view.at != self._measured  # a second look at the same measurement does not count
        self._measured = view.at
        self._streaks = {kind: max(1, self._streaks.get(kind, 0) + fresh) for kind in kinds}
        self.why_not = ""
        if not len(view.brokers):
            self.why_not = "no broker is alive"
            return None
        if LOST in kinds and not rehoming:
            return self._decide(now, view, cordoned, only_lost=True)
        if not paused and (urgent := self._decide_urgent(now, view, cordoned, moving)) is not None:
            return urgent
        if not busy:
            self._verify(now, view)
        self.why_not = self._why_wait(now, view, busy=busy, paused=paused)
        firm = any(self._is_firm(finding) for finding in self.findings)
        return self._decide(now, view, cordoned) if firm and not self.why_not else None

    def _decide_urgent(
        self, now: float, view: View, cordoned: Collection[str], moving: Collection[Key]
    ) -> Plan | None:  # fmt: skip
        """A plan for findings that are certain, made of nothing else; it is carried out beside a plan under way. Topics
        that follow their clients are outside the budget of moves, and may move again soon: each move must gain enough.
        """
        aims = {finding.goal: finding.aim for finding in self.findings if finding.certain and finding.aim}
        reported = frozenset(view.snapshot.missed)
        if not aims or (now < self._urgent_after and reported <= self._hopeless):
            return None
        self.number += 1
        resting = tuple(goal.name for goal in GOALS[1:] if goal.name not in aims)
        reasons = tuple(f"{finding.kind}: {finding}" for finding in self.findings if finding.certain)
        question = self._question(
            now, view, cordoned, most=URGENT, reasons=reasons, aims=aims, resting=resting, frozen=tuple(moving),
            aside=True,
        )  # fmt: skip
        decision = decide(view, question)
        if isinstance(decision, Plan):
            self.question = question
            return decision
        self.number -= 1
        if not moving:  # a topic whose move is under way is not hopeless
            self._urgent_after, self._hopeless = now + self.settings.period_s, reported
        return None

    def _without_stale_latencies(self, now: float, view: View) -> View:
        """Leave out the latencies of topics at brokers that keys have left or joined recently: they were measured with
        the load of before."""
        p90 = view.snapshot.p90_ms
        stale = {broker for broker, at in self._changed.items() if now < at + STALE_S}
        if p90 is None or not stale:
            return view
        rows = [row for row, name in enumerate(view.brokers) if name in stale]
        topics = view.snapshot.workload.links.topic[np.isin(view.carriers(), rows)]
        p90 = p90.copy()
        p90[topics] = np.nan
        return replace(view, snapshot=replace(view.snapshot, p90_ms=p90))

    def _why_wait(self, now: float, view: View, *, busy: bool, paused: bool) -> str:
        if not any(self._is_firm(finding) for finding in self.findings):
            kinds = {finding.kind for finding in self.findings if not finding.certain}
            if not kinds and self.findings:
                return "the moves are under way, or no better broker has room"
            return "" if not kinds else WHY if kinds == {DRIFT} else "the next measurements must confirm it"
        if paused:
            return "the controller is paused"
        if busy:
            return "a plan is under way"
        if view.snapshot.unsure > UNSURE:
            return f"{view.snapshot.unsure:.0%} of the data was seen only once, so its period is not known yet"
        if view.at < self._moved_by_hand + COUNTED_S:
            return "keys were moved by hand; the brokers of their links have to be measured first"
        if self._unverified and not self._cannot_wait(view):
            return "the outcome of the last plan has not been measured yet"
        if now < self._quiet_until:
            return f"no plan helps at present; trying again in {self._quiet_until - now:.0f} s"
        if not self.moves.allowed(now, len(view.keys)):
            return f"the budget of moves in {self.settings.budget_s:g} s is used up"
        return ""

    def _cannot_wait(self, view: View) -> bool:
        """Whether a goal that need not wait for outcomes has a firm finding, in a measurement after the last plan."""
        ended = -math.inf if self.verdict is None else self.verdict.ended
        urgent = (finding for finding in self.findings if finding.aim and self._is_firm(finding))
        hasty = {goal.name for goal in GOALS if not goal.waits}
        return view.at >= ended + COUNTED_S and any(finding.goal in hasty for finding in urgent)

    def _find(self, now: float, view: View, cordoned: Collection[str]) -> list[Finding]:
        """Cordoned brokers need not be even with the others, nor have anything to do."""
        closed = set(cordoned) & set(view.brokers)
        part = view.without(closed) if 0 < len(closed) < len(view.brokers) else view
        findings: list[Finding] = []
        for goal in GOALS:
            if goal.pause_s and (now < self._pace(goal).after or self.moves.used(now)):
                continue  # it takes many moves to gain anything, so it waits for the whole budget
            looked_at = view if goal.counts_cordoned else part
            idle = unused(looked_at) if self.settings.thrift and goal.in_use_only else []
            if 0 < len(idle) < len(looked_at.brokers):
                looked_at = looked_at.without(idle)
            found = goal.find(looked_at, self.settings)
            findings += [replace(finding, goal=goal.name) for finding in found]
        return findings

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
        self._paces.clear()

    def _is_firm(self, finding: Finding) -> bool:
        """Whether the finding has recurred often enough to act on it. A slight excess must recur once more. A drift is
        recorded once. A certain finding has a plan of its own."""
        if finding.kind == DRIFT:
            return self.drift.news
        if finding.certain:
            return False
        return finding.kind == UNFINISHED or self._streaks[finding.kind] >= self.settings.patience + finding.slight

    def _aims(self) -> dict[str, str]:
        """The first firm aim of every goal that no earlier plan has pursued in vain."""
        aims: dict[str, str] = {}
        for finding in self.findings:
            futile = (finding.goal, finding.aim, finding.broker) in self._futile
            if finding.aim and self._is_firm(finding) and not futile:
                aims.setdefault(finding.goal, finding.aim)
        return aims

    def _unfinished(self, view: View) -> list[Finding]:
        if self._left and view.load().cov > self.settings.enough:
            return [Finding(UNFINISHED, f"{self._left:,} moves of the last plan are left")]
        self._left = 0
        return []

    def _decide(self, now: float, view: View, cordoned: Collection[str], *, only_lost: bool = False) -> Plan | NoPlan:
        self.number += 1
        firm = {finding.goal for finding in self.findings if self._is_firm(finding)}
        paced = [goal for goal in GOALS if goal.pause_s]
        resting = GOALS if firm == {DRIFT} else [goal for goal in paced if now < self._pace(goal).after]
        self.drift.news = False
        self.question = self._question(
            now, view, cordoned, reasons=tuple(f"{finding.kind}: {finding}" for finding in self.findings),
            frozen=() if only_lost else self.moves.frozen(now, view), only_lost=only_lost, aims=self._aims(),
            resting=tuple(goal.name for goal in resting),
        )  # fmt: skip
        decision = decide(view, self.question)
        if isinstance(decision, Plan):
            self._left = decision.left
            return decision
        if firm == {DRIFT}:
            return replace(decision, why=WHY)
        self.why_not, self._left = decision.why, 0
        if firm and firm <= {goal.name for goal in paced}:
            for goal in paced:
                if goal.name in firm:
                    self._rest(goal, now)
        elif troubled := [name for name in self.question.unfit if name not in cordoned]:
            self._quiet_until = min(self._unfit_until(name) for name in troubled)
        else:
            self._wait_longer(now)
        return decision

    def _question(self, now: float, view: View, cordoned: Collection[str], **asked: Any) -> Question:
        """A question to decide now, with these fields; all others are those of the settings."""
        settings = self.settings
        unfit = tuple(sorted({*self.unfit(now, view), *(set(cordoned) & set(view.brokers))}))
        of_settings: dict[str, Any] = {
            "policy": settings.policy, "seed": settings.seed + self.number, "gain": settings.gain,
            "most": self.moves.allowed(now, len(view.keys)), "overload": settings.overload,
            "messages": settings.messages, "alpha": settings.alpha, "beta": settings.beta, "gather": settings.gather,
            "knobs": dict(settings.knobs), "model": dict(settings.model), "headroom": settings.headroom,
            "thrift": settings.thrift,
        }  # fmt: skip
        return Question(number=self.number, at=now, unfit=unfit, **(of_settings | asked))

    def unfit(self, now: float, view: View) -> tuple[str, ...]:
        """Brokers that get no keys for a while."""
        return tuple(name for name in view.brokers if now < self._unfit_until(name))

    def _unfit_until(self, broker: str) -> float:
        return max(self.trouble.until(broker), self.leaving.get(broker, 0.0))

    def _wait_longer(self, now: float) -> None:
        self._pause = min(LONGEST, max(1, 2 * self._pause))
        self._quiet_until = now + self._pause * self.settings.period_s

    def _pace(self, goal: Goal) -> Pace:
        return self._paces.get(goal.name, Pace(goal.pause_s))

    def _rest(self, goal: Goal, now: float) -> None:
        """Ask a goal again after its interval, which doubles."""
        interval = self._pace(goal).interval_s
        self._paces[goal.name] = Pace(min(2.0 * interval, RARELY * goal.pause_s), now + interval)

    def began(self) -> None:
        """A plan begins: the verdict on it compares with what brokers report now."""
        self._reported_before = self._reported

    def moved(self, now: float, steps: Iterable[Step]) -> None:
        """These steps have been carried out."""
        done = list(steps)
        self._changed |= {broker: now for step in done for broker in (step.source, step.target)}
        self.moves.moved(now, done)

    def followed(self, now: float, step: Step) -> None:
        """This step of an urgent plan has been carried out."""
        self._changed |= dict.fromkeys((step.source, step.target), now)
        self.moves.ordered(step)

    def is_hopeless(self, failed: Iterable[Step]) -> bool:
        """Whether too many moves of a plan have failed for its remaining steps to be worth much."""
        return any(times >= SEVERAL for times in Counter(step.target for step in failed).values())

    def ended(self, now: float, plan: Plan, failed: Iterable[Step] = ()) -> None:
        """All steps are carried out, except those that failed. A broker to which several moves failed gets no keys for
        a while, and a new plan is made without it at once."""
        if self._unverified:
            self._give_up_verifying("the next plan began before the measurement")
        self.verdict, self._unverified = Verdict(plan, now, self._reported_before), True
        if not plan.before.mean:  # made without a measurement
            self._give_up_verifying("the plan was made without a measurement")
        for broker, times in Counter(step.target for step in failed).items():
            if times >= SEVERAL and self.trouble.failed(broker, now) and self._unverified:
                self._give_up_verifying("several of its moves failed")

    def _verify(self, now: float, view: View) -> None:
        """Judge the last plan, once a measurement was taken after its end."""
        verdict = self.verdict
        if verdict is None or not self._unverified:
            return
        plan = verdict.plan
        goal = goal_of(plan)
        if view.at < verdict.ended + goal.settles_s(self.settings):
            return
        self._unverified = False
        helped = verdict.measure(view, goal, self.settings)
        self.verdicts.append(verdict)
        if goal.pause_s and helped:  # the budget may have cut the plan off, so the goal may go on at once
            self._paces.pop(goal.name, None)
        elif goal.pause_s:
            self._rest(goal, now)
        if helped:
            self._pause = 0
            return
        if plan.binding is not None and plan.binding.resource != LOAD and verdict.binding is not None:
            self._futile.add((goal.name, plan.binding.resource, plan.binding.broker))
        self._wait_longer(now)

    def _give_up_verifying(self, why: str) -> None:
        assert self.verdict is not None
        self.verdict.unmeasured, self._unverified = why, False
        self.verdicts.append(self.verdict)

    def memory(self, now: float) -> Memory:
        """State that a successor needs in order not to move the same keys again."""
        moved, recent = self.moves.stored(now)
        return Memory(
            moved, recent, self.trouble.stored(now), self._pause, max(self._quiet_until, 0.0), sorted(self._brokers),
            dict(self.leaving), sorted(self._futile), dict(self._paces),
            self.drift.model if self.drift.updates else {},
        )  # fmt: skip

    def remember(self, memory: Memory) -> None:
        """Restore the state that ``memory`` returned."""
        self.moves.restore(memory.moved, memory.recent)
        self.trouble.restore(memory.trouble)
        self._pause, self._quiet_until = memory.pause, memory.quiet_until
        self._brokers, self.leaving = frozenset(memory.brokers), dict(memory.leaving)
        self._futile, self._paces = set(memory.futile), dict(memory.paces)
        if self.drift.resume(memory.model):
            self.settings = replace(self.settings, model=self.drift.model)

    def still_helps(self, view: View, plan: Plan, left: Iterable[Step]) -> bool:
        """Whether the remaining steps of a plan are still worth carrying out."""
        remaining = list(left)
        for step in remaining:
            if not step.source and step.key in view.rows and view.current[view.rows[step.key]] == UNPLACED:
                return True
        then = view.placed({step.key: step.target for step in remaining})
        return goal_of(plan).still_helps(view, plan, then, self.settings)
