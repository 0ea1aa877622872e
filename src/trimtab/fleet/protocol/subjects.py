"""The NATS subjects of a fleet. They are built and parsed only in this module.

    t.TOPIC                    subscribers of every kind of topic listen to it
    in.TOPIC                   publications of stock clients (plain NATS, MQTT); the broker's server renames the
                               subject to raw.BROKER.TOPIC, so that only this broker's agent receives the message
    work.TOPIC                 messages for the processor of a topic, wherever it is hosted
    home.BROKER.TOPIC          the same in client placement, where a message is processed at its publisher's home
    spool.TOPIC                copies between the spools of one topic on several brokers
    keep.BROKER.TOPIC          messages of a persistent topic, stored at the broker; republished to t.TOPIC
    retired.BROKER.TOPIC       a persistent topic's stream that takes no more messages
    dead.TOPIC                 messages that could not be processed, with the reason
    sub.CHANNEL.ID.CLIENT      stored at the hub: one message for every subscriber of every channel subscription
    be.CHANNEL.ID              stored at the hub: a channel subscription begins or ends for the data cluster
    res.CHANNEL.ID             stored at the hub: results of a channel subscription; republished to c.CHANNEL.ID
    feed.APP.NAME              publications of a feed that has no topics
    route.ENTRY                a change of the registry; ENTRY is the entry's name, see ``registry``
    ask.BROKER.VERB            requests to an agent; ask.hub.VERB to the keeper; ask.all.probe to all of them
    admin.VERB                 requests of operators
    telemetry.BROKER           a broker's report, every second
    snapshot.about             index of the newest measurement of the whole fleet: the subjects of its parts
    snapshot.part.SLOT.NUMBER  one of these parts
    decision.NUMBER.made       a decision of the controller; .outcome is its outcome, .snapshot.* its measurement

In the place of a name, ``ANY`` stands for every name, and ``EVERY`` for every topic or every ending of a subject.
Functions that parse return None for a subject of another form. A publisher needs no header: its name, sequence number
and send time travel as the reply subject (``message``). A plain subscriber ignores it, and it costs a third of headers.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

ANY: Final = "*"
EVERY: Final = ">"
PROBE: Final = "ask.all.probe"
SNAPSHOT_ABOUT: Final = "snapshot.about"
# Regular expressions that Python and Spark read in the same way.
RESULT_PATTERN: Final = r"^res\.([^.]+)\.([^.]+)$"
BACKEND_PATTERN: Final = r"^be\.([^.]+)\.([^.]+)$"
SUBSCRIBER_PATTERN: Final = r"^sub\.([^.]+)\.([^.]+)\.([^.]+)$"
_RESULT: Final = re.compile(RESULT_PATTERN)
_BACKEND: Final = re.compile(BACKEND_PATTERN)
_SUBSCRIBER: Final = re.compile(SUBSCRIBER_PATTERN)
_RAW: Final = re.compile(r"raw\.[^.]+\.(.+)")
_TELEMETRY: Final = re.compile(r"telemetry\.([^.]+)")
_DECISION: Final = re.compile(r"decision\.(\d{1,18})\.made", re.ASCII)


# Messages of topics.


def deliver(topic: str) -> str:
    return f"t.{topic}"


def delivered_topic(subject: str) -> str | None:
    """The topic whose subscribers listen to this subject."""
    return subject[2:] if subject.startswith("t.") and len(subject) > 2 else None


def door(topic: str) -> str:
    return f"in.{topic}"


def raw(broker: str, topic: str) -> str:
    return f"raw.{broker}.{topic}"


def raw_topic(subject: str) -> str | None:
    """The topic of a stock client's message."""
    match = _RAW.fullmatch(subject)
    return match[1] if match else None


def work(topic: str) -> str:
    return f"work.{topic}"


def home(broker: str, topic: str) -> str:
    return f"home.{broker}.{topic}"


def spool(topic: str) -> str:
    return f"spool.{topic}"


def keep(broker: str, topic: str) -> str:
    return f"keep.{broker}.{topic}"


def retired(broker: str, topic: str) -> str:
    return f"retired.{broker}.{topic}"


def dead(topic: str) -> str:
    return f"dead.{topic}"


# Channels and feeds.


class Subscriber(NamedTuple):
    """One subscriber of a channel subscription."""

    channel: str
    id: str
    client: str


def subscriber(channel: str, identity: str, client: str) -> str:
    return f"sub.{channel}.{identity}.{client}"


def parse_subscriber(subject: str) -> Subscriber | None:
    match = _SUBSCRIBER.fullmatch(subject)
    return Subscriber(*match.groups()) if match else None


