"""Requests to the agent of a broker: from clients, from moves, from operators."""

from __future__ import annotations

from typing import Literal

import msgspec

from trimtab.fleet.protocol.entries import Change, Topic
from trimtab.fleet.protocol.request import AgentRequest, Done
from trimtab.model.key import Key
from trimtab.observe.coordinates.coordinate import Coordinate
from trimtab.observe.report import ClientPosition, TopicReport

Role = Literal["pub", "sub"]

# Clients.


class AddressBook(msgspec.Struct):
    """The addresses of all brokers."""

    brokers: dict[str, list[str]]  # name -> URLs
    mark: int  # checksum of the addresses


class Welcomed(AddressBook):
    """The addresses of all brokers, and the client's home."""

    home: str


class Hello(AgentRequest[Welcomed]):
    """A client has connected, or has a new position."""

    verb = "hello"
    client: str
    home: str | None = None  # preferred home
    position: tuple[float, float] | None = None
    returns: bool | None = None  # whether the application gave it a name, under which it may come back


class GetBrokers(AgentRequest[AddressBook]):
    verb = "brokers"
    changes = False


class FoundRoute(msgspec.Struct):
    """The broker that serves a topic to a client."""

    broker: str
    urls: list[str]
    topic: Topic


class FindRoute(AgentRequest[FoundRoute]):
    verb = "route"
    changes = False
    client: str
    topic: str


class Opened(msgspec.Struct):
    peers: list[str]  # servers that must know of a new subscription before the old one may end


class OpenLink(AgentRequest[Opened]):
    verb = "open"
    client: str
    topic: str
    role: Role


class CloseLink(AgentRequest[Done]):
    verb = "close"
    client: str
    topic: str
    role: Role | None = None  # None: all roles


class RefuseMove(AgentRequest[Done]):
    """A client cannot move away from this broker."""

    verb = "refuse"
    client: str
    topic: str  # empty: all its links
    reason: str


class Known(msgspec.Struct):
    """The answer to a client's report."""

    stale: dict[str, FoundRoute]  # new routes of topics that have moved
    home: str
    home_alive: bool
    mark: int  # checksum of the newest address book
    known: bool  # whether the hub knows the client


class ReportClient(AgentRequest[Known]):
    """A client's report, once a second: its traffic, its links at this broker, the routes it uses."""

    verb = "report"
    client: str
    home: str
    topics: dict[str, TopicReport]
    links: dict[str, list[Role]]
    routes: dict[str, str]  # topic -> broker
    leaves: bool = False
    run: str = ""  # of the client; numbers start again in every run
    number: int = 0  # of ``topics``; the same topics may come again under the same number; 0: they come once
    position: ClientPosition | None = None  # every few seconds, and after a change


class BrokerCoordinates(msgspec.Struct):
    coordinates: dict[str, Coordinate]  # by broker, of those that have one


class GetCoordinates(AgentRequest[BrokerCoordinates]):
    """The network coordinates of all brokers."""

    verb = "coordinates"
    changes = False


class FlushTopic(AgentRequest[Done]):
    """Answered when all messages that a leaving publisher has sent to the topic's processor are processed."""

    verb = "flush"
    client: str
    topic: str


class MakeReader(AgentRequest[Done]):
    """Create a durable reader of a persistent topic."""

    verb = "reader"
    client: str
    topic: str
    durable: str


CLIENTS_MAY_ASK = (
    Hello, GetBrokers, FindRoute, OpenLink, CloseLink, ReportClient, FlushTopic, RefuseMove, MakeReader, GetCoordinates,
)  # fmt: skip


# Moves. These orders are idempotent.


class Closed(msgspec.Struct):
    """A stream that is closed for new messages."""

    last: int  # sequence number of its last message; 0 if it has none
    read: dict[str, int]  # durable reader -> sequence number up to which it has read


class HostTopic(AgentRequest[Done]):
    """Host a new topic; refused if it cannot be served."""

    verb = "host"
    topic: Topic


class WelcomeClient(AgentRequest[Done]):
    """Prepare for a client that moves here: serve the processors of all topics it may publish to."""

    verb = "welcome"


class PrepareTopic(AgentRequest[Done]):
    verb = "prepare"
    move: str
    topic: Topic
    source: str


class Released(msgspec.Struct):
    closed: Closed | None = None  # the closed stream of a persistent topic


class ReleaseTopic(AgentRequest[Released]):
    """Stop serving the topic and give its state to the target."""

    verb = "release"
    move: str
    topic: str
    target: str


class TakeState(AgentRequest[Done]):
    """A part of the state of a topic that the source has released."""

    verb = "take"
    move: str
    topic: str
    part: int
    parts: int
    state: str


class SourceClosed(AgentRequest[Done]):
    """The source's stream is closed for new messages."""

    verb = "closed"
    move: str
    topic: str
    closed: Closed


class ActivateTopic(AgentRequest[Done]):
    """Open the target's stream for new messages, or its processor if the source has died."""

    verb = "activate"
    topic: str
    source: str
    closed: Closed | None = None


class RetireTopic(AgentRequest[Done]):
    """Stop hosting a topic that is hosted elsewhere; ``target`` is the target of the move."""

    verb = "retire"
    topic: str
    target: str = ""
    move: str = ""


class ResumeTopic(AgentRequest[Done]):
    """Serve the topic again after a move that failed."""

    verb = "resume"
    topic: str


class GiveTopic(AgentRequest[Done]):
    """Give a topic that this broker hosts to another broker, without the hub; answered when the move is over."""

    verb = "give"
    topic: str
    target: str


class OfferTopic(AgentRequest[Done]):
    """The topic's host wants to give it to this broker, without the hub: prepare to serve it, or refuse."""

    verb = "offer"
    move: str
    topic: Change  # its entry at the host
    source: str


class AcceptTopic(AgentRequest[Done]):
    """The topic is this broker's now. Answered when the change is on disk here, and the topic is served."""

    verb = "accept"
    topic: Change


class DrainLinks(AgentRequest[Done]):
    """Answered when no link that moves with the key is left here."""

    verb = "drain"
    key: Key
    wait_s: float


# The network.


class Probed(msgspec.Struct):
    """The broker that answers, and its network coordinate."""

    broker: str
    coordinate: Coordinate


class Probe(AgentRequest[Probed]):
    """Answered at once: the time that it takes is the round-trip time between the two agents.

    It carries what the asking agent has measured before, so that the agent that is asked learns from it too.
    """

    verb = "rtt"
    changes = False
    broker: str = ""  # of the agent that asks
    coordinate: Coordinate | None = None
    rtt_ms: float | None = None  # of the previous probe of this peer


class PeerRtt(msgspec.Struct):
    rtt_ms: float | None  # None: not measured


class GetPeerRtt(AgentRequest[PeerRtt]):
    """The round-trip time that this broker's agent has measured to another broker."""

    verb = "peer_rtt"
    changes = False
    peer: str


class FoundPosition(msgspec.Struct):
    position: ClientPosition | None  # None: the client has not reported one to this agent lately


class GetPosition(AgentRequest[FoundPosition]):
    """Where a client is in the network."""

    verb = "position"
    changes = False
    client: str


# Operators.


class Pong(msgspec.Struct):
    broker: str
    pid: int
    hosts: dict[str, bool]  # topic -> whether its processor is live


class Ping(AgentRequest[Pong]):
    verb = "ping"
    changes = False
