"""Plans and decisions of the controller: one set of types for the loop, for requests and for the log at the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from trimtab.model.key import Key, RoutingTable, Unit

if TYPE_CHECKING:
    from trimtab.model.judgement import Load

WAITING, MOVING, MOVED, FAILED, DROPPED = "waiting", "moving", "moved", "failed", "dropped"  # states of a step
LINKS_PLACED: Final = "placed"  # ``Outcome.links`` of a plan whose links have been placed
LOAD: Final = "load"  # resource of a plan about evenness


class Levels(msgspec.Struct, frozen=True):
    """How even the loads of brokers are."""

    max_load: float  # bytes/s for the broker's strength
    mean: float
    spread: float

    @classmethod
    def of(cls, load: Load) -> Levels:
        return cls(load.level, load.mean, load.cov)


class Step(msgspec.Struct, array_like=True, frozen=True):
    """One key's move."""

    unit: Unit
    topic: str
    client: str
    source: str  # empty if that broker is not alive, or for a link that has no broker
    target: str  # empty for a link that is to have no broker

    @classmethod
    def of(cls, key: Key, source: str, target: str) -> Step:
        return cls(*key, source, target)

    @property
    def key(self) -> Key:
        return Key(self.unit, self.topic, self.client)

    @property
    def back(self) -> Step:
        """The move that takes this one back."""
        return Step.of(self.key, self.target, self.source)


class Binding(msgspec.Struct, frozen=True):
    """The resource that was scarcest when a plan was made."""

    resource: str  # or LOAD
    broker: str  # the fullest broker of that resource
    now: float  # its use as a share of the limit; of LOAD, as a multiple of the mean
    predicted: float


class Plan(msgspec.Struct, frozen=True):
    """Steps to carry out, the reasons for them, and their predicted effect."""

    number: int
    at: float  # time of the decision, seconds since 1970
    reasons: tuple[str, ...]
    policy: str
    steps: tuple[Step, ...]
    before: Levels
    predicted: Levels
    left: int = 0  # moves that the budget did not allow
    binding: Binding | None = None  # None for a plan that serves lost keys, and for one made by hand
    goal: str = ""  # goal that proposed it; empty for a plan made by hand
    links: tuple[Step, ...] = ()  # links to admit or to refuse once all steps are over
    aside: bool = False  # carried out at once, beside other plans


class Progress(msgspec.Struct):
    """A plan under way: the state of every step."""

    plan: Plan
    began: float
    by_hand: bool = False
    states: list[str] = []  # one per step
    moves: list[str] = []  # one per step: its id at the keeper, empty until it begins
    ended: float | None = None
    stopped: str = ""  # why the remaining steps were dropped

    def __post_init__(self) -> None:
        self.states = self.states or [WAITING] * len(self.plan.steps)
        self.moves = self.moves or [""] * len(self.plan.steps)

    def count(self, state: str) -> int:
        return self.states.count(state)

    def rows(self, state: str) -> list[int]:
        """Rows of the steps in ``state``."""
        return [row for row, current in enumerate(self.states) if current == state]

    def of(self, state: str) -> list[Step]:
        return [self.plan.steps[row] for row in self.rows(state)]

    @property
    def finished(self) -> int:
        """Steps that are neither waiting nor moving."""
        return len(self.states) - self.count(WAITING) - self.count(MOVING)

    @property
    def over(self) -> bool:
        return self.finished == len(self.states)

    def left_s(self, now: float) -> float | None:
        """Estimate how long the remaining steps take, by the mean of the steps so far."""
        done, left = self.count(MOVED) + self.count(FAILED), len(self.states) - self.finished
        return (now - self.began) / done * left if done and left else None

    def drop(self, why: str) -> None:
        """Leave out the steps that have not begun, and the links that come after all steps."""
        self.stopped = why
        self.states = [DROPPED if state == WAITING else state for state in self.states]


class Question(msgspec.Struct, frozen=True):
    """All that a decision depends on besides the view. The same question and view give the same plan."""

    number: int
    at: float
    reasons: tuple[str, ...]
    policy: str
    seed: int
    gain: float  # least fall of the spread, see ``control.goals.evenness.worth_it``
    most: int  # moves that the budget allows
    frozen: tuple[Key, ...] = ()  # keys that moved recently and must stay
    unfit: tuple[str, ...] = ()  # brokers that get no keys and give none away
    only_lost: bool = False  # only keys whose broker is not alive move
    leaving: str = ""  # a broker to be emptied
    aims: dict[str, str] = {}  # goal -> the aim of its finding that the plan is to mend
    resting: tuple[str, ...] = ()  # goals that propose nothing now
    overload: float = 1.0  # share of any resource above which a broker is full
    messages: float | None = None  # messages/s above which a broker is full; None: no limit
    alpha: float = 0.15  # spread of loads that is allowed
    beta: float = 0.0  # mean load up to which any spread is allowed
    gather: float = 0.0  # share of all load that gathering common subscriptions must save; 0: do not gather
    knobs: dict[str, Any] = {}  # of the policy
    model: dict[str, Any] = {}  # queueing model that latencies are predicted by; empty: of an unknown machine
    headroom: float = 0.1  # share of time in which the processor of a topic with a latency bound must not be busy
    thrift: bool = False  # use no more brokers than needed
    aside: bool = False  # the plan is carried out at once, beside other plans


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a plan: first the states of its steps, later its measured effect."""

    states: list[str] = []
    moves: list[str] = []
    began: float | None = None
    ended: float | None = None
    stopped: str = ""
    links: str = ""  # LINKS_PLACED, or why the plan's links were not placed; empty if it has none
    reported_before: Levels | None = None  # all traffic by the brokers' own reports, before the plan
    measured: Levels | None = None  # by the measurement after the plan
    reported_after: Levels | None = None
    binding: float | None = None  # use of the scarcest resource after the plan, in the terms of ``Binding.now``
    helped: bool | UnsetType | None = UNSET  # None: it can never be measured; UNSET: not measured yet
    unmeasured: str = ""  # why it can never be measured

    @classmethod
    def of(cls, progress: Progress, links: str = "") -> Outcome:
        return cls(progress.states, progress.moves, progress.began, progress.ended, progress.stopped, links)


class Routed(msgspec.Struct, frozen=True):
    """The routing that a decision was made on."""

    units: dict[str, Unit]
    brokers: list[tuple[Key, str]]

    @classmethod
    def of(cls, routing: RoutingTable) -> Routed:
        return cls(dict(routing.units), list(routing.brokers.items()))

    def table(self) -> RoutingTable:
        return RoutingTable(self.units, dict(self.brokers))


class DecisionMade(msgspec.Struct):
    """A decision as it is stored, with the data it was made from; without parts, it was not made from a measurement."""

    question: Question
    routing: Routed | None
    alive: list[str]
    parts: list[str]  # subjects of the parts of the measurement
    plan: Plan | None
    why_not: str = ""  # why there is no plan


class Decision(DecisionMade):
    """A decision and its outcome."""

    outcome: Outcome | None = None
