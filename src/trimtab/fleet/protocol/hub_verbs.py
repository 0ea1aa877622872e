"""Requests of agents and clients to the keeper, and the hub's records of channels."""

from __future__ import annotations

from typing import Any

import msgspec

from trimtab.fleet.protocol.entries import BrokerEntry, Change, Topic
from trimtab.fleet.protocol.hosting import Expected
from trimtab.fleet.protocol.request import Done, HubRequest
from trimtab.observe.coordinates.coordinate import Coordinate


class News(msgspec.Struct):
    """The reply to a sync: changes of the registry, live brokers, moving topics."""

    changes: list[Change]
    revision: int
    alive: list[str]
    moving: list[str]  # topics in a move


class Sync(HubRequest[News]):
    """Get the registry's changes after the agent's ``revision``. ``about`` describes the agent's broker."""

    verb = "sync"
    broker: str
    revision: int
    about: BrokerEntry | None = None
    run: str = ""  # identifies the agent's process, to tell it from an earlier one
    interim: tuple[Change, ...] = ()  # interim changes that the keeper has not confirmed


class ReportCoordinate(HubRequest[Done]):
    """The network coordinate of a broker has changed. Its agent sends it every few seconds at most."""

    verb = "coordinate"
    broker: str
    coordinate: Coordinate


class Created(msgspec.Struct):
    broker: str
    created: bool  # False: the topic existed with the same settings


class CreateTopic(HubRequest[Created]):
    """Create a topic. If its broker is empty, one is chosen: by predicted latencies if the topic has a processor, then
    by the rule of first placements."""

    verb = "create"
    topic: Topic
    position: tuple[float, float] | None = None  # of the client that creates it
    expected: Expected | None = None  # traffic of a topic with a processor


class DeleteTopic(HubRequest[Done]):
    verb = "delete"
    name: str


class Home(msgspec.Struct):
    home: str


class Register(HubRequest[Home]):
    """Register a client; a known client keeps its home."""

    verb = "register"
    client: str
    home: str
    wished: bool = False  # whether the client asked for this home
    position: tuple[float, float] | None = None
    returns: bool | None = None


# Channels.


class WantedChannel(msgspec.Struct):
    channel: str
    params: dict[str, Any]  # checked by the channel's types


class ChannelPlace(msgspec.Struct):
    """A subscription at the hub. Its results are those with sequence numbers above ``since``."""

    channel: str
    id: str
    since: int


class Subscribed(msgspec.Struct):
    subscriptions: list[ChannelPlace]  # in the order of the request
    position: int  # sequence number up to which the client has seen all results


class SubscribeChannels(HubRequest[Subscribed]):
    """Make subscriptions; all are checked before any is made."""

    verb = "subscribe"
    client: str
    subscriptions: list[WantedChannel]


class ChannelId(msgspec.Struct):
    channel: str
    id: str


class UnsubscribeChannels(HubRequest[Done]):
    verb = "unsubscribe"
    client: str
    subscriptions: list[ChannelId]


class LastResult(msgspec.Struct):
    last: int  # sequence number of the newest result


class SeenResults(HubRequest[LastResult]):
    """Store that a client has seen all results up to ``seq``, if given; get the newest sequence number."""

    verb = "seen"
    client: str
    seq: int | None = None


CLIENTS_MAY_ASK = (CreateTopic, DeleteTopic, SubscribeChannels, UnsubscribeChannels, SeenResults)


# Records that the hub stores for channels.


class SubscriberRecord(msgspec.Struct):
    since: int


class BackendRecord(msgspec.Struct):
    """Whether a subscription has subscribers."""

    on: bool
    params: dict[str, Any] = {}


class ResultRecord(msgspec.Struct):
    """The result of one execution of a channel for one subscription, or a part of it."""

    execution: int
    at: str  # ISO 8601
    rows: list[dict[str, Any]]
    part: int = 0  # number of this part, from 0; a large result comes in several messages
    parts: int = 1
    after: int = 0  # all parts of the same result are stored after this sequence number
    left_out: int = 0  # rows that were too large to be sent
    reason: str = ""  # why the last of these rows was left out


class LeftOut(msgspec.Struct):
    """The rows of a channel that were too large to be sent so far, from its newest entry in the cluster's ledger."""

    left_out: int = 0
    reason: str = ""
