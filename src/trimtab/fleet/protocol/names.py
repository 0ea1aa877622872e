"""The names of topics, clients and brokers, and the NATS subjects made from them.

Applications see topics; this is the only place that knows how they look on the wire:

    t.TOPIC               what subscribers listen to, of every kind of topic
    in.TOPIC              the door for stock clients (plain NATS, MQTT); the server a message enters by
                          renames it to raw.BROKER.TOPIC, so that only this broker's agent takes it
    work.TOPIC            messages for the processor of a topic, wherever it is hosted
    home.BROKER.TOPIC     the same in client placement, where a message is processed at its publisher's home
    spool.TOPIC           copies between the spools of one topic on several brokers
    keep.BROKER.TOPIC     messages of a persistent topic, stored at the broker; republished to t.TOPIC
    dead.TOPIC            messages that could not be processed, with the reason
    c.CHANNEL.ID          results of a subscription to a channel, as they are stored at the hub
    res., be., sub.       the streams behind it; see ``channels``
    route.KIND.NAME       the registry's changes, as they happen
    ask.*, admin.*        requests to the agents and to the hub's keeper
    telemetry.BROKER      a broker's report, every second
    snapshot.*            the newest measurement of the whole fleet, in parts; see ``pipeline.observer``
    decision.NUMBER.*     the controller's decisions, with all they were made from; see ``control.record``

A publisher needs no header: its name, sequence number and send time travel as the reply subject, which a
plain subscriber never looks at and which costs a third of what headers do.
"""

from __future__ import annotations

import re
from typing import Final

from trimtab.errors import BadInput

_WORD = r"[A-Za-z0-9_-]+"
_TOPIC = re.compile(rf"{_WORD}(\.{_WORD})*")
_NAME = re.compile(_WORD)
_INBOX = re.compile(rb"_INBOX(\.[A-Za-z0-9_-]{1,64}){1,4}")
MAX_TOPIC: Final = 200
MAX_NAME: Final = 64
_PART: Final = re.compile(r"-(agent|store-\d+)$")
HUB: Final = "hub"  # the hub's name among the brokers, and its JetStream domain


def topic_name(name: str) -> str:
    """``name`` itself, if a topic may be called so."""
    if not isinstance(name, str) or len(name) > MAX_TOPIC or not _TOPIC.fullmatch(name):
        raise BadInput(
            f"a topic is called by words of letters, digits, '_' and '-' with dots between them, "
            f"{MAX_TOPIC} characters at most, but this came: {_shown(name)}"
        )
    return name


def client_name(name: str) -> str:
    return _plain("client", name)


def channel_name(name: str) -> str:
    return _plain("channel", name)


def reader_name(name: str) -> str:
    return _plain("durable reader", name)


def broker_name(name: str) -> str:
    if name == HUB:
        raise BadInput(f"a broker cannot be called '{HUB}': that is the hub's name")
    if isinstance(name, str) and _PART.search(name):
        raise BadInput(f"a broker cannot be called '{name}': so a part of another one would be")
    return _plain("broker", name)


def _plain(kind: str, name: str) -> str:
    if not isinstance(name, str) or len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise BadInput(
            f"a {kind} is called by letters, digits, '_' and '-', {MAX_NAME} at most, but this came: {_shown(name)}"
        )
    return name


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 80 else f"{text[:77]}..."


def inbox(data: bytes) -> str | None:
    """The subject that a request asks to be answered at, if it is a client's inbox and nothing else."""
    found = _INBOX.fullmatch(data)
    return found.group().decode() if found else None


def deliver(topic: str) -> str:
    return f"t.{topic}"


def work(topic: str) -> str:
    return f"work.{topic}"


def home(broker: str, topic: str) -> str:
    return f"home.{broker}.{topic}"


def spool(topic: str) -> str:
    return f"spool.{topic}"


def keep(broker: str, topic: str) -> str:
    return f"keep.{broker}.{topic}"


def dead(topic: str) -> str:
    return f"dead.{topic}"


def stream(topic: str) -> str:
    """The JetStream stream of a persistent topic: stream names have no dots, topic names no '='."""
    return topic.replace(".", "=")
