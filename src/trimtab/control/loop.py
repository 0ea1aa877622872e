"""The controller without a network and without a clock: looks in, plans out.

What keeps it from running after its own tail, which its peers are known for (apache/pulsar PIP-364, #16059): it must
find the same thing several times in a row; a plan must be worth it; the next waits until the last one has been seen to
help, and longer each time one has not; a client that moved stays for a while, twice as long each time; and only so many
move within a period.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trimtab.control.decide import NoPlan, Question, decide, worth_it
from trimtab.control.detectors import Finding, Kind, findings
from trimtab.control.plan import RELIEVE, Levels, Plan
from trimtab.control.resources import all_that_binds
from trimtab.model.placement import UNPLACED
from trimtab.observe.snapshot import USAGE_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trimtab.control.plan import Step
    from trimtab.control.resources import Resource
    from trimtab.control.settings import Settings
    from trimtab.control.view import View

LONGEST: Final = 32  # periods that it waits after plans that did not help
LONG: Final = 8  # periods that a broker must be there to be used, if it keeps dying
FORGET: Final = 16  # times ``cool_s`` after which a move does not count any more
WORSE: Final = 1.1  # times what it was
SEVERAL: Final = 3  # moves to a broker that failed, of one plan
ENOUGH: Final = 0.5  # share of the predicted gain that must show
UNSURE: Final = 0.2  # share of all data of which it is not known how often it comes: too much to plan on
COUNTED_S: Final = 2.0  # after which every broker has said again who is there


@dataclass(slots=True)
class Outcome:
    """What a plan brought."""

    plan: Plan
    ended: float
    said_before: Levels | None = None  # by the brokers themselves, all that they carry
    measured: Levels | None = None  # once it was seen
    said: Levels | None = None
    binding: float | None = None  # of that which was binding, then
    helped: bool | None = None
    unmeasured: str = ""  # why that will never be known

    def as_json(self) -> dict[str, Any]:
        levels = {name: getattr(self, name) for name in ("said_before", "measured", "said")}
        seen = {name: each.as_json() if each else None for name, each in levels.items()}
        return seen | {"binding": self.binding, "helped": self.helped, "unmeasured": self.unmeasured}


@dataclass(slots=True)
class _Trouble:
    """A broker that died, or to which moves failed."""

    times: int = 0
    last: float = 0.0
    until: float = 0.0  # nobody is to go there before this


@dataclass(frozen=True, slots=True)
class _Moved:
    """A client that a plan has moved."""

    times: int  # in a row
    last: float  # when
    to: str


@dataclass(slots=True)
class Loop:
    """``step`` at every look. Whoever carries plans out says what ``moved``, and when it ``ended``; what was found out
    about plans since the last time is in ``verdicts``."""

    settings: Settings
    number: int = 0  # of the last decision
    outcome: Outcome | None = None  # of the last plan
    found: list[Finding] = field(default_factory=list)  # at the last look
    why_not: str = ""  # nothing moves though something was found
    question: Question | None = None  # that the last decision answered
    verdicts: list[Outcome] = field(default_factory=list)
    leaving: dict[str, float] = field(default_factory=dict)  # brokers that are to be removed, until when
    _seen: dict[Kind, int] = field(default_factory=dict)  # measurements in a row
    _measured: float = -math.inf  # when the last of these was
    _recent: deque[float] = field(default_factory=deque)  # when clients moved
    _moved: dict[str, _Moved] = field(default_factory=dict)  # clients
    _pause: int = 0  # periods to wait after a plan that did not help; doubles
    _quiet_until: float = -math.inf
    _unseen: bool = False  # what came of it has not been measured yet
    _homes: Mapping[str, str] = field(default_factory=dict)  # at the last look
    _sent: dict[str, str] = field(default_factory=dict)  # clients that plans have moved, and where to
    _shaken: float = -math.inf  # when somebody else was seen to have moved clients
    _rest: int = 0  # moves of the last plan that the budget did not allow
    _brokers: frozenset[str] = frozenset()  # alive at the last look
    _said_before: Levels | None = None  # by brokers, when the last plan was made
    _trouble: dict[str, _Trouble] = field(default_factory=dict)
    # Resources and brokers that had no more of them when clients had left: it is something else that uses them.
    _in_vain: set[tuple[str, str]] = field(default_factory=set)

    def step(
        self, now: float, view: View, *, busy: bool = False, paused: bool = False, rehoming: bool = False
    ) -> Plan | NoPlan | None:
        """What to do now, if anything. ``busy``: a plan is being carried out, and ``rehoming``: it gives homes to all
        who have none; ``paused``: only who is lost may move."""
        self._look_who_is_there(now, frozenset(view.brokers))
        self._look_who_has_moved(now, view.homes)
        self.found = [*findings(view, self.settings), *self._unfinished(view)]
        kinds = {each.kind for each in self.found}
        fresh = view.at != self._measured  # to look at a measurement twice is not to find something twice
        self._measured = view.at
        self._seen = {kind: max(1, self._seen.get(kind, 0) + fresh) for kind in kinds}
        self.why_not = ""
        if not len(view.brokers):
            self.why_not = "no broker is alive"
            return None
        if Kind.LOST in kinds and not rehoming:
            return self._decide(now, view, only_lost=True)
        if not busy:
            self._verify(now, view)
        if not any(self._is_firm(each) for each in self.found):
            self.why_not = "it has to be found again first" if self.found else ""
        elif paused:
            self.why_not = "it is paused"
        elif busy:
            self.why_not = "a plan is under way"
        elif view.snapshot.unsure > UNSURE:
            self.why_not = f"{view.snapshot.unsure:.0%} of the data has come once only; how often is not known yet"
        elif view.at < self._shaken + COUNTED_S:
            self.why_not = "clients have been moved by hand; who is where has to be measured first"
        elif self._unseen:
            self.why_not = "what the last plan brought has not been measured yet"
        elif now < self._quiet_until:
            self.why_not = f"nothing that could be done helps; trying again in {self._quiet_until - now:.0f} s"
        elif not self._allowed(now, len(view.clients)):
            self.why_not = f"so many have moved in the last {self.settings.budget_s:g} s as the budget allows"
        else:
            return self._decide(now, view)
        return None

    def _look_who_is_there(self, now: float, brokers: frozenset[str]) -> None:
        """A broker less or more is a new situation: what was found out about plans and clients no longer counts.

        One that comes back is used after a period, after twice as long the second time, and so on.
        """
        if brokers == self._brokers:
            return
        for name in self._brokers - brokers:
            self._had_trouble(name, now, math.inf)
        for name in brokers - self._brokers:
            if (known := self._trouble.get(name)) is not None:
                known.until = now + self.settings.period_s * min(LONG, 2 ** (known.times - 1))
        self._brokers = brokers
        if self._unseen:
            self._never_measured("a broker has come or gone before")
        self._moved.clear()
        self._in_vain.clear()
        self._pause, self._quiet_until, self._unseen, self._rest = 0, -math.inf, False, 0

    def _look_who_has_moved(self, now: float, homes: Mapping[str, str]) -> None:
        """A measurement of the moment in which a client moves may find it nowhere, and a plan on it be half of one."""
        before = self._homes
        if any(before.get(client, home) != home != self._sent.get(client) for client, home in homes.items()):
            self._shaken = now
        self._homes = homes
        if len(self._sent) > 2 * len(homes):  # whoever has left for good
            self._sent = {client: to for client, to in self._sent.items() if client in homes}
        oldest = now - FORGET * self.settings.cool_s
        if self._moved and next(iter(self._moved.values())).last < oldest:
            self._moved = {client: known for client, known in self._moved.items() if known.last >= oldest}

    def _had_trouble(self, broker: str, now: float, for_s: float) -> None:
        known = self._trouble.setdefault(broker, _Trouble())
        if now - known.last > FORGET * self.settings.cool_s:
            known.times = 0
        known.times, known.last, known.until = known.times + 1, now, now + for_s

    def _is_firm(self, found: Finding) -> bool:
        """It was found so many times in a row; what is slight, once more."""
        return found.kind is Kind.UNFINISHED or self._seen[found.kind] >= self.settings.patience + found.slight

    def _is_to_be_relieved(self, found: Finding) -> bool:
        """A broker is full of something, and to move clients has not been found to be no use."""
        return bool(found.resource) and self._is_firm(found) and (found.resource, found.broker) not in self._in_vain

    def _unfinished(self, view: View) -> list[Finding]:
        if self._rest and view.load().cov > self.settings.enough:
            return [Finding(Kind.UNFINISHED, f"{self._rest:,} moves of the last plan are left")]
        self._rest = 0
        return []

    def _decide(self, now: float, view: View, *, only_lost: bool = False) -> Plan | NoPlan:
        self.number += 1
        settings = self.settings
        frozen = () if only_lost else tuple(name for name in view.clients if self._is_frozen(name, view, now))
        unfit = self.unfit(now, view)
        self.question = Question(
            self.number, now, tuple(f"{each.kind}: {each}" for each in self.found), settings.policy,
            settings.seed + self.number, settings.gain, self._allowed(now, len(view.clients)), frozen, unfit, only_lost,
            relieve=next((each.resource for each in self.found if self._is_to_be_relieved(each)), ""),
            overload=settings.overload, messages=settings.messages,
        )  # fmt: skip
        made = decide(view, self.question)
        if isinstance(made, Plan):
            self._rest, self._said_before = made.left, _said_by(view)
        else:
            self.why_not, self._rest = made.why, 0
            if unfit:
                self._quiet_until = min(self._unfit_until(name) for name in unfit)
            else:
                self._wait_longer(now)
        return made

    def unfit(self, now: float, view: View) -> tuple[str, ...]:
        """Brokers that nobody is to go to for a while."""
        return tuple(name for name in view.brokers if now < self._unfit_until(name))

    def _unfit_until(self, broker: str) -> float:
        return max(self._trouble.get(broker, _Trouble()).until, self.leaving.get(broker, 0.0))

    def _allowed(self, now: float, clients: int) -> int:
        while self._recent and self._recent[0] <= now - self.settings.budget_s:
            self._recent.popleft()
        return max(0, math.ceil(self.settings.budget * clients) - len(self._recent))

    def _is_frozen(self, client: str, view: View, now: float) -> bool:
        """It has moved not long ago, and nobody has brought it elsewhere since."""
        known = self._moved.get(client)
        if known is None or view.homes[client] != known.to:
            return False
        return bool(now < known.last + self.settings.cool_s * 2 ** (known.times - 1))

    def _wait_longer(self, now: float) -> None:
        self._pause = min(LONGEST, max(1, 2 * self._pause))
        self._quiet_until = now + self._pause * self.settings.period_s

    def moved(self, now: float, steps: Iterable[Step]) -> None:
        """These have been carried out. Whoever had no home does not count: it had to go somewhere."""
        for each in steps:
            self._sent[each.client] = each.target
            if each.source:
                self._recent.append(now)
                known = self._moved.get(each.client)
                again = (
                    known is not None and known.to == each.source and now - known.last <= FORGET * self.settings.cool_s
                )
                self._moved.pop(each.client, None)  # the oldest are first
                self._moved[each.client] = _Moved(known.times + 1 if known and again else 1, now, each.target)

    def is_hopeless(self, failed: Iterable[Step]) -> bool:
        """Whether so many moves of a plan have failed that the rest of it is not worth much."""
        return any(times >= SEVERAL for times in Counter(each.target for each in failed).values())

    def ended(self, now: float, plan: Plan, failed: Iterable[Step] = ()) -> None:
        """All of it is carried out, but for those that failed. Where several could not go, nobody is sent for a while:
        a new plan is made without that broker, at once."""
        if self._unseen:
            self._never_measured("the next plan has begun before")
        self.outcome, self._unseen = Outcome(plan, now, self._said_before), True
        if not plan.before.mean:  # made without a measurement
            self._never_measured("there was nothing to compare with")
        for broker, times in Counter(each.target for each in failed).items():
            known = self._trouble.get(broker, _Trouble())
            if times >= SEVERAL and now >= known.until:
                self._had_trouble(broker, now, self.settings.cool_s * 2**known.times)
                if self._unseen:
                    self._never_measured("several of its moves failed")

    def _verify(self, now: float, view: View) -> None:
        """Whether the last plan has brought at least half of what it promised, and no broker says otherwise.

        What brokers say is more than what clients get: publications on their way through, and news between brokers. So
        it need not fall by as much, but must not have risen.
        """
        outcome = self.outcome
        if outcome is None or not self._unseen:
            return
        binding, relieved = outcome.plan.binding, outcome.plan.policy == RELIEVE
        # What brokers use is a mean over some time; loads are computed from homes as they are.
        if view.at < outcome.ended + (max(USAGE_S, self.settings.period_s) if relieved else self.settings.period_s):
            return
        self._unseen = False
        plan, outcome.measured, outcome.said = outcome.plan, Levels.of(view.load()), _said_by(view)
        promised = plan.before.spread - plan.predicted.spread  # less than nothing, if one was taken back
        good = outcome.measured.spread <= max(plan.predicted.spread + ENOUGH * abs(promised), self.settings.alpha)
        before, after = outcome.said_before, outcome.said
        worse = (
            promised > 0.0 and before is not None and after is not None
            and after.spread > max(WORSE * before.spread, self.settings.alpha)
        )  # fmt: skip
        if (found := self._now_bound(view, plan)) is not None:
            outcome.binding, resource = found
            if binding is not None and relieved:  # it is full no longer, or half of what was promised has come
                half = binding.predicted + ENOUGH * (binding.now - binding.predicted)
                good, worse = outcome.binding <= max(half, resource.allowed), False
                if not good:
                    self._in_vain.add((binding.resource, binding.broker))
        outcome.helped = good and not worse
        self.verdicts.append(outcome)
        if outcome.helped:
            self._pause = 0
        else:
            self._wait_longer(now)

    def _now_bound(self, view: View, plan: Plan) -> tuple[float, Resource] | None:
        """How it is now with that which was binding when a plan was made."""
        limits = all_that_binds(view, self.settings.overload, self.settings.messages)
        brokers, binding = list(view.brokers), plan.binding
        if binding is None or binding.broker not in brokers:
            return None
        row = brokers.index(binding.broker)
        return next(((float(each.share()[row]), each) for each in limits if each.name == binding.resource), None)

    def _never_measured(self, why: str) -> None:
        assert self.outcome is not None
        self.outcome.unmeasured, self._unseen = why, False
        self.verdicts.append(self.outcome)

    def memory(self, now: float) -> dict[str, Any]:
        """What another controller has to know so as not to move again what has moved."""
        return {
            "moved": {name: [m.times, m.last, m.to] for name, m in self._moved.items()},
            "recent": [at for at in self._recent if at > now - self.settings.budget_s],
            "trouble": {name: [t.times, t.last, min(t.until, now + 1e9)] for name, t in self._trouble.items()},
            "pause": self._pause, "quiet_until": max(self._quiet_until, 0.0), "brokers": sorted(self._brokers),
            "leaving": self.leaving, "in_vain": sorted(self._in_vain),
        }  # fmt: skip

    def remember(self, said: dict[str, Any]) -> None:
        """What ``memory`` was."""
        self._moved = {name: _Moved(*each) for name, each in said.get("moved", {}).items()}
        self._recent = deque(said.get("recent", ()))
        self._trouble = {name: _Trouble(*each) for name, each in said.get("trouble", {}).items()}
        self._pause, self._quiet_until = said.get("pause", 0), said.get("quiet_until", -math.inf)
        self._brokers, self.leaving = frozenset(said.get("brokers", ())), dict(said.get("leaving", {}))
        self._in_vain = {(resource, broker) for resource, broker in said.get("in_vain", ())}

    def still_helps(self, view: View, plan: Plan, left: Iterable[Step]) -> bool:
        """Whether the rest of a plan is worth carrying out, as things are now."""
        if plan.policy == RELIEVE:
            found = self._now_bound(view, plan)
            return found is not None and found[0] > found[1].room
        brokers = {name: row for row, name in enumerate(view.brokers)}
        clients = {name: row for row, name in enumerate(view.clients)}
        then = view.home.copy()
        for each in left:
            if not each.source and each.client in clients and view.home[clients[each.client]] == UNPLACED:
                return True
            if each.target in brokers and each.client in clients:
                then[clients[each.client]] = brokers[each.target]
        return worth_it(Levels.of(view.load()), Levels.of(view.load(then)), 0.0)


def _said_by(view: View) -> Levels | None:
    """How level brokers are by what they say themselves, if all of them do."""
    load = view.measured()
    return Levels.of(load) if load is not None else None
