"""Requests of operators: to the keeper, to the controller, and to the process that started brokers."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, get_args

import msgspec

from trimtab.fleet.protocol.entries import (
    BrokerEntry,
    ChannelEntry,
    ClientEntry,
    CordonEntry,
    LinkEntry,
    MoveRecord,
    Topic,
)
from trimtab.fleet.protocol.plans import Levels, Plan, Progress
from trimtab.fleet.protocol.request import AdminRequest, Done
from trimtab.model.key import Key
from trimtab.observe.best_brokers import AtBrokers
from trimtab.observe.coordinates.coordinate import Coordinate
from trimtab.observe.report import BrokerReport

E = TypeVar("E")

# The registry.


class Entries(msgspec.Struct, Generic[E]):
    """The registry's entries of one kind by name."""

    entries: dict[str, E]
    alive: list[str]  # brokers that count as alive
    heard: list[str]  # brokers that have called this keeper recently
    reports: dict[str, BrokerReport] = {}  # newest report of each broker that is alive, if requested
    coordinates: dict[str, Coordinate] = {}  # with the list of brokers: network coordinates, of those that have one


class Listing(AdminRequest[Entries[E]], Generic[E]):
    """All entries of one kind, with the newest reports of brokers that are alive if ``reports``."""

    changes = False
    reports: bool = False

    @classmethod
    def reply(cls) -> type[Entries[E]]:
        (entry,) = get_args(cls.__orig_bases__[0])  # type: ignore[attr-defined]
        return Entries[entry]  # type: ignore[valid-type]


class ListTopics(Listing[Topic]):
    verb = "topics"


class ListClients(Listing[ClientEntry]):
    verb = "clients"


class ListLinks(Listing[LinkEntry]):
    """By ``CLIENT.TOPIC``."""

    verb = "links"


class ListBrokers(Listing[BrokerEntry]):
    verb = "brokers"


class ChannelState(ChannelEntry, frozen=True):
    """A channel as declared, with the number of its result rows that were too large to be sent."""

    left_out: int = 0
    reason: str = ""  # why the newest of these rows was left out


class ListChannels(Listing[ChannelState]):
    verb = "channels"


class ListCordons(Listing[CordonEntry]):
    """By broker."""

    verb = "cordons"


class CordonBroker(AdminRequest[Done]):
    """Place no more keys at a broker; the keys that it has stay."""

    verb = "cordon"
    broker: str
    reason: str = ""


class UncordonBroker(AdminRequest[Done]):
    verb = "uncordon"
    broker: str


class Count(msgspec.Struct):
    count: int


class DeclareChannels(AdminRequest[Count]):
    """Declare all channels of an application; its channels that are not listed are removed."""

    verb = "declare"
    app: str
    channels: dict[str, ChannelEntry]


class PlacedLink(msgspec.Struct):
    client: str
    topic: str
    broker: str  # empty: the placement refuses the link


class PlaceLinks(AdminRequest[Count]):
    """Place links of topics whose unit is the link."""

    verb = "link"
    links: list[PlacedLink]


class SetTopic(AdminRequest[Done]):
    """Change what an operator may change of a topic while it exists."""

    verb = "set_topic"
    name: str
    latency_ms: float | None  # bound of the p90 of delivery times; None: no bound


class ForgetBroker(AdminRequest[Done]):
    """Remove a broker from the registry for good; no key may be left there."""

    verb = "forget"
    broker: str


# Moves.


class MoveOrder(msgspec.Struct):
    key: Key
    to: str


class Begun(msgspec.Struct):
    moves: list[str]  # ids


class StartMoves(AdminRequest[Begun]):
    """Start moves; all are checked before any starts."""

    verb = "move"
    moves: list[MoveOrder]


class DrainBroker(AdminRequest[Begun]):
    """Cordon a broker and move everything off it."""

    verb = "drain"
    broker: str
    reason: str = ""


class MoveRecords(msgspec.Struct):
    moves: list[MoveRecord]
    under_way: int


class ListMoves(AdminRequest[MoveRecords]):
    """The records of these moves, or of the newest ones."""

    verb = "moves"
    changes = False
    ids: list[str] | None = None
    most: int = 100


# Brokers: requests to the process that starts them.


class BrokerUrls(msgspec.Struct):
    urls: list[str]


class AddBroker(AdminRequest[BrokerUrls]):
    verb = "add_broker"
    name: str
    stores: int = 1


class RemoveBroker(AdminRequest[Done]):
    verb = "remove_broker"
    name: str


# The controller.


class ControllerStatus(msgspec.Struct):
    """The state of the controller."""

    leader: str = ""
    at: float = 0.0
    says: str = ""
    policy: str = ""
    paused: str = ""  # reason of the pause; empty if not paused
    findings: list[str] = []
    why_not: str = ""  # why nothing moves
    measured: float | None = None  # time of the last measurement, in seconds since 1970
    load: Levels | None = None
    brokers: dict[str, float] = {}  # load
    at_once: int = 0  # moves that may run at the same time
    progress: Progress | None = None
    left_s: float | None = None
    leaving: list[str] = []  # brokers that are being emptied
    waiting: dict[str, str] = {}  # persistent topics -> broker that they wait for
    cordoned: list[str] = []  # brokers at which no keys are placed


class GetStatus(AdminRequest[ControllerStatus]):
    verb = "control.status"
    changes = False


class Paused(msgspec.Struct):
    paused: str


class Pause(AdminRequest[Paused]):
    """Pause the controller: it moves no keys, except those whose broker is not alive."""

    verb = "control.pause"
    reason: str = ""


class Resume(AdminRequest[Paused]):
    verb = "control.resume"


class PlanReply(msgspec.Struct, omit_defaults=True):
    plan: Plan | None
    applied: bool
    why_not: str = ""


class Rebalance(AdminRequest[PlanReply]):
    """Plan now, even if the goals find no fault; the plan is carried out with ``apply``."""

    verb = "control.rebalance"
    apply: bool = False
    policy: str | None = None
    budget: float | None = None
    reason: str = ""
    knobs: dict[str, Any] | None = None  # the policy's knobs


class ApplyMoves(AdminRequest[PlanReply]):
    """Take the caller's moves as one plan; it is carried out with ``apply``. Links are placed after the moves."""

    verb = "control.apply"
    moves: list[MoveOrder]
    apply: bool = False
    reason: str = ""
    links: list[PlacedLink] = msgspec.field(default_factory=list)


class RollBack(AdminRequest[PlanReply]):
    """Move all keys that a plan (default: the last one) has moved back to their former brokers."""

    verb = "control.rollback"
    plan: int | None = None
    reason: str = ""


class EmptyBroker(AdminRequest[PlanReply]):
    """Move every key off a broker with regard to balance; no other key moves, and the broker gets no new ones."""

    verb = "control.empty"
    broker: str
    reason: str = ""


class Stopped(msgspec.Struct):
    plan: int | None
    stay: list[str]  # brokers that were to be removed
    moved: int
    moving: int


class Heard(msgspec.Struct):
    acts: bool  # whether the controller decides about these topics; it cannot without a measurement


class ReportMissed(AdminRequest[Heard]):
    """A broker hosts topics whose bound is missed because of the network, and that another broker would serve better;
    or topics of which it has reported that before. Answered by the leading controller."""

    verb = "control.missed"
    topics: dict[str, AtBrokers]


class StopPlan(AdminRequest[Stopped]):
    verb = "control.stop"
    reason: str = ""
