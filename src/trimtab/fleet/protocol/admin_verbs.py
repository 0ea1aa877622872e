"""What operators ask: of the keeper, of the controller, and of the process that started brokers."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

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
from trimtab.fleet.protocol.plans import PlanRecord, ProgressRecord
from trimtab.fleet.protocol.request import AdminRequest, Done
from trimtab.model.key import Key
from trimtab.observe.report import BrokerReport

E = TypeVar("E")

# The registry.


class Entries(msgspec.Struct, Generic[E]):
    """The registry's entries of one kind by name."""

    entries: dict[str, E]
    alive: list[str]  # brokers
    heard: list[str]  # of those, brokers that have called since this keeper began
    reports: dict[str, BrokerReport] = {}  # the newest of each broker, if they were asked for


class ListTopics(AdminRequest[Entries[Topic]]):
    verb = "topics"
    changes = False
    reports: bool = False


class ListClients(AdminRequest[Entries[ClientEntry]]):
    verb = "clients"
    changes = False
    reports: bool = False


class ListLinks(AdminRequest[Entries[LinkEntry]]):
    """By ``CLIENT.TOPIC``."""

    verb = "links"
    changes = False
    reports: bool = False


class ListBrokers(AdminRequest[Entries[BrokerEntry]]):
    verb = "brokers"
    changes = False
    reports: bool = False


class ChannelState(ChannelEntry, frozen=True):
    """A channel as it was declared, and its rows that were too large to be sent."""

    left_out: int = 0
    reason: str = ""  # of the newest of these


class ListChannels(AdminRequest[Entries[ChannelState]]):
    verb = "channels"
    changes = False
    reports: bool = False


class ListCordons(AdminRequest[Entries[CordonEntry]]):
    """By broker."""

    verb = "cordons"
    changes = False
    reports: bool = False


class CordonBroker(AdminRequest[Done]):
    """Nothing is placed there from now on; what is there stays."""

    verb = "cordon"
    broker: str
    reason: str = ""


class UncordonBroker(AdminRequest[Done]):
    verb = "uncordon"
    broker: str


class Count(msgspec.Struct):
    count: int


class DeclareChannels(AdminRequest[Count]):
    """The channels of an application, all of them; those it has no more end."""

    verb = "declare"
    app: str
    channels: dict[str, ChannelEntry]


class PlacedLink(msgspec.Struct):
    client: str
    topic: str
    broker: str  # empty: refused


class PlaceLinks(AdminRequest[Count]):
    """Links of topics that are placed by link."""

    verb = "link"
    links: list[PlacedLink]


class ForgetBroker(AdminRequest[Done]):
    """A broker that was removed for good; nothing may be left there."""

    verb = "forget"
    broker: str


# Moves.


class MoveOrder(msgspec.Struct):
    key: Key
    to: str


class Begun(msgspec.Struct):
    moves: list[str]  # ids


class StartMoves(AdminRequest[Begun]):
    """All are checked before any begins."""

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
    """These, or the newest."""

    verb = "moves"
    changes = False
    ids: list[str] | None = None
    most: int = 100


# Brokers, asked of the process that starts them.


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
    """What the controller does and what it waits for."""

    leader: str
    at: float
    says: str
    paused: str  # why; empty if it is not
    findings: list[str]
    why_not: str  # why nothing moves
    measured: float | None  # when, in seconds since 1970
    load: dict[str, Any] | None
    brokers: dict[str, float]  # load
    at_once: int
    progress: ProgressRecord | None
    left_s: float | None
    leaving: list[str]  # brokers that are being emptied
    waiting: dict[str, str]  # persistent topics -> broker that they wait for
    cordoned: list[str]  # brokers that nothing is placed at
    policy: str = ""


class GetStatus(AdminRequest[ControllerStatus]):
    verb = "control.status"
    changes = False


class Paused(msgspec.Struct):
    paused: str


class Pause(AdminRequest[Paused]):
    """Nothing moves by itself from now on, except keys whose broker is not alive."""

    verb = "control.pause"
    reason: str = ""


class Resume(AdminRequest[Paused]):
    verb = "control.resume"


class PlanReply(msgspec.Struct, omit_defaults=True):
    plan: PlanRecord | None
    applied: bool
    why_not: str = ""


class Rebalance(AdminRequest[PlanReply]):
    """A plan now, whatever the goals find; carried out with ``apply``."""

    verb = "control.rebalance"
    apply: bool = False
    policy: str | None = None
    budget: float | None = None
    reason: str = ""
    knobs: dict[str, Any] | None = None  # of the policy


class ApplyMoves(AdminRequest[PlanReply]):
    """Moves that somebody else has planned, as one plan; carried out with ``apply``."""

    verb = "control.apply"
    moves: list[MoveOrder]
    apply: bool = False
    reason: str = ""


class RollBack(AdminRequest[PlanReply]):
    """Everything that a plan (the last one) has moved back to where it came from."""

    verb = "control.rollback"
    plan: int | None = None
    reason: str = ""


class EmptyBroker(AdminRequest[PlanReply]):
    """Every key off a broker, with balance in mind; no other key moves, and none comes."""

    verb = "control.empty"
    broker: str
    reason: str = ""


class Stopped(msgspec.Struct):
    plan: int | None
    stay: list[str]  # brokers that were to be removed
    moved: int
    moving: int


class StopPlan(AdminRequest[Stopped]):
    verb = "control.stop"
    reason: str = ""