def backend(channel: str, identity: str) -> str:
    return f"be.{channel}.{identity}"


def backend_subscription(subject: str) -> tuple[str, str] | None:
    """Channel and id of the subscription that begins or ends."""
    match = _BACKEND.fullmatch(subject)
    return (match[1], match[2]) if match else None


def result(channel: str, identity: str) -> str:
    """The subject under which results are stored."""
    return f"res.{channel}.{identity}"


def result_subscription(subject: str) -> tuple[str, str] | None:
    """Channel and id of the subscription that a stored result is for."""
    match = _RESULT.fullmatch(subject)
    return (match[1], match[2]) if match else None


def channel(name: str, identity: str) -> str:
    """The subject on which subscribers receive results."""
    return f"c.{name}.{identity}"


STORED_RESULTS: Final = "res.>"  # stored results; the hub's server republishes each to the subject in HEARD_RESULTS
HEARD_RESULTS: Final = "c.>"  # republished results


def feed(app: str, name: str) -> str:
    return f"feed.{app}.{name}"


# Requests and changes.


def change(entry: str) -> str:
    return f"route.{entry}"


def ask(broker: str, verb: str) -> str:
    return f"ask.{broker}.{verb}"


def admin(verb: str) -> str:
    return f"admin.{verb}"


def telemetry(broker: str) -> str:
    return f"telemetry.{broker}"


def telemetry_broker(subject: str) -> str | None:
    """The broker of a report."""
    match = _TELEMETRY.fullmatch(subject)
    return match[1] if match else None


# Measurements and decisions.


def snapshot(rest: str) -> str:
    return f"snapshot.{rest}"


def snapshot_part(slot: int, number: int) -> str:
    return f"snapshot.part.{slot}.{number}"


def decision(rest: str) -> str:
    return f"decision.{rest}"


def decision_made(number: int | str) -> str:
    return f"decision.{number}.made"


def decision_outcome(number: int) -> str:
    return f"decision.{number}.outcome"


def decision_part(number: int, attempt: str, part: int) -> str:
    return f"decision.{number}.snapshot.{attempt}.{part}"


def decision_number(subject: str) -> int | None:
    """The number of the decision with this subject."""
    match = _DECISION.fullmatch(subject)
    return int(match[1]) if match else None


def answered_by(subject: str) -> str:
    """The process that answers requests with this subject, in words."""
    root, name = [*subject.split("."), ""][:2]
    if root == "ask" and name != "hub":
        return f"the agent of broker '{name}'"
    return "a controller" if name == "control" else "the hub's keeper"


def ledger(app: str, kind: str, name: str) -> str:
    """The data cluster's entry about a channel or a feed of an application."""
    return f"ledger.{app}.{kind}.{name}"


# Subjects that nats-server defines.


def server_request(identity: str, what: str) -> str:
    """The subject of a query to one nats-server about itself, in its system account."""
    return f"$SYS.REQ.SERVER.{identity}.{what}"


SERVER_STATISTICS: Final = (  # what nats-servers send each other, in their system account
    "$SYS.SERVER.*.STATSZ", "$SYS.SERVER.ACCOUNT.*.CONNS", "$SYS.ACCOUNT.*.SERVER.CONNS",
)  # fmt: skip
INBOXES: Final = "_INBOX.>"  # replies to requests
MQTT: Final = "$MQTT.>"  # sessions and acknowledgements of MQTT clients
ACKNOWLEDGEMENTS: Final = "$JS.ACK.>"  # of stored messages, by their readers


def jetstream_api(domain: str | None) -> str:
    """The prefix of requests to the JetStream of a domain: a broker's or the hub's; None for the connection's own."""
    return "$JS.API" if domain is None else f"$JS.{domain}.API"


def direct_get(domain: str, stream: str) -> str:
    """Requests for stored messages of a stream by subject or sequence number."""
    return f"{jetstream_api(domain)}.DIRECT.GET.{stream}"


def next_message(domain: str, stream: str, consumer: str) -> str:
    """Requests of a reader for its next messages."""
    return f"{jetstream_api(domain)}.CONSUMER.MSG.NEXT.{stream}.{consumer}"


def consumer_info(domain: str, stream: str, consumer: str) -> str:
    return f"{jetstream_api(domain)}.CONSUMER.INFO.{stream}.{consumer}"


def bucket_stream(bucket: str) -> str:
    """The stream that holds a key-value bucket."""
    return f"KV_{bucket}"


def bucket_entry(bucket: str, name: str) -> str:
    """The subject of an entry of a key-value bucket."""
    return f"$KV.{bucket}.{name}"
