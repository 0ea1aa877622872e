"""What the keeper is asked by agents and clients."""

from __future__ import annotations

from typing import Any

import msgspec

from trimtab.fleet.protocol.entries import BrokerEntry, Change, Topic
from trimtab.fleet.protocol.request import Done, HubRequest


class News(msgspec.Struct):
    """What an agent must know of the fleet."""

    changes: list[Change]
    revision: int
    alive: list[str]
    moving: list[str]  # topics


class Sync(HubRequest[News]):
    """An agent has the registry up to ``revision``: what is news? ``about`` is what it says of itself."""

    verb = "sync"
    broker: str
    revision: int
    about: BrokerEntry | None = None
    run: str = ""  # tells one process from the one before it


class Created(msgspec.Struct):
    broker: str
    created: bool  # False: it was there, with the same settings


class CreateTopic(HubRequest[Created]):
    """A topic with an empty broker is hosted by the rule of first placements."""

    verb = "create"
    topic: Topic
    position: tuple[float, float] | None = None  # of the client that creates it


class DeleteTopic(HubRequest[Done]):
    verb = "delete"
    name: str


class Home(msgspec.Struct):
    home: str


class Register(HubRequest[Home]):
    """A client has come; it keeps the home it has."""

    verb = "register"
    client: str
    home: str
    wished: bool = False  # whether the client has asked for that home
    position: tuple[float, float] | None = None
    returns: bool | None = None


# Channels.


class WantedChannel(msgspec.Struct):
    channel: str
    params: dict[str, Any]  # checked by the channel's types


class ChannelPlace(msgspec.Struct):
    """A subscription as the hub has it; results after ``since`` belong to it."""

    channel: str
    id: str
    since: int


class Subscribed(msgspec.Struct):
    subscriptions: list[ChannelPlace]  # in the order they were asked for
    position: int  # everything up to this result has been seen by the client


class SubscribeChannels(HubRequest[Subscribed]):
    """All are checked before any is made."""

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
    last: int  # of all results


class SeenResults(HubRequest[LastResult]):
    """A client has had all results up to ``seq``, if it says so; which is the newest?"""

    verb = "seen"
    client: str
    seq: int | None = None


CLIENTS_MAY_ASK = (CreateTopic, DeleteTopic, SubscribeChannels, UnsubscribeChannels, SeenResults)


# What the hub stores for channels.


class SubscriberRecord(msgspec.Struct):
    since: int


class BackendRecord(msgspec.Struct):
    """A subscription is wanted by somebody, or no longer."""

    on: bool
    params: dict[str, Any] = {}


class ResultRecord(msgspec.Struct):
    """What one execution of a channel found for one subscription."""

    execution: int
    at: str  # ISO 8601
    rows: list[dict[str, Any]]
    part: int = 0  # a large result comes in several messages
    parts: int = 1
    after: int = 0  # all parts of the same result are stored after this place of the stream
    left_out: int = 0  # rows that were too large to be sent
    reason: str = ""  # why


class LeftOut(msgspec.Struct):
    """Of the newest entry of a channel in the data cluster's ledger: rows that were too large to be sent so far."""

    left_out: int = 0
    reason: str = ""
