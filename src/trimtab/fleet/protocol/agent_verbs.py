"""What the agent of a broker is asked: by clients, by moves, by operators."""

from __future__ import annotations

from typing import Literal

import msgspec

from trimtab.fleet.protocol.entries import Topic
from trimtab.fleet.protocol.request import AgentRequest, Done
from trimtab.model.key import Key
from trimtab.observe.report import TopicReport

Role = Literal["pub", "sub"]

# Clients.


class AddressBook(msgspec.Struct):
    """Where brokers are."""

    brokers: dict[str, list[str]]  # name -> URLs
    mark: int  # a number that another address book would hardly have


class Welcomed(AddressBook):
    """Where brokers are, and where the client is at home."""

    home: str


class Hello(AgentRequest[Welcomed]):
    """A client has come, or is at another position now."""

    verb = "hello"
    client: str
    home: str | None = None  # where it would like to be at home
    position: tuple[float, float] | None = None
    returns: bool | None = None  # whether it has a name to come back under


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
    peers: list[str]  # servers that must have heard of a new subscription before an old one may end


class OpenLink(AgentRequest[Opened]):
    verb = "open"
    client: str
    topic: str
    role: Role


class CloseLink(AgentRequest[Done]):
    verb = "close"
    client: str
    topic: str
    role: Role | None = None  # None: whatever it does there


class RefuseMove(AgentRequest[Done]):
    """A client cannot leave this broker."""

    verb = "refuse"
    client: str
    topic: str  # empty: all its links
    reason: str


class Known(msgspec.Struct):
    """The answer to a client's report."""

    stale: dict[str, FoundRoute]  # topics that are elsewhere now
    home: str
    home_alive: bool
    mark: int  # of the newest address book
    known: bool  # whether the hub knows the client


class ReportClient(AgentRequest[Known]):
    """Once a second from every client: what it did, which links it has here, which routes it follows."""

    verb = "report"
    client: str
    home: str
    topics: dict[str, TopicReport]
    links: dict[str, list[Role]]
    routes: dict[str, str]  # topic -> broker
    leaves: bool = False


class FlushTopic(AgentRequest[Done]):
    """A publisher leaves: answered when what it has sent to the topic's processor is done."""

    verb = "flush"
    client: str
    topic: str


class MakeReader(AgentRequest[Done]):
    """A durable reader of a persistent topic."""

    verb = "reader"
    client: str
    topic: str
    durable: str


CLIENTS_MAY_ASK = (
    Hello, GetBrokers, FindRoute, OpenLink, CloseLink, ReportClient, FlushTopic, RefuseMove, MakeReader,
)  # fmt: skip


# Moves. Each of these orders may be given twice.


class Closed(msgspec.Struct):
    """A stream that takes no more messages."""

    last: int  # number of its last message; 0 if it has none
    read: dict[str, int]  # durable reader -> number of the last message that it has read


class HostTopic(AgentRequest[Done]):
    """A new topic; refused if it cannot be served."""

    verb = "host"
    topic: Topic


class WelcomeClient(AgentRequest[Done]):
    """A client is to come: be ready for all it may publish to."""

    verb = "welcome"


class PrepareTopic(AgentRequest[Done]):
    verb = "prepare"
    move: str
    topic: Topic
    source: str


class Released(msgspec.Struct):
    closed: Closed | None = None  # of a persistent topic


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
    """The source's stream takes no more messages."""

    verb = "closed"
    move: str
    topic: str
    closed: Closed


class ActivateTopic(AgentRequest[Done]):
    """Open for stored messages."""

    verb = "activate"
    topic: str
    source: str
    closed: Closed | None = None


class RetireTopic(AgentRequest[Done]):
    """Forget the topic, which is served elsewhere; ``target``: where a move was to bring it."""

    verb = "retire"
    topic: str
    target: str = ""


class ResumeTopic(AgentRequest[Done]):
    """Serve the topic as before a move that came to nothing."""

    verb = "resume"
    topic: str


class DrainLinks(AgentRequest[Done]):
    """Answered when no link that moves with the key is left here."""

    verb = "drain"
    key: Key
    wait_s: float


# Operators.


class Pong(msgspec.Struct):
    broker: str
    pid: int
    hosts: dict[str, bool]  # topic -> whether its processor serves


class Ping(AgentRequest[Pong]):
    verb = "ping"
    changes = False
